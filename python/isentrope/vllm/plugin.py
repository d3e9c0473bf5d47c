"""The entry point that vLLM calls in each of its processes."""

from __future__ import annotations

import os


def register() -> None:
    """Makes isentrope's classes vLLM's attention of CPUs, and its CUSTOM of GPUs, if ISENTROPE_VLLM is 1. Does nothing otherwise."""
    if os.environ.get("ISENTROPE_VLLM", "0") != "1":
        return
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    from vllm.v1.worker.worker_base import WorkerBase

    from isentrope.vllm import recorder

    register_backend(AttentionBackendEnum.CPU_ATTN, "isentrope.vllm.backend.CPUBackend")
    register_backend(AttentionBackendEnum.CUSTOM, "isentrope.vllm.backend.GPUBackend")
    # Methods by name, because a function passed to another process would have to be serialized.
    WorkerBase.isentrope_record = recorder.start
    WorkerBase.isentrope_statistics = recorder.take
