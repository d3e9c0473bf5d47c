"""The node tests of ONNX's operator Attention, opsets 23 to 25."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import torch

import isentrope
from case import Case, installed

PACKAGE = "onnx==1.23.2"
TITLE = f"Attention of {PACKAGE.replace('==', ' ')}"
# Absolute and relative tolerance by type; that of float32 is ONNX's own.
TOLERANCES = {torch.float32: (1e-7, 1e-3), torch.float16: (1e-3, 1e-3), torch.bfloat16: (1e-2, 1e-2)}


def cases(folder: Path) -> Iterator[Case]:
    """Yields the tests whose graph is a single Attention. Others express attention by other operators."""
    installed(folder, PACKAGE, "ml_dtypes==0.5.4", "protobuf")
    from onnx.backend.test.case.node import collect_testcases

    for test in collect_testcases("Attention"):
        if [node.op_type for node in test.model.graph.node] == ["Attention"]:
            yield Case(test.name, functools.partial(check, test.model.graph.node[0], *test.data_sets[0]))


def tensor(array) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype("float32")).bfloat16()
    return torch.from_numpy(array.copy())


def check(node, inputs, outputs) -> None:
    from onnx import helper

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given, results = iter(inputs), iter(outputs)
    names = ("q", "k", "v", "mask", "past_k", "past_v", "lengths")
    found = computed(attributes, **{name: tensor(next(given)) for name, used in zip(names, node.input) if used})
    # Only the output and the cache are compared; the operator never holds logits or weights, the fourth result.
    for used, got in zip(node.output[:3], found):
        if used:
            want = tensor(next(results))
            atol, rtol = TOLERANCES[want.dtype]
            torch.testing.assert_close(got, want, atol=atol, rtol=rtol)


def heads_apart(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x if x.dim() == 4 else x.unflatten(2, (heads, -1)).transpose(1, 2)


def computed(attributes, q, k, v, mask=None, past_k=None, past_v=None, lengths=None) -> tuple[torch.Tensor, ...]:
    """Returns the output, and present keys and values."""
    rank = q.dim()
    q = heads_apart(q, attributes.get("q_num_heads"))
    k, v = (heads_apart(x, attributes.get("kv_num_heads")) for x in (k, v))
    past = 0 if past_k is None else past_k.shape[2]
    if past_k is not None:
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    options = {
        "scale": attributes.get("scale"),
        "soft_cap": attributes.get("softcap", 0.0),
        "window_size": (attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)),
    }
    causal = bool(attributes.get("is_causal", 0))
    if lengths is None:
        # Query i is at position past + i.
        options |= {"query_offset": past, "sequence_keys": k.shape[2], "causal": causal and "top_left"}
        output = isentrope.attention(q, k, v, attn_mask=mask, **options)
    else:
        rows = []  # the last query is at the last key of each sequence, and these differ
        for i, keys in enumerate(lengths.tolist()):
            of = slice(i, i + 1)
            own = mask if mask is None or mask.dim() < 4 or mask.shape[0] == 1 else mask[of]
            own = None if own is None else own[..., :keys]
            rows.append(isentrope.attention(q[of], k[of, :, :keys], v[of, :, :keys], attn_mask=own, causal=causal, **options))
        output = torch.cat(rows)
    return output if rank == 4 else output.transpose(1, 2).flatten(2), k, v
