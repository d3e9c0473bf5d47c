"""Compiles published kernels for comparison without a device.

They are fused attention with pointers and lse alone, and the templates of torch's FlexAttention, as torch would have
Triton compile them for an H100."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jinja2
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

HEADS, LENGTH = 32, 8192
_TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}


class Source(NamedTuple):
    """A kernel to compile: argument types, constants, indices divisible by 16, options, tile sizes."""

    kernel: JITFunction
    signature: dict[str, str]
    constants: dict[str, Any]
    divisible: tuple[int, ...]
    options: dict[str, Any]
    tile: dict[str, tuple[int, int]]


@triton.jit
def plain_kernel(
    q, k, v, output, lse, scale, to_batch, to_head, to_row, heads, queries,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Causal attention of tensors of one layout whose length is a multiple of ROWS. FlashAttention-2's loop over keys
    (arXiv 2307.08691, algorithm 1), in two parts; the second one masks."""
    tile, lane = tl.program_id(0), tl.program_id(1)
    first = (lane // heads).to(tl.int64) * to_batch + (lane % heads).to(tl.int64) * to_head
    row, key, column = tile * ROWS + tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, DIM)
    at_rows = first + row[:, None] * to_row + column[None, :]
    at_keys = first + key[:, None] * to_row + column[None, :]
    q_tile = tl.load(q + at_rows)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    for masked in tl.static_range(2):
        begin = tile * ROWS * masked
        for start in tl.range(begin, tile * ROWS + ROWS * masked, KEYS, num_stages=STAGES):
            scores = tl.dot(q_tile, tl.trans(tl.load(k + at_keys + start * to_row)))
            if masked == 1:
                scores = tl.where(row[:, None] >= (start + key)[None, :], scores, float("-inf"))
            raised = tl.maximum(most, tl.max(scores, 1) * scale)
            weights = tl.exp2(scores * scale - raised[:, None])
            rescale = tl.exp2(most - raised)
            total = total * rescale + tl.sum(weights, 1)
            v_tile = tl.load(v + at_keys + start * to_row)
            acc = tl.dot(weights.to(v_tile.dtype), v_tile, acc * rescale[:, None])
            most = raised
    tl.store(lse + lane * queries + row, (most + tl.log2(total)) * 0.6931471805599453)
    tl.store(output + at_rows, (acc / total[:, None]).to(q_tile.dtype))


def plain(dtype: torch.dtype, dim: int, rows: int, keys: int, warps: int, stages: int) -> Source:
    pointers = dict.fromkeys(("q", "k", "v", "output"), "*" + _TYPES[dtype]) | {"lse": "*fp32", "scale": "fp32"}
    integers = dict.fromkeys(("to_batch", "to_head", "to_row", "heads", "queries"), "i32")
    constants = {"ROWS": rows, "KEYS": keys, "DIM": dim, "STAGES": stages}
    divisible = tuple(range(5)) + (6, 7, 8, 10)
    signature = pointers | integers | dict.fromkeys(constants, "constexpr")
    return Source(plain_kernel, signature, constants, divisible, {"num_warps": warps}, {"forward": (rows, keys)})


def _heuristics() -> Any:
    from torch._inductor.template_heuristics.triton import CUDAConfigHeuristic

    return CUDAConfigHeuristic()


def flex_forward(dtype: torch.dtype, dim: int) -> Source:
    with mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)):
        chosen = _heuristics().get_flex_attn_fwd_configs(dim, dtype)[0]
    blocks = {"BLOCK_M": chosen.block_m, "BLOCK_N": chosen.block_n, "OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": False}
    tile = {"forward": (chosen.block_m, chosen.block_n)}
    return _flex(("flex_attention", "utilities", "common"), {1}, dtype, dim, blocks, chosen)._replace(tile=tile)


def flex_backward(dtype: torch.dtype, dim: int) -> Source:
    """Both gradients in one kernel: some programs compute one, the others the other."""
    with mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)):
        chosen = _heuristics().get_flex_attn_bwd_configs(dim, dtype)[0]
    blocks = {f"BLOCK_{x}": getattr(chosen, f"block_{x.lower()}") for x in ("M1", "N1", "M2", "N2")} | {"WRITE_DQ": True}
    tile = {"query gradient": (chosen.block_m2, chosen.block_n2), "key gradient": (chosen.block_m1, chosen.block_n1)}
    return _flex(("flex_backwards", "utilities"), {2}, dtype, dim, blocks, chosen)._replace(tile=tile)


def _flex(files: tuple[str, ...], masks: set[int], dtype: torch.dtype, dim: int, blocks: dict[str, Any], chosen: Any) -> Source:
    """Compiles with a causal block mask, no score_mod and static shapes, as torch does for a first call."""
    from torch._inductor.kernel.flex import common

    text = "\n".join(common.load_flex_template(file) for file in files)
    constants = blocks | {
        "PRESCALE_QK": False, "ROWS_GUARANTEED_SAFE": False, "BLOCKS_ARE_CONTIGUOUS": False, "IS_DIVISIBLE": True,
        "SAFE_HEAD_DIM": True, "QK_HEAD_DIM": dim, "QK_HEAD_DIM_ROUNDED": dim, "V_HEAD_DIM": dim, "V_HEAD_DIM_ROUNDED": dim,
        "SM_SCALE": dim**-0.5, "GQA_SHARED_HEADS": 1, "HAS_FULL_BLOCKS": True, "FLOAT32_PRECISION": "'ieee'",
        "SPARSE_Q_BLOCK_SIZE": 128, "SPARSE_KV_BLOCK_SIZE": 128, "INDEX_DTYPE": "tl.int32",
    }  # fmt: skip
    arguments: list[str] = []
    module = _module(_rendered(text, masks, dim, constants, arguments))
    kernel = module.flex_kernel
    signature = {name: _type_of(name, dtype) for name in arguments}
    options = {"num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
    return Source(kernel, signature, {}, tuple(range(len(signature))), options, {})


def _type_of(name: str, dtype: torch.dtype) -> str:
    if name in ("arg_LSE", "arg_DELTA", "arg_MAX"):
        return "*fp32"
    return "*i32" if name.endswith(("_BLKS", "_IDX")) else "*" + _TYPES[dtype]


def _rendered(text: str, masks: set[int], dim: int, constants: dict[str, Any], arguments: list[str]) -> str:
    """Returns the template's source with torch's code generator's replacements."""
    blocks = LENGTH // 128
    strides = {"NUM_BLKS": (blocks, blocks, 1), "IDX": (blocks * blocks, blocks * blocks, blocks, 1)}

    def stride_of(name: str, index: int | None = None) -> str:
        kind = next((kind for kind in strides if name.endswith(kind)), None)
        stride = strides[kind] if kind else (HEADS * LENGTH * dim, LENGTH * dim, dim, 1)
        return ", ".join(map(str, stride)) if index is None else str(stride[index])

    def size_of(name: str, index: int) -> str:
        return str((1, 1, blocks, blocks)[index] if name.endswith(("_BLKS", "_IDX")) else (4, HEADS, LENGTH, dim)[index])

    def kernel(*names: str) -> str:
        arguments.extend([*(f"arg_{name}" for name in names), "arg_OUT"])
        named = [f"{name} = arg_{name}" for name in names]
        lines = [f"def flex_kernel({', '.join(arguments)}):", *defines().splitlines(), *named]
        return "@triton.jit\n" + "\n    ".join(lines)

    def defines() -> str:
        return "\n".join(f"{name}: tl.constexpr = {value}" for name, value in constants.items())

    def modified(subgraph_number: int, output_name: str | None, out: str = "", **given: Any) -> str:
        if output_name is None:
            return "pass"
        if subgraph_number in masks:
            return f"{output_name} = {given['m']} >= {given['n']}"
        return f"{output_name} = {out or given['grad_score_mod']}"

    def stored(indices: tuple[str, ...], value: str, mask: str, indent_width: int = 4, **_: Any) -> str:
        offset = " + ".join(f"{index} * {step}" for index, step in zip(indices, (HEADS * LENGTH * dim, LENGTH * dim, dim, 1)))
        return f"tl.store(arg_OUT + {offset}, {value}, {mask})"

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["indent_except_first"] = lambda x, count: x.replace("\n", "\n" + "    " * count)
    body = environment.from_string(text).render(
        def_kernel=kernel, gen_argdefs=lambda: ", ".join(arguments), gen_defines=defines, size=size_of, stride=stride_of,
        modification=modified, store_output=stored, USE_TMA=False, HAS_FULL_BLOCKS=True,
    )  # fmt: skip
    return "import triton\nimport triton.language as tl\n\n\n" + body


def _module(source: str) -> Any:
    path = Path(tempfile.mkdtemp(prefix="flex-")) / "flex_kernels.py"  # Triton reads a kernel's source from its file
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("flex_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
