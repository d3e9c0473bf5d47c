"""ggml's cases of FLASH_ATTN_EXT, which are C++ loops in a test of llama.cpp: they are compiled and print their
arguments.

Inputs have the same distributions and layouts as there. The result is compared with the definition by ggml's measure
and bound.
"""

from __future__ import annotations

import functools
import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

import isentrope
from case import Case, normalized_error
from llama_sources import PACKAGE, sources

TITLE = f"FLASH_ATTN_EXT of ggml, in {PACKAGE.replace('==', ' ')}"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
MAX_ERROR = 5e-4
"""max_nmse_err() of the test."""
FIELDS = ("hsk", "hsv", "nh", "nr23", "kv", "nb", "mask", "sinks", "max_bias", "logit_softcap", "prec", "type_K", "type_V",
          "permute", "kv_view", "v_is_view_of_k")  # fmt: skip

STAND_IN = """
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>
enum ggml_prec {{ GGML_PREC_DEFAULT, GGML_PREC_F32 }};
enum ggml_type {{ {types} }};
static const char* const kTypes[] = {{ {names} }};
struct test_case {{}};
struct test_flash_attn_ext : test_case {{
  test_flash_attn_ext({parameters}) {{
    std::printf("[%d, %d, %d, [%d, %d], %d, %d, %d, %d, %g, %g, %d, \\"%s\\", \\"%s\\", [%d, %d, %d, %d], %d, %d]\\n", (int)hsk, (int)hsv,
                (int)nh, (int)nr23[0], (int)nr23[1], (int)kv, (int)nb, mask, sinks, max_bias, logit_softcap, prec, kTypes[type_K],
                kTypes[type_V], permute[0], permute[1], permute[2], permute[3], kv_view, v_is_view_of_k);
  }}
}};
int main() {{
  std::vector<std::unique_ptr<test_case>> test_cases;
{loops}
}}
"""


def loops_of(text: str) -> str:
    """Returns the statements of make_test_cases_eval() that make cases of flash attention."""
    body = re.search(r"make_test_cases_eval\(\) \{\n(.*?)\n\}\n", text, re.DOTALL)[1]
    # A statement begins at four spaces, and continues while lines are indented further or close it.
    statements = re.findall(r"^    \S[^\n]*(?:\n(?:     [^\n]*|    \}|[ ]*$))*", body, re.MULTILINE)
    return "\n".join(x for x in statements if "test_flash_attn_ext(" in x)


def program(text: str) -> str:
    loops = loops_of(text)
    parameters = re.search(r"    test_flash_attn_ext\((int64_t hsk.*?)\)\s*:", text, re.DOTALL)[1]
    types = sorted(set(re.findall(r"GGML_TYPE_\w+", loops + parameters)))
    names = ", ".join(f'"{x.removeprefix("GGML_TYPE_")}"' for x in types)
    return STAND_IN.format(types=", ".join(types), names=names, parameters=parameters, loops=loops)


def cases(folder: Path) -> Iterator[Case]:
    path, binary = folder / "ggml_cases.cc", folder / "ggml_cases"
    path.write_text(program((sources(folder) / "tests" / "test-backend-ops.cpp").read_text()))
    subprocess.run(["c++", "-std=c++20", "-w", "-o", binary, path], check=True)
    for line in subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines():
        given = dict(zip(FIELDS, json.loads(line), strict=True))
        quantized = {given["type_K"], given["type_V"]} - DTYPES.keys()
        left_out = "keys or values in a quantized type of ggml, which we have not" if quantized else ""
        yield Case(line, functools.partial(check, given), left_out)


def drawn(shape: tuple, dtype: torch.dtype, permute: list[int], view: bool) -> torch.Tensor:
    """Returns numbers uniform in -1 ... 1. permute: place in memory of each axis, counted from the last, as in ggml."""
    order = [3 - axis for axis in reversed(permute)]
    stored = [0] * 4
    for axis, size in enumerate(shape):
        stored[order[axis]] = size
    if view:
        stored[2] *= 2
    x = torch.empty(stored).uniform_(-1, 1).to(dtype)
    if view:
        x = x[:, :, : stored[2] // 2]
    return x.permute(order)


def mask_of(batch: int, queries: int, keys: int) -> torch.Tensor:
    """Returns numbers uniform in -1 ... 1, with blocks of 64 by 128 that are 0 or -inf."""
    mask = torch.empty(batch, 1, queries, keys).uniform_(-1, 1)
    for _ in range(int(0.2 * mask.numel() / (128 * 64))):
        b, i, j = (int(torch.randint(n, ())) for n in (batch, queries, keys))
        mask[b, 0, i : i + 64, j : j + 128] = -torch.inf if torch.rand(()) < 0.5 else 0.0
    return mask.half()


def slopes(heads: int, max_bias: float) -> torch.Tensor:
    """Returns ALiBi's factor of the mask for each head."""
    power = 2 ** math.floor(math.log2(heads))
    first, second = 2 ** (-max_bias / power), 2 ** (-max_bias / 2 / power)
    return torch.tensor([first ** (h + 1) if h < power else second ** (2 * (h - power) + 1) for h in range(heads)])


def check(given: dict) -> None:
    torch.manual_seed(0)
    (repeats, batch), kv_heads, keys, queries = given["nr23"], given["nh"], given["kv"], given["nb"]
    heads = kv_heads * repeats
    types = {name: DTYPES[given[name]] for name in ("type_K", "type_V")}
    q = drawn((batch, heads, queries, given["hsk"]), torch.float32, given["permute"], False)
    k = drawn((batch, kv_heads, keys, given["hsk"]), types["type_K"], given["permute"], given["kv_view"])
    if given["v_is_view_of_k"]:
        v = k[..., : given["hsv"]]
    else:
        v = drawn((batch, kv_heads, keys, given["hsv"]), types["type_V"], given["permute"], given["kv_view"])
    bias = None
    if given["mask"]:
        bias = mask_of(batch, queries, keys).float()
        if given["max_bias"]:
            bias = bias * slopes(heads, given["max_bias"])[:, None, None]
    sinks = torch.empty(heads).uniform_(-10, 10) if given["sinks"] else None
    # ggml's q is always float32; here it has the type of the cache, if k and v share one.
    dtype = k.dtype if k.dtype == v.dtype else torch.float32
    got = isentrope.attention(
        q.to(dtype), k.to(dtype), v.to(dtype), bias=bias, sinks=sinks, soft_cap=given["logit_softcap"], scale=given["hsk"] ** -0.5
    )
    error = normalized_error(got, by_definition(q, k, v, bias, sinks, given))
    assert error <= MAX_ERROR, f"normalized squared error {error:.1e}, allowed {MAX_ERROR:.0e}"


def by_definition(q, k, v, bias, sinks, given: dict) -> torch.Tensor:
    output = q.new_empty(*q.shape[:3], given["hsv"])
    repeats, cap = given["nr23"][0], given["logit_softcap"]
    for h in range(q.shape[1]):  # the scores of all heads at once take gigabytes
        z = q[:, h] @ k[:, h // repeats].float().transpose(-2, -1) * given["hsk"] ** -0.5
        if cap:
            z = cap * torch.tanh(z / cap)
        if bias is not None:
            z = z + bias.expand(-1, q.shape[1], -1, -1)[:, h]
        if sinks is not None:
            z = torch.cat([z, sinks[h].expand(*z.shape[:-1], 1)], -1)
        p = torch.softmax(z, -1).nan_to_num(0)[..., : k.shape[2]]  # a row that sees no key is 0
        output[:, h] = p @ v[:, h // repeats].float()
    return output
