"""Tunes the factor of each head's softmax scale on the loss of a stretched model beyond its trained length."""

import contextlib
import math

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface

import isentrope
from isentrope.hf.rope import stretched

NAME = "isentrope_tuned"


class Factors:
    """Factors exp(log factors [layers, heads]) in a model's attention, times growth[n - 1] for rows of n keys."""

    def __init__(self, model, growth):
        config = model.config.get_text_config()
        self.log = torch.zeros(config.num_hidden_layers, config.num_attention_heads, requires_grad=True)
        self.growth = growth

    def attend(self, module, query, key, value, attention_mask, scaling=None, **_):
        factor = self.log[module.layer_idx].exp()[:, None] * self.growth[None, : query.shape[2]]
        out = isentrope.attention_rows(query, key, value, scaling * factor[None], causal=True)
        return out.transpose(1, 2), None


@contextlib.contextmanager
def attending(model, factors):
    before = model.config._attn_implementation
    AttentionInterface.register(NAME, factors.attend)
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def loss_beyond(model, tokens, trained):
    """Returns the mean loss over positions beyond the trained length.

    Layers, and logits 256 positions at a time, are recomputed in the backward pass to save memory."""
    hidden = model.base_model(input_ids=tokens[None, :-1], use_cache=False).last_hidden_state[0, trained:]
    head = model.get_output_embeddings()

    def piece(states, wanted):
        return cross_entropy(head(states).float(), wanted, reduction="sum")

    pieces = zip(hidden.split(256), tokens[1 + trained :].split(256))
    return sum(checkpoint(piece, states, wanted, use_reentrant=False) for states, wanted in pieces) / len(hidden)


def tuned(model, texts, rope, form, trained, tokens, settings):
    """Returns log factors [layers][heads] after Adam's steps, each on `tokens` + 1 tokens of another text."""
    n = torch.arange(1, tokens + 1, dtype=torch.float32)
    growth = torch.ones(tokens) if form == "constant" else (n.log() / math.log(trained)).clamp(min=1)
    factors = Factors(model, growth)
    optimizer = torch.optim.Adam([factors.log], lr=settings["learning_rate"])
    places = torch.Generator().manual_seed(1)
    trainable = [p for p in model.parameters() if p.requires_grad]
    model.requires_grad_(False)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()  # required for checkpointing in transformers; these models have no dropout
    try:
        with stretched(model, rope), attending(model, factors):
            for step in range(settings["steps"]):
                text = texts[step % len(texts)]
                start = int(torch.randint(len(text) - tokens, (1,), generator=places))
                optimizer.zero_grad()
                loss = loss_beyond(model, text[start : start + tokens + 1], trained)
                loss.backward()
                optimizer.step()
                print(f"[tune] {form} {step + 1} of {settings['steps']}: {loss.item():.4f}", flush=True)
    finally:
        model.eval()
        model.gradient_checkpointing_disable()
        for parameter in trainable:
            parameter.requires_grad_(True)
    return factors.log.tolist()
