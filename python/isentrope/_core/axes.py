"""Axes of the tensors in the operators' schemas, for batching and sharding."""

from __future__ import annotations

from isentrope._core.library import AXES

_ROWS = ["batch", "heads"]
TENSOR_AXES: dict[str, list[str]] = AXES | {
    **dict.fromkeys(("q", "k", "v", "output", "d_output", "support", "dq", "dk", "dv", "d_bias", "d_lambda"), _ROWS),
    **dict.fromkeys(("statistics", "d_statistics"), ["statistic", *_ROWS]),
    **dict.fromkeys(("lse", "weights", "keys", "by_score", "by_bias"), _ROWS),
    **dict.fromkeys(("block_table", "seqused_k"), ["batch"]),
    "d_sinks": ["heads"],
    "cu_seq_q": [],
}
"""First axes of arguments and results by name."""
