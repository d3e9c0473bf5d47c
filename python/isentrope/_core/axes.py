"""Axes of the tensors in the operators' schemas, for batching and sharding."""

from __future__ import annotations

from isentrope._core.library import AXES

_ROWS = ["batch", "heads"]
_OF_ROWS = (
    "q", "k", "v", "output", "support", "t_q", "t_k", "t_v", "t_bias", "t_lambda", "u_q", "u_k", "u_v", "u_bias",
    "u_lambda", "t_output", "d_output", "dq", "dk", "dv",
    "d_bias", "d_lambda", "lse", "weights", "keys", "by_score", "by_bias",
)  # fmt: skip
TENSOR_AXES: dict[str, list[str]] = AXES | {
    **dict.fromkeys(_OF_ROWS, _ROWS),
    **dict.fromkeys(("statistics", "t_statistics", "d_statistics"), ["statistic", *_ROWS]),
    **dict.fromkeys(("block_table", "seqused_k"), ["batch"]),
    **dict.fromkeys(("t_sinks", "u_sinks", "d_sinks"), ["heads"]),
    "cu_seq_q": [],
}
"""First axes of arguments and results by name."""
