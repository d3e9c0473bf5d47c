"""Finds the loops of a kernel compiled for an NVIDIA chip in its disassembly, and counts their instructions."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator
from typing import NamedTuple

_LABEL = re.compile(r"^(\.L_x_\d+):$")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][\w.]*)(.*?);")
_BRANCH = re.compile(r"`\((\.L_x_\d+)\)")  # a branch names its label in the last operand
# A product of a warp group: 64 rows by N columns, 16 deep for 16-bit types; and of a warp: rows x columns x depth.
_OF_WARP_GROUP = re.compile(r"^HGMMA\.(\d+)x(\d+)x(\d+)\.")
_OF_WARP = re.compile(r"^HMMA\.(16)(8)(8|16)\.")


class Loop(NamedTuple):
    """An innermost loop with tile products, as one warp runs it once. `kinds` counts its instructions by opcode,
    without modifiers; `products` those of tensor cores by rows, columns and depth, for four warps or for one."""

    instructions: int
    kinds: dict[str, int]
    products: dict[tuple[int, int, int], int]
    warps_a_product: int

    @property
    def fences(self) -> int:
        """Number of places where a warp group starts or waits for products, which do not overlap across them."""
        return self.kinds.get("WARPGROUP", 0)

    @property
    def spills(self) -> int:
        return self.kinds.get("LDL", 0) + self.kinds.get("STL", 0)

    @property
    def operations(self) -> float:
        """Multiplications and additions of tensor cores, for each warp."""
        return sum(2 * m * n * k * count for (m, n, k), count in self.products.items()) / self.warps_a_product

    @property
    def narrowest(self) -> int:
        """Columns of the narrowest product."""
        return min(n for _, n, _ in self.products)


def instructions(code: str) -> Iterator[tuple[str, str | None]]:
    """Yields opcodes with modifiers, and labels of branches, in the order of nvdisasm -c; labels as ("", label)."""
    for line in code.splitlines():
        if label := _LABEL.match(line):
            yield "", label[1]
        elif match := _INSTRUCTION.match(line):
            target = _BRANCH.search(match[2])
            yield match[1], target[1] if target else None


def loops(code: str) -> list[Loop]:
    """Returns the innermost loops with products in code order: from a label to a branch back to it."""
    listed = list(instructions(code))
    labels = {label: index for index, (word, label) in enumerate(listed) if not word}
    spans = [(labels[to], index) for index, (word, to) in enumerate(listed) if word.startswith("BRA") and labels.get(to, index) < index]
    multiply = [span for span in spans if any(_product(word) for word, _ in listed[slice(*span)])]
    innermost = [
        (first, last) for first, last in multiply
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in multiply)
    ]  # fmt: skip
    return [_loop([word for word, _ in listed[first : last + 1] if word]) for first, last in sorted(innermost)]


def _product(word: str) -> tuple[int, int, int] | None:
    match = _OF_WARP_GROUP.match(word) or _OF_WARP.match(word)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _loop(words: list[str]) -> Loop:
    products = collections.Counter(product for word in words if (product := _product(word)))
    warps = 4 if any(word.startswith("HGMMA") for word in words) else 1
    return Loop(len(words), dict(collections.Counter(word.partition(".")[0] for word in words)), dict(products), warps)
