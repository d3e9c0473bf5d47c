"""Checks numbers and choices of the caller, and prints them for errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_LONGEST_SHOWN = 120


def is_integer(value: object) -> bool:
    """Returns whether the value is an integer, including one that torch traces."""
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Returns the value as text for errors."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def check_choice(function: str, name: str, value: Any, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"[{function}] {name} must be one of {', '.join(choices)}; got {shown(value)}")


def checked_integer(function: str, name: str, value: Any) -> int:
    if not is_integer(value):
        raise TypeError(f"[{function}] {name} must be an integer; got {shown(value)}")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"[{function}] {name} must be an integer of 64 bits; got {shown(value)}")
    return value


def check_count(function: str, name: str, value: Any, least: int) -> None:
    if checked_integer(function, name, value) < least:
        raise ValueError(f"[{function}] {name} must be at least {least}; got {shown(value)}")


def check_bool(function: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"[{function}] {name} must be a bool; got {shown(value)}")


def checked_number(function: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"[{function}] {name} must be a number; got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"[{function}] {name} must be a number that a double holds; got {shown(value)}") from None
