"""The package's folders are layers: imports, also those inside functions, go to lower ones."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import isentrope

# From the bottom up. A folder covers its modules, unless they have a line of their own.
LAYERS = (
    ("_core.after_import", "_core.files", "_core.libraries", "_core.library", "_core.values"),
    ("rules", "rule_constructors", "statistics"),
    ("_core",),
    ("states",),
    ("distributed",),
    ("caches", "functions", "key_statistics"),
    ("sdpa", "ssmax"),
    ("gpu.kernels",),
    ("gpu",),
    ("hf",),
    ("models", "vllm"),
    ("commands",),
    ("jax",),
    ("_pytorch",),
    ("",),  # the package itself
    ("__main__",),
)
ROOT = Path(isentrope.__file__).parent


def name_of(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(file): file.read_text() for file in ROOT.rglob("*.py") if file.exists()}
SOURCES |= {name_of(file): "" for file in ROOT.rglob("*.pyi")}  # declarations, which import what they name


def imported(source):
    """Returns the modules of the package that a source imports, at any place."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports have the whole path"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(path):
    """Returns the longest prefix of a path that is a module of the package; None outside of it."""
    top, *parts = path.split(".")
    while top == "isentrope":
        if ".".join(parts) in SOURCES:
            return ".".join(parts)
        parts.pop()
    return None


IMPORTS = {
    name: {module for path in imported(source) if (module := module_of(path)) not in (None, name)}
    for name, source in SOURCES.items()
}


def layer_of(name):
    places = {entry: index for index, layer in enumerate(LAYERS) for entry in layer}
    parts = name.split(".")
    ways = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next(places[way] for way in ways if way in places) if name else places[""]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_imports_go_downwards(name):
    upward = [module for module in IMPORTS[name] if layer_of(module) > layer_of(name)]
    assert upward == []


def test_no_imports_go_round():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_the_walk_finds_imports_where_they_are():
    assert {"functions", "gpu.operators", "models.calibrate", "_core.dtensor"} <= IMPORTS["_pytorch"]
    assert "distributed.functions" in {module for name in IMPORTS["functions"] for module in (name, *IMPORTS[name])}
    assert list(imported("def f():\n    from isentrope.hf import rope\n    import isentrope.gpu")) == [
        "isentrope.hf.rope", "isentrope.gpu",
    ]  # fmt: skip
    assert module_of("isentrope.hf.rope.parse") == "hf.rope" and module_of("torch.nn") is None
