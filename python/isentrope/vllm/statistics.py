"""Statistics of the requests that vLLM has served."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class RequestStatistics(NamedTuple):
    """Readings of a request, each float32 [tokens, layers]. Tokens whose keys came from a prefix cache are NaN."""

    entropy: Tensor
    """Mean over heads, in nats."""
    max_logit: Tensor
    """Largest logit of any head."""
    first_weight: Tensor
    """Mean over heads of the weight of the request's first key."""


def record(llm: Any, on: bool = True) -> None:
    """Starts recording statistics of every request, or ends it. Without it, requests are served as before.

    Raises ValueError unless ISENTROPE_VLLM was 1 when the engine started.
    """
    _called(llm, "isentrope_record", on)


def statistics(llm: Any) -> dict[str, RequestStatistics]:
    """Returns the readings of each request since the last call, by the request's id, and forgets them.

    Call it between calls of `generate`, when no request is running. With tensor parallelism, ranks have the same number of
    heads, and the readings are those of all of them. Raises ValueError unless ISENTROPE_VLLM was 1 when the engine started.
    """
    ranks = [rank for rank in _called(llm, "isentrope_statistics") if rank]
    found = {}
    for request in ranks[0] if ranks else ():
        of_ranks = (rank[request] for rank in ranks)
        tensors = [torch.frombuffer(bytearray(data), dtype=torch.float32).view(shape) for shape, data in of_ranks]
        entropy, max_logit, first = torch.stack(tensors).unbind(1)
        found[request] = RequestStatistics(entropy.mean(0), max_logit.amax(0), first.mean(0))
    return found


def _called(llm: Any, method: str, *arguments: Any) -> list[Any]:
    try:
        return llm.collective_rpc(method, args=arguments)
    except Exception as error:
        # A worker in another process says that it has no such method in the text of an error of any type.
        if method not in str(error):
            raise
        raise ValueError(
            "[isentrope.vllm] ISENTROPE_VLLM must be 1 when the engine starts, and isentrope installed where vLLM is; "
            "got an engine without isentrope"
        ) from error
