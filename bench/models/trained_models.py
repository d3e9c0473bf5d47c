"""Trains causal models with RoPE on short windows until their loss is flat, and saves them for transformers."""

import math

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def tokenizer_of(files, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train([str(file) for file in files], trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def parts_of(tokenizer, files):
    """Returns training tokens, and the last twentieth of each file as validation tokens."""
    training, validation = [], []
    for file in files:
        tokens = tokenizer(file.read_text(errors="replace"), return_tensors="pt", verbose=False)["input_ids"][0]
        edge = len(tokens) * 19 // 20
        training.append(tokens[:edge])
        validation.append(tokens[edge:])
    return torch.cat(training), torch.cat(validation)


def batch_of(tokens, settings, step):
    """Returns windows at positions determined by seed and step."""
    places = torch.Generator().manual_seed(settings["seed"] * 1_000_000 + step)
    starts = torch.randint(len(tokens) - settings["length"], (settings["batch"],), generator=places)
    return torch.stack([tokens[start : start + settings["length"] + 1] for start in starts])


def loss_of(model, windows):
    logits = model(input_ids=windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def validated(model, tokens, settings):
    """Returns the mean loss of contiguous windows, at most 64 batches."""
    size = settings["length"] + 1
    windows = tokens[: len(tokens) // size * size].view(-1, size).split(settings["batch"])[:64]
    return sum(loss_of(model, batch).item() * len(batch) for batch in windows) / sum(map(len, windows))


def is_flat(history, settings):
    """Returns whether the last readings are not lower, by more than `flat`, than the lowest earlier one."""
    before, last = history[: -settings["patience"]], history[-settings["patience"] :]
    return bool(before) and min(last) > min(before) - settings["flat"]


class Run:
    """A training on disk: weights, optimiser, and the validation losses so far."""

    def __init__(self, model, settings, file):
        self.model, self.settings, self.file = model, settings, file
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=settings["learning_rate"], weight_decay=0.01)
        self.step, self.history, self.flat_at = 0, [], None
        if file.exists():
            saved = torch.load(file, weights_only=True)
            model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.step, self.history, self.flat_at = saved["step"], saved["history"], saved["flat_at"]

    def save(self):
        part = self.file.with_suffix(".part")
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                    "history": self.history, "flat_at": self.flat_at}, part)  # fmt: skip
        part.replace(self.file)

    @property
    def end(self):
        """Step after the last; None until the loss is flat."""
        return math.inf if self.flat_at is None else self.flat_at + max(1, self.flat_at // 5)

    def rate(self):
        warm = min(1.0, (self.step + 1) / self.settings["warm_up"])
        left = 1.0 if self.flat_at is None else (self.end - self.step) / (self.end - self.flat_at)
        return self.settings["learning_rate"] * warm * left

    def advance(self, tokens):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.zero_grad()
        loss_of(self.model, batch_of(tokens, self.settings, self.step)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1


def train(name, settings, documents, folder):
    """Trains a model into `folder`, with its tokenizer, unless they exist."""
    if (folder / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(documents.glob("*.txt"))
    tokenizer = tokenizer_of(files, settings["vocabulary"])
    training, validation = parts_of(tokenizer, files)
    torch.manual_seed(settings["seed"])
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=settings["length"], tie_word_embeddings=True,
        initializer_range=0.02, bos_token_id=None, eos_token_id=None, **settings["sizes"][name],
    )  # fmt: skip
    run = Run(LlamaForCausalLM(config), settings, folder / "training.pt")
    while run.step < run.end:
        run.advance(training)
        if run.step % settings["every"] == 0 or run.step == run.end:
            run.history.append(validated(run.model, validation, settings))
            flat = is_flat(run.history, settings) or run.step >= settings["most_steps"]
            if run.flat_at is None and flat:
                run.flat_at = run.step
            run.save()
            print(f"[train] {name} {run.step}: {run.history[-1]:.4f}{' flat' if run.flat_at else ''}", flush=True)
    tokenizer.save_pretrained(folder)
    run.model.save_pretrained(folder)
