"""Modules renamed in version 0.2: the old names work with a warning."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

MOVED = {
    "isentrope.calibrate_command": "isentrope.commands.calibrate",
    "isentrope.calibration": "isentrope.models.calibrate",
    "isentrope.check_command": "isentrope.commands.check",
    "isentrope.drop_in": "isentrope.sdpa.drop_in",
    "isentrope.evaluate_command": "isentrope.commands.evaluate",
    "isentrope.evaluation": "isentrope.models.evaluate",
    "isentrope.heads": "isentrope.models.heads",
    "isentrope.inspect_command": "isentrope.commands.inspect",
    "isentrope.inspection": "isentrope.models.inspect",
    "isentrope.monitor": "isentrope.models.monitor",
    "isentrope.retrieval": "isentrope.models.retrieval",
    "isentrope.rope": "isentrope.hf.rope",
}


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_new(module.__name__))

    def get_code(self, name: str) -> CodeType:
        """Supports python -m."""
        new = _new(name)
        return importlib.util.find_spec(new).loader.get_code(new)


def _new(old: str) -> str:
    warnings.warn(f"{old} is {MOVED[old]} now: the old name ends with version 0.3", DeprecationWarning, stacklevel=3)
    return MOVED[old]


sys.meta_path.append(_Finder())  # added last, so that it is asked only for modules that no other finder has
