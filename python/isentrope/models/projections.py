"""The rows of a model's weights that make queries and keys, and how QK-clip scales each of them.

A head whose logits must shrink by gamma has its rows multiplied by gamma^e:

    own keys                query rows e = 1/2      key rows e = 1/2
    keys shared by heads    query rows e = 1        key rows e = 0
    latent attention (MLA)  without rotation e = 1/2 in both; rotated query rows e = 1, the shared rotated key e = 0

Source: Kimi K2 (arXiv 2507.20534), algorithm 1. A key that heads share stays as it is there, so that a head below the threshold
keeps its logits; grouped-query attention follows the same principle here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Names of norms after the projections: q_norm, norm_k, query_layernorm, ln_q, q_b_norm; not q_a_layernorm, before a projection.
_QUERIES, _NORM = "(q|k|qk|query|key|queries|keys)", "((layer|rms|group|l2)_?)?(norms?|ln)"
_NORM_OF_QUERIES = re.compile(f"{_QUERIES}_?(b_)?{_NORM}|{_NORM}_?{_QUERIES}")


@dataclass(eq=False)
class Part:
    """One projection: the head and the exponent of each of its rows."""

    module: nn.Module
    names: tuple[str, ...]
    """Attributes of the module: the weight, and the bias, which may be None."""
    head: Tensor
    """int64 [rows]; any head where the exponent is 0."""
    exponent: Tensor
    """float32 [rows]."""
    axis: int = 0
    """Dimension of the weight that counts rows: 1 for transformers' Conv1D."""

    def parameters(self) -> list[tuple[Tensor, int]]:
        """Returns the tensors to scale, with their dimensions of rows. Raises ValueError unless all are parameters."""
        pairs = []
        for name in self.names:
            tensor = getattr(self.module, name)
            if tensor is None:
                continue
            if name not in self.module._parameters or not tensor.is_floating_point():
                raise ValueError(
                    f"[QKClip] {name} of {type(self.module).__name__} must be a floating-point parameter of its own; got a "
                    f"{type(tensor).__name__} of {tensor.dtype}: merge adapters, parametrizations or quantized weights first"
                )
            axis = self.axis if tensor.dim() > 1 else 0
            if tensor.shape[axis] != len(self.head):
                raise ValueError(
                    f"[QKClip] {name} of {type(self.module).__name__} must have {len(self.head)} rows; got "
                    f"{list(tensor.shape)}: shards must be DTensors, as those of fully_shard and parallelize_module are"
                )
            pairs.append((tensor, axis))
        return pairs

    def trains(self) -> bool:
        """Returns whether a tensor to scale, or an adapter inside the layer, has a gradient."""
        tensors = [getattr(self.module, name) for name in self.names]
        if not isinstance(self.module, nn.MultiheadAttention):  # its child projects the output
            tensors += [parameter for child in self.module.children() for parameter in child.parameters()]
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)

    def scale(self, gamma: Tensor) -> None:
        """Multiplies the rows of each head by gamma^exponent. gamma: [heads]; 1 leaves rows unchanged bit for bit."""
        factors = gamma.to(self.head.device).index_select(0, self.head) ** self.exponent
        for tensor, axis in self.parameters():
            shape = [1] * tensor.dim()
            shape[axis] = -1
            tensor.mul_(_on_device_of(factors.view(shape), tensor))


def _on_device_of(factors: Tensor, like: Any) -> Tensor:
    """Returns the factors on the device of `like`, replicated if it is a DTensor, so that scaling needs no communication."""
    factors = factors.to(like.device)
    if not hasattr(like, "placements"):
        return factors
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh
    return DTensor.from_local(factors, mesh, [Replicate()] * mesh.ndim, run_check=False)


@dataclass(eq=False)
class Projections:
    """Query and key projections of one attention module."""

    heads: int
    parts: list[Part]

    @property
    def weight(self) -> Tensor:
        """Weight of the queries, whose device and type are those of the module."""
        return getattr(self.parts[0].module, self.parts[0].names[0])

    @property
    def frozen(self) -> bool:
        """Whether nothing that makes queries and keys has a gradient, adapters inside the projections included."""
        return not any(part.trains() for part in self.parts)

    def first_head(self, heads: int) -> int:
        """Index of this rank's first head, from its shard of the query weight; calls have `heads` heads."""
        index, shards = 0, 1
        weight: Any = self.weight
        for dimension, placement in enumerate(getattr(weight, "placements", ())):
            if placement.is_shard(self.parts[0].axis):
                size = weight.device_mesh.size(dimension)
                index, shards = index * size + weight.device_mesh.get_local_rank(dimension), shards * size
        if shards * heads != self.heads:
            raise ValueError(
                f"[QKClip] a call must have the {self.heads} heads of its projections, or a rank's part of them where weights "
                f"are DTensors; got {heads} heads and {shards} shards"
            )
        return index * heads


def separate(q: nn.Module, k: nn.Module, head_dim: int) -> Projections:
    """Describes projections of queries and keys by a layer each: weights [heads * head_dim, width] and [kv_heads * head_dim, width].

    Biases are scaled too. Raises ValueError if the rows are not whole heads, or kv_heads does not divide heads.
    """
    heads, kv_heads = (_heads(layer, head_dim) for layer in (q, k))
    has_own_keys = _own_keys(heads, kv_heads)
    parts = [of_rows(q, [(head, head_dim, 0.5 if has_own_keys else 1.0) for head in range(heads)])]
    if has_own_keys:
        parts.append(of_rows(k, [(head, head_dim, 0.5) for head in range(heads)]))
    return Projections(heads, parts)


def fused(
    qkv: nn.Module, head_dim: int, kv_heads: int | None = None, *, by_head: bool = False,
    names: tuple[str, str] = ("weight", "bias"),
) -> Projections:  # fmt: skip
    """Describes projections of queries, keys and values by one layer.

    kv_heads: heads of keys and values; None: as many as those of queries.
    by_head: whether the rows are [kv_heads, (queries of the group, key, value), head_dim], as in GPT-NeoX, BLOOM and
        Megatron. False: all queries, all keys, all values.
    names: attributes of weight and bias.
    """
    all_heads = _heads(qkv, head_dim, names[0])
    if kv_heads is None:
        kv_heads = all_heads // 3
    heads = all_heads - 2 * kv_heads
    has_own_keys = _own_keys(heads, kv_heads)
    of_queries = [(head, head_dim, 0.5 if has_own_keys else 1.0) for head in range(heads)]
    of_keys = [(head * (heads // kv_heads), head_dim, 0.5 if has_own_keys else 0.0) for head in range(kv_heads)]
    of_values = [(head, head_dim, 0.0) for head in range(kv_heads)]
    group = heads // kv_heads
    rows = of_queries + of_keys + of_values
    if by_head:
        groups = (of_queries[head * group :][:group] for head in range(kv_heads))
        rows = [row for queries, key, value in zip(groups, of_keys, of_values) for row in (*queries, key, value)]
    return Projections(heads, [of_rows(qkv, rows, names)])


def latent(q: nn.Module, kv: nn.Module, nope_dim: int, rope_dim: int, value_dim: int) -> Projections:
    """Describes projections of latent attention (MLA) from the latent vectors, q_b_proj and kv_b_proj in DeepSeek and Kimi.

    q: weight [heads * (nope_dim + rope_dim), ...], rotated columns last. kv: weight [heads * (nope_dim + value_dim), ...].
    """
    heads = _heads(q, nope_dim + rope_dim)
    if _heads(kv, nope_dim + value_dim) != heads:
        raise ValueError(f"[QKClip] kv must have the {heads} heads of q; got {_heads(kv, nope_dim + value_dim)}")
    of_q = [(head, *piece) for head in range(heads) for piece in ((nope_dim, 0.5), (rope_dim, 1.0))]
    of_kv = [(head, *piece) for head in range(heads) for piece in ((nope_dim, 0.5), (value_dim, 0.0))]
    return Projections(heads, [of_rows(q, of_q), of_rows(kv, of_kv)])


def named(
    *, head_dim: int, q: str | None = None, k: str | None = None, qkv: str | None = None, kv_heads: int | None = None,
    by_head: bool = False,
) -> Callable[[str, nn.Module], Projections | None]:  # fmt: skip
    """Finds the modules that have layers of these names: q and k as `separate` takes them, or qkv as `fused` does."""
    if (q is None) != (k is None) or (q is None) == (qkv is None):
        raise ValueError(f"[projections.named] names must be q and k, or qkv; got q={q!r}, k={k!r}, qkv={qkv!r}")

    def find(name: str, module: nn.Module) -> Projections | None:
        if qkv is not None:
            return fused(module._modules[qkv], head_dim, kv_heads, by_head=by_head) if qkv in module._modules else None
        if q in module._modules and k in module._modules:
            return separate(module._modules[q], module._modules[k], head_dim)
        return None

    return find


def refuse_norms(name: str, module: nn.Module) -> None:
    """Raises ValueError if the module has a norm for its queries or keys after their projections, by its name.

    Modules inside are searched too, unless they have matrices: these have projections of their own, as indexers do.
    `nn.Identity` is no norm. A norm by a function, such as `functional.normalize(q)` in `forward`, cannot be seen.
    """
    if norms := list(_norms_of_queries(module)):
        raise ValueError(
            f"[QKClip] queries and keys of {name} must not be normalised after their projections, because scaling the "
            f"projections then changes no logit, and the norm bounds the logits already; got {norms[0]}: leave QKClip out"
        )


def _norms_of_queries(module: nn.Module) -> Iterator[str]:
    for name, child in module.named_children():
        if _NORM_OF_QUERIES.fullmatch(name):
            if not isinstance(child, nn.Identity):
                yield name
        elif all(parameter.dim() < 2 for parameter in child.parameters()):
            yield from (f"{name}.{inner}" for inner in _norms_of_queries(child))


def of_rows(
    layer: nn.Module, rows: list[tuple[int, int, float]], names: tuple[str, ...] = ("weight", "bias")
) -> Part:  # fmt: skip
    """A projection of any layout. rows: head, number of rows and exponent of each piece, in the order of the weight."""
    device = getattr(layer, names[0]).device
    head = torch.tensor([head for head, count, _ in rows for _ in range(count)])
    exponent = torch.tensor([exponent for _, count, exponent in rows for _ in range(count)])
    present = tuple(name for name in names if hasattr(layer, name))
    return Part(layer, present, head.to(device), exponent.to(device), _axis(layer))


def _axis(layer: nn.Module) -> int:
    return 1 if type(layer).__name__ == "Conv1D" else 0


def _heads(layer: nn.Module, head_dim: int, name: str = "weight") -> int:
    weight = getattr(layer, name, None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise ValueError(f"[QKClip] a projection must have a weight of 2 dimensions; got a {type(layer).__name__} without")
    rows = weight.shape[_axis(layer)]
    if head_dim < 1 or rows % head_dim:
        raise ValueError(f"[QKClip] rows of a projection must be whole heads of {head_dim}; got {rows}")
    return rows // head_dim


def _own_keys(heads: int, kv_heads: int) -> bool:
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"[QKClip] heads of keys must divide those of queries; got {kv_heads} and {heads}")
    return heads == kv_heads
