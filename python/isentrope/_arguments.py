"""The arguments of a call, checked for what the library cannot see, as the operators take them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from isentrope._operators import DEFAULTS, Call, check_ranks
from isentrope.rules import Rule, is_integer, rule_text

_CAUSAL = {False: 0, "top_left": 1, True: 2, "bottom_right": 2}
_NO_WINDOW = (-1, -1)


def in_our_words(q: Tensor, k: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Changes `options` from the words of `scaled_dot_product_attention` to those that we have, and returns them."""
    is_causal, enable_gqa = options.pop("is_causal", False), options.pop("enable_gqa", True)
    for name, value in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        if not isinstance(value, bool):
            raise TypeError(f"[attention] {name} must be a bool; got {value!r}")
    if is_causal:
        if options.get("causal", False) is not False:
            raise ValueError(f"[attention] causal must be absent beside is_causal; got {options['causal']!r}")
        options["causal"] = "top_left"
    if not enable_gqa and q.shape[-3:-2] != k.shape[-3:-2]:
        raise ValueError("[attention] enable_gqa must be True where k has fewer heads than q; got False")
    mask = options.get("attn_mask")
    if isinstance(mask, Tensor) and mask.is_floating_point():
        bias = options.get("bias")
        options["attn_mask"], options["bias"] = None, mask if bias is None else mask + bias
    return options


def call_of(
    q: Tensor, k: Tensor, v: Tensor, *, rule: Rule = "standard", scale: float | None = None,
    causal: bool | str = False, window_size: tuple[int, int] = _NO_WINDOW, **options: Any,
) -> Call:  # fmt: skip
    """The arguments the operators share, checked for what the library cannot see. Takes every field of `Call`."""
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        _fail_kinds(q, k, v)
    device = "cpu"
    if not (q.is_cpu and k.is_cpu and v.is_cpu):
        _check_devices(q, k, v)
        device = "cpu" if q.is_meta else q.device.type
    if q.dtype is torch.float64:
        _say_that_it_is_slow()
    elif torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    if (scale is not None or "soft_cap" in options) and torch.compiler.is_compiling():
        scale, options = _in_tensors(scale, options)
    if options.get("dropout_p") and options.get("dropout_seed") is None:
        options["dropout_seed"] = drawn_seed(q)
    given: dict[str, Any] = {"rule": rule_text(rule, scale), "causal": _alignment(causal)}
    given["window_left"], given["window_right"] = _window(window_size)
    for name, value in options.items():
        # None stands for a tensor that is not there, and for nothing else.
        if value is not None or DEFAULTS[name] is not None:
            given[name] = _CHECKS[name](name, value, q, k)
    return Call(q, k, v, **given)


def _in_tensors(scale: float | None, options: dict[str, Any]) -> tuple[float | None, dict[str, Any]]:
    """With numbers that change from call to call in tensors: any other form of them a compiler takes for a constant,
    and compiles again for each."""
    from torch.fx.experimental.symbolic_shapes import has_static_value  # imports much

    def changes(number: Any) -> bool:
        return isinstance(number, (int, float)) and not has_static_value(number)

    if changes(scale):
        options["compiled_scale"], scale = torch.ones((), dtype=torch.float64) * scale, None
    if changes(options.get("soft_cap")):
        options["compiled_soft_cap"] = torch.ones((), dtype=torch.float64) * options.pop("soft_cap")
    return scale, options


_said = False


def _say_that_it_is_slow() -> None:
    global _said
    if not (_said or torch.compiler.is_compiling()):
        _said = True
        message = "[attention] float64 is computed by the reference, on one thread and without a kernel: use it for tests"
        warnings.warn(message, stacklevel=4)


def _alignment(causal: Any) -> int:
    try:
        return _CAUSAL[causal]
    except (KeyError, TypeError):
        raise ValueError(
            f'[attention] causal must be False, True, "top_left" or "bottom_right"; got {causal!r}'
        ) from None


def kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__


def _fail_kinds(*tensors: object) -> None:
    for name, tensor in zip("qkv", tensors):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"[attention] {name} must be a tensor; got {kind(tensor)}")


def _check_devices(*tensors: Tensor) -> None:
    # Meta tensors have shapes alone, which is all that their kernel needs.
    if all(tensor.is_meta for tensor in tensors):
        return
    q = tensors[0]
    if q.device.type not in ("cpu", "cuda", "xpu"):
        raise ValueError(f"[attention] q must lie on the CPU, a CUDA or an XPU device; got {q.device}")
    for name, tensor in zip("kv", tensors[1:]):
        _beside(q, name, tensor)


def _window(window_size: Any) -> tuple[int, int]:
    if window_size is _NO_WINDOW:
        return _NO_WINDOW
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2 or not all(map(is_integer, window_size)):
        raise TypeError(f"[attention] window_size must be two integers; got {window_size!r}")
    left, right = window_size
    if left < -1 or right < -1:
        raise ValueError(f"[attention] window_size must be at least -1, which is no limit; got {window_size!r}")
    return left, right


def _expanded(name: str, tensor: Tensor, shape: tuple) -> Tensor:
    try:
        return tensor.expand(shape)
    except RuntimeError:
        raise ValueError(
            f"[attention] {name} must be broadcastable to {list(shape)}; got {list(tensor.shape)}"
        ) from None


def _weights_shape(q: Tensor, k: Tensor) -> tuple:
    check_ranks(q=q, k=k)
    return (*q.shape[:3], k.shape[2])


# Each check of an argument takes its name, the value, q and k, and returns what the operators take.


def _mask(name: str, mask: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(
            f"[attention] {name} must be a bool tensor, or one of floating point numbers for `attention`, to which they "
            f"are a bias; got {kind(mask)}"
        )
    return _expanded(name, _beside(q, name, mask), _weights_shape(q, k))


def _beside(q: Tensor, name: str, tensor: Tensor) -> Tensor:
    if tensor.device != q.device:
        raise ValueError(f"[attention] {name} must lie on {q.device}, as q does; got {tensor.device}")
    return tensor


def _floats(name: str, tensor: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"[attention] {name} must be a tensor of floating point numbers; got {kind(tensor)}")
    return _beside(q, name, tensor).to(torch.float64 if q.dtype is torch.float64 else torch.float32)


def _bias(name: str, bias: Any, q: Tensor, k: Tensor) -> Tensor:
    return _expanded(name, _floats(name, bias, q, k), _weights_shape(q, k))


def _lambdas(name: str, lambda_: Any, q: Tensor, k: Tensor) -> Tensor:
    return _expanded(name, _floats(name, lambda_, q, k), tuple(q.shape[:3]))


def integers(name: str, tensor: Any, q: Tensor, k: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor) or tensor.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"[attention] {name} must be a tensor of int32 or int64; got {kind(tensor)}")
    return _beside(q, name, tensor).long()


def _per_sequence(name: str, value: Any, q: Tensor, k: Tensor) -> Tensor:
    return integers(name, q.new_full(q.shape[:1], value, dtype=torch.int64) if is_integer(value) else value, q, k)


def _as_it_is(name: str, value: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return value


def _integer(name: str, value: Any, q: Tensor, k: Tensor) -> int:
    if not is_integer(value):
        raise TypeError(f"[attention] {name} must be an integer; got {value!r}")
    return value


def _number(name: str, value: Any, q: Tensor, k: Tensor) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"[attention] {name} must be a number; got {value!r}")
    return value


def _seed(name: str, seed: Any, q: Tensor, k: Tensor) -> Tensor:
    if is_integer(seed):
        if not isinstance(seed, torch.SymInt) and not -(1 << 63) <= seed < 1 << 63:
            raise ValueError(f"[attention] {name} must be an integer of 64 bits; got {seed}")
        return torch.full((), seed, dtype=torch.int64, device=q.device)
    if not isinstance(seed, Tensor) or seed.dtype != torch.int64 or seed.dim() != 0:
        raise TypeError(f"[attention] {name} must be an integer or an int64 tensor of no dimension; got {kind(seed)}")
    return _beside(q, name, seed)


def drawn_seed(q: Tensor) -> Tensor:
    """From the generator that torch's own dropout of q would use."""
    if hasattr(q, "placements"):
        raise ValueError(
            "[attention] dropout_seed must be given where q is a DTensor, whose ranks would draw one each; got None"
        )
    return torch.randint(-(1 << 63), (1 << 63) - 1, (), dtype=torch.int64, device=q.device)


# By the kind of the default, but for the tensors that are no list of integers.
_BY_DEFAULT = {type(None): integers, int: _integer, float: _number}
_CHECKS = {name: _BY_DEFAULT[type(value)] for name, value in DEFAULTS.items() if type(value) in _BY_DEFAULT}
_CHECKS |= {"compiled_scale": _as_it_is, "compiled_soft_cap": _as_it_is, "lambda_": _lambdas, "attn_mask": _mask, "bias": _bias, "sinks": _floats, "prefix_keys": _per_sequence}
_CHECKS["dropout_seed"] = _seed
