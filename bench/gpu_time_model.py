"""How long a program of an attention kernel takes for one tile, on a streaming multiprocessor of an H100: a model, for
machines without one. What it assumes, all from NVIDIA's H100 whitepaper, the CUDA programming guide (compute capability
9.0) and the PTX manual:

- tensor cores: 4096 multiplications and additions of 16-bit numbers a clock, a product of 64 x N x 16 in N / 2 clocks;
- its operands out of shared memory at 128 bytes a clock: the first one, of 64 x 16, is counted as if it always lay there;
- four schedulers, each of which issues one instruction of a warp a clock;
- special functions (exp2 among them): 16 lanes a clock;
- 65536 registers, handed to warps by the 256; 227 KB of shared memory, of which 1 KB of each program is the system's; 64 warps;
- in one program, products and all else take turns, as the fences say; several programs fill each other's gaps.

Memory is not in it: keys and values of neighbouring programs come out of the second cache, loads run ahead of products,
and a tile's bytes take less time than its products from some 64 rows a program on.
"""

from __future__ import annotations

from typing import NamedTuple

from gpu_disassembly import Loop

FLOPS_A_CLOCK, BYTES_A_CLOCK = 4096, 128
REGISTERS, SHARED, WARPS = 65536, 227 << 10, 64


class Estimate(NamedTuple):
    """Clocks that a program takes for one round of its loop, what bounds it, how many programs share a multiprocessor, and
    which part of the tensor cores' peak that is."""

    clocks: float
    bound: str
    programs: int
    share: float


def programs_of(registers: int, shared: int, warps: int) -> int:
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * warps)
    return max(1, min(by_registers, SHARED // (shared + 1024), WARPS // warps))


def estimate(loop: Loop, registers: int, shared: int, warps: int) -> Estimate:
    programs = programs_of(registers, shared, warps)
    groups = warps / loop.warps_a_product
    flops = loop.operations * warps
    operands = groups * sum(2 * (m + n) * k * count for (m, n, k), count in loop.products.items())
    products, shared_memory = flops / FLOPS_A_CLOCK, operands / BYTES_A_CLOCK
    issued = loop.instructions * warps / 4
    special = loop.kinds.get("MUFU", 0) * warps * 32 / 16
    bounds = {
        "tensor cores": products, "issue slots": issued, "special functions": special, "shared memory": shared_memory,
        "one after the other": (max(products, shared_memory) + max(issued, special)) / programs,
    }  # fmt: skip
    bound = max(bounds, key=lambda name: bounds[name])
    return Estimate(bounds[bound], bound, programs, products / bounds[bound])
