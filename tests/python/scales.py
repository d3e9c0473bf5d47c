"""The scale of q.k in a model's own code, row by row, and the one of `model_rule`."""

from typing import NamedTuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

import isentrope.hf
from isentrope._core.library import CHECKED

PROBE = "isentrope_scale_probe"


class Row(NamedTuple):
    """One attention call, in a model that reads the same token everywhere."""

    module: torch.nn.Module
    dim: int
    growth: torch.Tensor
    """[heads, rows]: the norm of each row's query over that of the first row. RoPE keeps norms, and equal tokens have
    equal hidden states, so that nothing but a scale by position makes a difference."""


_rows: list[Row] = []


def _probe(module, query, key, value, attention_mask, scaling=None, **options):
    if query.shape[-2] != key.shape[-2]:  # attention over a model's depth
        weights = (query @ key.transpose(-2, -1) * scaling).softmax(-1)
        return (weights @ value).transpose(1, 2), weights
    norms = query[0].detach().double().norm(dim=-1)
    _rows.append(Row(module, query.shape[-1], norms / norms[:, :1]))
    # Values of equal tokens are equal, and so are their weighted means.
    return value.repeat_interleave(query.shape[1] // value.shape[1], 1).transpose(1, 2), None


AttentionInterface.register(PROBE, _probe)
AttentionMaskInterface.register(PROBE, sdpa_mask)


def probed(model, length=12, token=5, **inputs) -> list[Row]:
    """Returns one Row for each attention call of a pass over `length` equal tokens."""
    model.set_attn_implementation(PROBE)
    _rows.clear()
    with torch.no_grad():
        model.eval()(input_ids=torch.full((1, length), token), use_cache=False, **inputs)
    return list(_rows)


def rule_scale(model, position: int, n: int, dim: int, head: int = 0) -> float:
    """Returns the scale by `model_rule` for a row at that position with n keys, on the layers of the rule."""
    rule = isentrope.hf.model_rule(model).rule
    return rule.lambda_(position + 1 if CHECKED.rule_reads_position(rule.text) else n, dim, head)
