"""Finds the package's compiled libraries."""

from __future__ import annotations

import sys
from pathlib import Path


def path_of(library: str) -> Path:
    """Returns the path of a library of the package. Raises ImportError if it is missing."""
    folders = sys.modules[__package__.partition(".")[0]].__path__
    # In an editable installation sources and libraries are apart, so each folder of the package is searched.
    for folder in folders:
        path = Path(folder) / f"lib{library}.so"
        if path.exists():
            return path
    raise ImportError(f"isentrope: no lib{library}.so in {list(folders)}; pip install . again")
