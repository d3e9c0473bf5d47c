"""Delays work until a module is imported, so that this package need not import it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(module: str, work: Callable[[], None]) -> None:
    """Calls `work` after `module` is imported; at once if it is already."""
    if module in sys.modules:
        work()
    else:
        sys.meta_path.insert(0, _Finder(module, work))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, work: Callable[[], None]) -> None:
        self._module, self._work = module, work

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_work(module: ModuleType) -> None:
                run(module)
                self._work()

            spec.loader.exec_module = run_and_work  # type: ignore[method-assign]
        return spec
