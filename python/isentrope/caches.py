"""The functions that fill a cache of keys and values."""

from __future__ import annotations

from torch import Tensor

from isentrope._core.checks import integers, kind
from isentrope._core.library import CHECKED
from isentrope._core.values import is_integer, shown


def write_cache(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Writes the keys and values of new tokens into the pages of a cache, for `varlen_attention` and `decode`.

    k, v: [tokens, kv_heads, dim | value_dim]. k_cache, v_cache: [pages, kv_heads, page_size, dim | value_dim], all
    float32, bfloat16 or float16 of one type. slot_mapping: int32 or int64 [tokens], the slot of each token: page *
    page_size + row, as in vLLM; negative: not written. The last of several tokens with one slot remains on the CPU. A
    GPU keeps any of them, and does not write slots past the cache. Raises ValueError or TypeError.
    """
    for name, tensor, rank in (("k", k, 3), ("v", v, 3), ("k_cache", k_cache, 4), ("v_cache", v_cache, 4)):
        if not isinstance(tensor, Tensor) or tensor.is_nested or tensor.dim() != rank:
            raise ValueError(f"[write_cache] {name} must be a tensor of {rank} dimensions; got {kind(tensor)}")
    try:
        slots = integers("slot_mapping", slot_mapping, k, k)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace("[attention]", "[write_cache]", 1)) from None
    rows = (x.detach().transpose(0, 1).unsqueeze(0) for x in (k, v))
    CHECKED.write_cache(*rows, k_cache.detach(), v_cache.detach(), slots)


def quantize(rows: Tensor, group_size: int | None = None) -> tuple[Tensor, Tensor]:
    """Converts keys or values of a cache to 8 bits, with a scale for every `group_size` columns, for `decode`.

    rows: float32, bfloat16 or float16 [outer, heads, rows, columns]. group_size divides the columns; None: all of them.
    Returns codes, int8 of the same shape, and scales, float32 [outer, heads, rows, columns / group_size]. A number is
    read as its code times the scale of its group. The error is at most the group's largest magnitude / 254, or 2^-127
    if that is more. A group that contains NaN or inf is read as NaN. Not differentiable; on the CPU. Raises TypeError or
    ValueError.
    """
    if not isinstance(rows, Tensor) or rows.is_nested or rows.dim() != 4 or rows.shape[3] < 1:
        raise TypeError(f"[quantize] rows must be a tensor of 4 dimensions with at least one column; got {kind(rows)}")
    if rows.numel() > 1 << 56:  # broadcast rows, which codes are not
        raise ValueError(f"[quantize] rows must have at most 2^56 elements; got {list(rows.shape)}")
    columns = rows.shape[3]
    size = columns if group_size is None else group_size
    if not is_integer(size) or size < 1 or columns % size != 0:
        raise ValueError(f"[quantize] group_size must be a divisor of the {columns} columns; got {shown(size)}")
    return CHECKED.quantize(rows.detach(), columns // size)
