"""Programs of the repository, which are no modules of a package."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]


def loaded(path: str) -> Any:
    """Imports a program by its path in the repository; it may import those next to it."""
    file = ROOT / path
    loader = importlib.machinery.SourceFileLoader(file.stem, str(file))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(file.stem, loader))  # type: ignore[arg-type]
    with mock.patch.object(sys, "path", [str(file.parent), *sys.path]):
        loader.exec_module(module)
    return module
