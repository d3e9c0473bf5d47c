"""Every kind of mask over a sequence that is cut into parts of its keys."""

import torch

import isentrope
from isentrope import AttentionState

BATCH, QUERIES, KEYS = 2, 6, 32
RULE = "entropy_invariant(base=7)"
MASKS = {
    "none": {},
    "causal": {"causal": True},
    "top_left": {"causal": "top_left"},
    "window": {"window_size": (9, 3)},
    "causal window": {"causal": True, "window_size": (9, -1)},
    "dilation": {"causal": True, "window_size": (20, -1), "dilation": 3},
    "chunks": {"causal": True, "chunk_size": 12},
    "chunks, not causal": {"chunk_size": 12},
    "prefix": {"causal": True, "prefix_keys": torch.tensor([29, 4])},
    "prefix, not causal": {"window_size": (-1, 1), "prefix_keys": 8},
    "padding": {"causal": True, "key_begin": torch.tensor([0, 7]), "key_end": torch.tensor([30, KEYS])},
}


def merged_and_whole(name: str, cuts: list[int]) -> tuple[AttentionState, AttentionState]:
    """Returns the merged states of the parts that `cuts` make of the keys, and the state of the whole call."""
    torch.manual_seed(4)
    q, k, v = (torch.randn(BATCH, 2, rows, 8) for rows in (QUERIES, KEYS, KEYS))
    options = MASKS[name] | {"rule": RULE, "return_stats": True}
    whole = AttentionState(*isentrope.attention(q, k, v, **options))
    first = 0 if options.get("causal") == "top_left" else KEYS - QUERIES
    place = {"query_offset": first, "sequence_keys": KEYS}
    merged = None
    for begin, end in zip([0, *cuts], [*cuts, KEYS]):
        part = k[:, :, begin:end], v[:, :, begin:end]
        state = AttentionState(*isentrope.attention(q, *part, key_offset=begin, **place, **options))
        merged = state if merged is None else isentrope.merge(merged, state)
    return merged, whole


def assert_parts_equal_the_whole(name: str, cuts: list[int]) -> None:
    merged, whole = merged_and_whole(name, cuts)
    torch.testing.assert_close(merged.output, whole.output)
    torch.testing.assert_close(merged.statistics._asdict(), whole.statistics._asdict(), rtol=1e-4, atol=1e-5)
