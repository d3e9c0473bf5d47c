"""Finds the package's compiled libraries."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

    class Listed(tuple[Any, ...]):
        """A named tuple whose fields the library lists, as type checkers see it."""

        _fields: ClassVar[tuple[str, ...]]

        def __new__(cls, *fields: Any, **named: Any) -> Self: ...
        def __getattr__(self, name: str) -> Any: ...
        def _replace(self, **named: Any) -> Self: ...
        def _asdict(self) -> dict[str, Any]: ...


def path_of(library: str) -> Path:
    """Returns the path of a library of the package. Raises ImportError if it is missing."""
    folders = sys.modules[__package__.partition(".")[0]].__path__
    # In an editable installation sources and libraries are apart, so each folder of the package is searched.
    for folder in folders:
        path = Path(folder) / f"lib{library}.so"
        if path.exists():
            return path
    raise ImportError(f"isentrope: no lib{library}.so in {list(folders)}; pip install . again")


def name_in_python(name: str) -> str:
    """Renames what is a keyword of Python, such as lambda."""
    return f"{name}_" if keyword.iskeyword(name) else name
