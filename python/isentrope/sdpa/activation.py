"""Replaces torch's fused kernels by the operator, and restores them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

import torch
from torch import Tensor

from isentrope._core.autograd import differentiable
from isentrope._core.call import Call, call_of, without_sdpa_names
from isentrope._core.derivatives import transformed
from isentrope._core.library import CHECKED, LSE
from isentrope.rules import ScaleRule, rule_text
from isentrope.sdpa.drop_in import DTYPES, is_taken, nested_under_rule, under_rule, warn_of_own

_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
_BACKWARD = f"{_FORWARD}_backward"
_NODE = "ScaledDotProductFlashAttentionForCpuBackward"
# torch computes calls that its fused kernels do not take, such as those with dropout, by this function of other operators.
_COMPOSED = "_scaled_dot_product_attention_math"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_active: Activation | None = None


class Activation(AbstractContextManager["Activation"]):
    """Active replacement of torch's kernels. It ends with `remove()`, or with its `with` block."""

    def __init__(self, library: torch.library.Library, rule: str, replaces_cpu: bool = True) -> None:
        global _active
        self._library, self._replaces_cpu = library, replaces_cpu
        # The fast paths of torch's modules call no attention that could be replaced, and have a fixed scale.
        self._had_fast_paths = torch.backends.mha.get_fastpath_enabled()
        if rule != "standard":
            torch.backends.mha.set_fastpath_enabled(False)
        self.rule = rule
        """Under which calls are computed, as text."""
        _active = self

    def remove(self) -> None:
        """Restores torch's own kernels. Calling it again does nothing."""
        global _active
        if _active is self:
            self._library._destroy()
            torch.backends.mha.set_fastpath_enabled(self._had_fast_paths)
            _active = None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    def replaces(self, q: Tensor) -> bool:
        """Returns whether calls on the device of q are replaced."""
        return self._replaces_cpu or not q.is_cpu


def active_rule(q: Tensor) -> str:
    """Returns the rule under which torch's function of q is computed now: "standard" if torch computes it."""
    return _active.rule if _active is not None and _active.replaces(q) and q.dtype in DTYPES else "standard"


def check_inactive(function: str) -> None:
    if _active is not None:
        raise RuntimeError(
            f'[{function}] isentrope must not be active already, by isentrope.sdpa.activate or as torch\'s "ISENTROPE"; got a second '
            "activation: call remove() of the first, or torch.nn.attention.restore_flash_attention_impl()"
        )


def activate(rule: str | ScaleRule = "standard") -> Activation:
    """Replaces the fused CPU kernels of `scaled_dot_product_attention`, forward and backward, in this process, and on
    GPUs the function itself.

    This covers calls of the function itself, of `nn.MultiheadAttention` and the transformer layers, and of compiled models.
    Calls with dropout, for which torch has no fused kernel, are replaced too. torch still computes other calls for which it
    uses no fused kernel: those in float64, with masks that need gradients, of other than 4 dimensions, and nested tensors.

    `rule` gives the scale, with the caller's `scale` instead of 1/sqrt(d), and a mask hides keys from n. Under a rule other
    than "standard" all calls in float32, bfloat16 and float16 are computed here, jagged and nested tensors on the CPU too;
    a warning says so if torch computes one, as in float64. The fast paths of `nn.MultiheadAttention` and
    `nn.TransformerEncoder` in eval mode, which know one scale, are then off. `nn.MultiheadAttention` computes weights
    without this function: pass `need_weights=False`.

    Results have the strides of torch's own, on which compiled graphs and `view()` rely. Their backward pass may run later, but
    that of compiled functions and of checkpoints only while this is active.

    Raises RuntimeError if it is already active, or if the strides of this torch's results are not known here, and
    ValueError for an invalid rule.
    """
    check_inactive("sdpa.activate")
    text = CHECKED.rule_text(rule_text(rule, None))
    layout = _layout_of_outputs()
    fused = [(_FORWARD, key, _forward_kernel(text, layout, key)) for key in ("CPU", "AutogradCPU")]
    fused.append((_BACKWARD, "CPU", _backward_kernel(text)))
    composed = _composed_kernel(text)
    library = torch.library.Library("aten", "IMPL")
    from isentrope.sdpa import gpu  # `import isentrope` loads this file, but not what only active calls need

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators")  # the caller asks for the override
        for name, key, kernel in fused:
            library.impl(name, kernel, key, with_keyset=True, allow_override=True)
        for key in ("CompositeImplicitAutograd", "FuncTorchVmapMode"):  # the latter is of torch.func.vmap
            library.impl(_COMPOSED, composed, key, allow_override=True)
        gpu.replace(library, text)
    return Activation(library, text)


def _forward_kernel(text: str, laid_out_for: Callable[[Tensor, Tensor], Tensor], key: str) -> Callable:
    """Returns the forward kernel of the fused operator under the rule `text`. Calls that are not replaced go to torch's own
    kernel, which is looked up before the replacement.

    key: "CPU", or "AutogradCPU". There eager calls have isentrope's own derivatives: they are of the rule after the
    activation too, and of every mode. Compiled graphs contain torch's operators.
    """
    own = torch.library.get_kernel(f"aten::{_FORWARD}", key)
    computes = key == "CPU"
    compute = CHECKED.attention if computes else differentiable

    def forward(keys, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
        if dropout_p != 0 or not (_is_computed(q) and (computes or _is_differentiated(q, k, v))):
            if computes:
                warn_of_own(text, q)
            return own.call_boxed(keys, q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
        output, statistics, _ = compute(*_call(text, q, k, v, is_causal, attn_mask, scale), LSE)
        return laid_out_for(q, output), _heads_inside(statistics[0].detach())

    return forward


def _is_differentiated(*tensors: Tensor) -> bool:
    with_gradients = torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)
    return transformed() or (with_gradients and not torch.compiler.is_compiling())


def _backward_kernel(text: str) -> Callable:
    """Returns the backward kernel of the fused operator under the rule `text`, for compiled graphs."""
    own = torch.library.get_kernel(f"aten::{_BACKWARD}", "CPU")

    def backward(keys, grad_out, q, k, v, out, lse, dropout_p, is_causal, *, attn_mask=None, scale=None):
        node = torch._C._current_autograd_node()
        # torch's own node is of a forward pass before the activation.
        if not _is_computed(q) or (node is not None and node.name().startswith(_NODE)):
            passed = (grad_out, q, k, v, out, lse, dropout_p, is_causal)
            return own.call_boxed(keys, *passed, attn_mask=attn_mask, scale=scale)
        call = _call(text, q, k, v, is_causal, attn_mask, scale)
        upstream = (grad_out, None, False, False, False, False)
        gradients = CHECKED.attention_backward(*call, LSE, out, lse.contiguous()[None], *upstream)[:3]
        return tuple(_heads_inside(gradient) for gradient in gradients)

    return backward


def _composed_kernel(text: str) -> Callable:
    """Returns the composed function under the rule `text`."""
    own = torch.library.get_kernel(f"aten::{_COMPOSED}", "CPU")

    def composed(
        q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, dropout_mask=None, *, scale=None, enable_gqa=False
    ):
        passed = (q, k, v, attn_mask, dropout_p, is_causal)
        options = {"scale": scale, "enable_gqa": enable_gqa}
        wanted = dropout_mask is None and (dropout_p > 0 or text != "standard")
        if wanted and torch._C._are_functorch_transforms_active():
            # torch.func cannot differentiate the operator from here.
            wanted = _has_fused(q, v, attn_mask, dropout_p)
        if not (wanted and (q.is_cpu or q.is_meta) and is_taken(*passed)):
            warn_of_own(text, q)
            return own.call_boxed(_KEYS, *passed, dropout_mask, **options)
        compute = nested_under_rule if q.is_nested else under_rule
        output = compute(text, *passed[:4], dropout_p=dropout_p, is_causal=is_causal, compute=_attention, **options)
        # torch's own returns the weights beside the output, but no caller uses them.
        return output.contiguous(), torch.empty(0, dtype=q.dtype)

    return composed


def _is_computed(q: Tensor) -> bool:
    """Returns whether the operator computes a fused call. torch 2.10 also makes one of tensors without columns."""
    return q.dtype in DTYPES and q.shape[-1] > 0


def _has_fused(q: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float) -> bool:
    """Returns whether torch's fused operator supports the arguments, result and gradients of the call."""
    return dropout_p == 0 and q.shape[-1] == v.shape[-1] and not (mask is not None and mask.requires_grad)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, bias: Tensor | None, dropout_p: float, is_causal: bool,
    scale: float | None, rule: str,
) -> Tensor:  # fmt: skip
    """Computes `isentrope.attention` of 4 dimensions by an operator that torch differentiates and traces."""
    mask = bias if bias is not None else attn_mask
    if not _has_fused(q, v, mask, dropout_p):
        options = {"attn_mask": attn_mask, "bias": bias, "is_causal": is_causal}
        call = call_of(q, k, v, rule=rule, scale=scale, dropout_p=dropout_p, **without_sdpa_names(q, k, options))
        return CHECKED.attention(*call, LSE)[0]
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
    return getattr(torch.ops.aten, _FORWARD)(q, k, v, dropout_p, is_causal, attn_mask=mask, scale=scale)[0]


def _call(rule, q, k, v, is_causal, attn_mask, scale) -> Call:
    mask = bias = None
    if attn_mask is not None:
        bias = attn_mask.float()  # boolean masks arrive as 0 and -inf
        # A comparison of what is broadcast already would be as large as the weights.
        mask, bias = (x.expand(*q.shape[:3], k.shape[2]) for x in (bias > -torch.inf, bias))
    return Call(q, k, v, attn_mask=mask, bias=bias, rule=rule_text(rule, scale), causal=int(is_causal))


def _heads_inside(tensor: Tensor) -> Tensor:
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def laid_out_as(like: Tensor, result: Tensor) -> Tensor:
    """Returns `result` with the strides of `like`, as far as a tensor without gaps can have them."""
    if result.stride() == like.stride():
        return result
    dense = torch.empty_like(like)
    return result if result.stride() == dense.stride() else dense.copy_(result)


def _layout_of_outputs() -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a function of q and an output, which gives the output the strides of this torch's own kernel.

    Versions of torch differ. Their strides are read from tensors without data, whose shapes here are all different; q
    is contiguous, heads inside rows, and with gaps.
    """
    packed = torch.empty((2, 5, 3, 3, 7), device="meta").unbind(2)[0].transpose(1, 2)
    queries = [torch.empty((2, 3, 5, 7), device="meta"), _heads_inside(packed), packed]
    forward, backward = (getattr(torch.ops.aten, name) for name in (_FORWARD, _BACKWARD))
    outputs: list[tuple[Tensor, Tensor]] = []
    for q in queries:
        output, lse = forward(q, q, q)
        gradients = backward(output, q, q, q, output, lse, 0.0, False)
        if any(x.stride() != _heads_inside(x).stride() for x in (lse, *gradients)):
            break
        outputs.append((q, output))
    else:
        for layout in (laid_out_as, lambda _, output: _heads_inside(output)):
            if all(layout(q, torch.empty_like(output)).stride() == output.stride() for q, output in outputs):
                return layout
    raise RuntimeError(
        f"[sdpa.activate] torch must return one of the known strides from its kernels; got torch {torch.__version__}: "
        "use a tested version of torch, or isentrope.attention"
    )
