"""Loads local models, and passages of texts, for the commands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_CHARACTERS_A_TOKEN = 16  # upper bound of characters for each token, over a passage of text


def load(path: Path, command: str) -> tuple[Any, Any, bool]:
    """Loads model and tokenizer from a local folder or GGUF file; also returns whether the model is causal. Raises ValueError."""
    if path.is_dir() and not (path / "config.json").exists():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise ValueError(f"[{command}] MODEL must be a folder with config.json or a GGUF file; got {path}")
        path = files[0]
    if not path.exists():
        raise ValueError(f"[{command}] MODEL must exist; got {path}")
    # Without the option transformers asks on the terminal whether to run the code.
    folder: Path = path
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if path.is_file():
        folder, options = path.parent, options | {"gguf_file": path.name}
    try:
        return _loaded(folder, options)
    except Exception as error:  # readers of damaged files raise errors of many types
        if "trust_remote_code" in str(error):
            reason = "one that brings code of its own, which is not run"
        else:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"[{command}] MODEL must be one that transformers loads; got {reason}") from error


def dtype_of(name: str) -> str:
    """Resolves "auto": bfloat16 if the processor multiplies it, where prefill of SmolLM2-135M takes half the time."""
    import torch

    # Older versions of torch do not report the processor's features.
    has: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    fast = has.get("avx512_bf16") or has.get("amx_bf16")
    return ("bfloat16" if fast else "float32") if name == "auto" else name


def load_causal(path: Path, dtype: str, command: str) -> tuple[Any, Any]:
    """Loads a causal model and its tokenizer. Raises ValueError as `load` does, and for other kinds of models."""
    import torch

    model, tokenizer, causal = load(path, command)
    if not causal:
        raise ValueError(f"[{command}] MODEL must be a causal language model; got {type(model).__name__}")
    return model.to(getattr(torch, dtype)).eval(), tokenizer


def _loaded(folder: Path, options: dict[str, Any]) -> tuple[Any, Any, bool]:
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(folder, **options)
    causal = "gguf_file" in options or any("CausalLM" in name for name in config.architectures or [])
    kind = AutoModelForCausalLM if causal else AutoModel
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    if "gguf_file" in options:
        tokenizer.add_bos_token = _begins_texts(folder / options["gguf_file"])  # type: ignore[misc]
    return kind.from_pretrained(folder, **options), tokenizer, causal


def _begins_texts(file: Path) -> bool:
    """Returns whether texts of a GGUF model begin with a special token, which transformers ignores and Gemma needs."""
    from gguf import GGUFReader

    field = GGUFReader(file).fields.get("tokenizer.ggml.add_bos_token")
    return field is not None and bool(field.contents())


def stretches(text: Any, count: int, length: int) -> list[Any]:
    """Returns `count` evenly spaced pieces of at most `length` characters or tokens."""
    length = min(length, len(text))
    gap = (len(text) - length) / max(count - 1, 1)
    starts = sorted({int(i * gap) for i in range(count)})
    return [text[start : start + length] for start in starts]


def tokenised(tokenizer: Any, text: str, count: int, length: int) -> list[Any]:
    """Returns evenly spaced pieces of the text as tokens, each beginning as the tokenizer begins texts. Tokenizers are
    slow, so only the necessary characters are passed to them."""

    def tokens(text: str) -> Any:
        return tokenizer(text, return_tensors="pt", verbose=False)["input_ids"][0]

    room = _CHARACTERS_A_TOKEN * length
    if len(text) <= count * room:
        from torch import cat

        whole = tokens(text)
        first = whole[: int(whole[:1].tolist() == [getattr(tokenizer, "bos_token_id", None)])]
        return [cat([first, part]) for part in stretches(whole[len(first) :], count, length - len(first))]
    return [tokens(run)[:length] for run in stretches(text, count, room)]


def passages_of(tokenizer: Any, text: str, passages: int, length: int, command: str) -> list[Any]:
    """Returns evenly spaced pieces of `length` tokens. Raises ValueError if the text is too short for one."""
    pieces = tokenised(tokenizer, text, passages, length)
    complete = [tokens for tokens in pieces if tokens.numel() >= length]
    if not complete:
        longest = max(tokens.numel() for tokens in pieces)
        raise ValueError(f"[{command}] the text must have at least {length} tokens; got {longest}")
    return complete


def identity_of(model: Any, texts: list[Any]) -> dict[str, str]:
    """Returns hashes of the model and of the texts that it reads. Other weights and texts may have the same names."""
    return {
        "config": hashlib.sha256(model.config.to_json_string().encode()).hexdigest(),
        "weights": _hash_of(model.state_dict().values()), "tokens": _hash_of(texts),
    }  # fmt: skip


def _hash_of(tensors: Iterable[Any]) -> str:
    import torch

    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()
