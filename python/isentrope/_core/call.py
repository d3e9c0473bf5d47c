"""Checks the arguments of a call as far as the library cannot, and packs them for the operators."""

from __future__ import annotations

import warnings
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isentrope._core.checks import CHECKS, kind, on_device_of
from isentrope._core.library import DEFAULTS, refuse_arguments
from isentrope._core.masks import Masks
from isentrope._core.values import check_bool, is_integer, shown
from isentrope.rules import Rule, rule_text

if TYPE_CHECKING:
    from isentrope._core.libraries import Listed

    class Call(Listed): ...
else:
    Call = namedtuple("Call", ["q", "k", "v", *DEFAULTS], defaults=DEFAULTS.values())
"""The arguments that all operators share, in the order of their schema."""
SHARED = len(Call._fields)
TENSORS = 3 + sum(default is None for default in DEFAULTS.values())

# Arguments that pass a changing scale and soft-cap to compiled code.
IN_TENSORS = ("compiled_scale", "compiled_soft_cap")

_CAUSAL = {False: 0, "top_left": 1, True: 2, "bottom_right": 2}
_NO_WINDOW = (-1, -1)


def without_sdpa_names(q: Tensor, k: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Renames arguments of `scaled_dot_product_attention` in `options` to those of a call, and returns them."""
    is_causal, enable_gqa = options.pop("is_causal", False), options.pop("enable_gqa", True)
    for name, value in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        check_bool("attention", name, value)
    if is_causal:
        if options.get("causal", False) is not False:
            raise ValueError(f"[attention] causal must be absent with is_causal; got {shown(options['causal'])}")
        options["causal"] = "top_left"
    if not enable_gqa and q.shape[-3:-2] != k.shape[-3:-2]:
        raise ValueError("[attention] enable_gqa must be True for a k with fewer heads than q; got False")
    mask = options.get("attn_mask")
    if isinstance(mask, Tensor) and mask.is_floating_point():
        options["attn_mask"], options["bias"] = None, _sum(mask, options.get("bias"))
    return options


def _sum(mask: Tensor, bias: Tensor | None) -> Tensor:
    try:
        return mask if bias is None else mask + bias
    except (RuntimeError, TypeError):
        refuse_arguments([("attn_mask", mask), ("bias", bias)])
        raise ValueError(
            f"[attention] attn_mask and bias must be tensors that can be added; got {kind(mask)} and {kind(bias)}"
        ) from None


def call_of(
    q: Tensor, k: Tensor, v: Tensor, *, rule: Rule = "standard", scale: float | None = None,
    masks: Masks | None = None, causal: bool | str = False, window_size: tuple[int, int] = _NO_WINDOW, **options: Any,
) -> Call:  # fmt: skip
    """Checks the operators' common arguments as far as the library cannot, and packs them.

    masks: replaces the options that are parts of it. options: every other field of `Call`.
    """
    try:
        return _call_of(q, k, v, rule, scale, masks, causal, window_size, options)
    except Exception:
        refuse_arguments([("q", q), ("k", k), ("v", v), *options.items()])
        raise


def _call_of(
    q: Tensor, k: Tensor, v: Tensor, rule: Rule, scale: float | None, masks: Masks | None, causal: bool | str,
    window_size: tuple[int, int], options: dict[str, Any],
) -> Call:  # fmt: skip
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        name, other = next((name, x) for name, x in zip("qkv", (q, k, v)) if not isinstance(x, Tensor))
        raise TypeError(f"[attention] {name} must be a tensor; got {kind(other)}")
    device = "cpu"
    if not (q.is_cpu and k.is_cpu and v.is_cpu):
        _check_devices(q, k, v)
        device = "cpu" if q.is_meta else q.device.type
    if q.dtype is torch.float64:
        _warn_of_float64()
    elif torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = (x if x.dtype is torch.int8 else x.to(dtype) for x in (q, k, v))
    if (scale is not None or "soft_cap" in options) and torch.compiler.is_compiling():
        scale, options = _in_tensors(scale, options)
    if isinstance(dropout := options.get("dropout_p"), (int, float)) and dropout and options.get("dropout_seed") is None:
        options["dropout_seed"] = drawn_seed(q)
    arguments: dict[str, Any] = {"rule": rule_text(rule, scale)}
    if masks is None:
        arguments["causal"], (arguments["window_left"], arguments["window_right"]) = alignment(causal), _window(window_size)
    else:
        arguments |= masks._asdict()
    for name, value in options.items():
        if value is not None or DEFAULTS[name] is not None:  # None means a missing tensor, and nothing else
            arguments[name] = CHECKS[name](name, value, q, k)
    return Call(q, k, v, **arguments)


def _in_tensors(scale: float | None, options: dict[str, Any]) -> tuple[float | None, dict[str, Any]]:
    """Puts numbers that change from call to call into tensors, because compilers would recompile for each value."""
    from torch.fx.experimental.symbolic_shapes import has_static_value  # a slow import

    def changes(number: Any) -> bool:
        return isinstance(number, (int, float)) and not has_static_value(number)

    if scale is not None and changes(scale):
        options["compiled_scale"], scale = torch.ones((), dtype=torch.float64) * scale, None
    if changes(options.get("soft_cap")):
        options["compiled_soft_cap"] = torch.ones((), dtype=torch.float64) * options.pop("soft_cap")
    return scale, options


_warned = False


def _warn_of_float64() -> None:
    global _warned
    if not (_warned or torch.compiler.is_compiling()):
        _warned = True
        message = "[attention] float64 is computed by the reference, on one thread and without a kernel: use it for tests"
        warnings.warn(message, stacklevel=5)


def alignment(causal: Any) -> int:
    try:
        number = _CAUSAL[causal]
        if causal is False or causal is True or causal not in (0, 1):  # 1 would be True, but in C it is "top_left"
            return number
    except (KeyError, TypeError):
        pass
    raise ValueError(f'[attention] causal must be False, True, "top_left" or "bottom_right"; got {shown(causal)}')


def _check_devices(*tensors: Tensor) -> None:
    # Meta tensors have only shapes, and their kernel needs nothing else.
    if all(tensor.is_meta for tensor in tensors):
        return
    q = tensors[0]
    if q.device.type not in ("cpu", "cuda", "xpu"):
        raise ValueError(f"[attention] q must be on the CPU, a CUDA or an XPU device; got {q.device}")
    for name, tensor in zip("kv", tensors[1:]):
        on_device_of(q, name, tensor)


def _window(window_size: Any) -> tuple[int, int]:
    if window_size is _NO_WINDOW:
        return _NO_WINDOW
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2 or not all(map(is_integer, window_size)):
        raise TypeError(f"[attention] window_size must be two integers; got {shown(window_size)}")
    left, right = window_size
    if left < -1 or right < -1:
        raise ValueError(f"[attention] window_size must be at least -1 (no limit); got {shown(window_size)}")
    return left, right


def drawn_seed(q: Tensor) -> Tensor:
    """Draws a seed from the generator that torch's own dropout of q would use."""
    if hasattr(q, "placements"):
        raise ValueError(
            "[attention] dropout_seed must be given with DTensors, because each rank would draw its own; got None"
        )
    return torch.randint(-(1 << 63), (1 << 63) - 1, (), dtype=torch.int64, device=q.device)
