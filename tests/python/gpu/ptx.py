"""Reads the PTX of a compiled kernel: its instructions, and what their operands are computed from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from src.gpu.compiling import Launch, Target, stages_until

_INSTRUCTION = re.compile(r"^\s*(@!?%p\d+\s+)?([a-z][\w.:]*)\s+(.*)$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


class Instruction(NamedTuple):
    """An instruction: whether a predicate may skip it, its name with modifiers, and its operands as written."""

    predicated: bool
    name: str
    operands: tuple[str, ...]

    @property
    def targets(self) -> list[str]:
        """Registers that it writes, unless it is a store."""
        return re.findall(r"%\w+", self.operands[0]) if self.operands else []


class Code(NamedTuple):
    """Instructions in their order, and the first that writes each register."""

    instructions: list[Instruction]
    writers: dict[str, Instruction]

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.instructions}

    def source(self, instruction: Instruction, index: int = 1) -> Instruction | None:
        """Returns the instruction that computes an operand, through copies; None for other operands."""
        while index < len(instruction.operands):
            writer = self.writers.get(instruction.operands[index].strip())
            if writer is None or not writer.name.startswith("mov."):
                return writer
            instruction, index = writer, 1
        return None


def read(text: str) -> Code:
    """Parses PTX. Registers that a store names first count as read only."""
    instructions, writers = [], {}
    for line in re.split(r";|\n", text):
        if (match := _INSTRUCTION.match(line.split("//")[0])) is None:
            continue
        one = Instruction(match[1] is not None, match[2], tuple(x.strip() for x in _OPERAND.findall(match[3])))
        instructions.append(one)
        if not one.name.startswith(("st.", "bar.", "bra", "cp.async", "red.")):
            for register in one.targets:
                writers.setdefault(register, one)
    return Code(instructions, writers)


def of(launch: Launch, target: Target) -> Code:
    """Compiles a kernel to PTX, and no further."""
    return read(str(stages_until("ptx", launch, target)))


def count(code: Code, condition: Callable[[Instruction], Any]) -> int:
    return sum(bool(condition(one)) for one in code.instructions)
