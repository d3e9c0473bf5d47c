"""Reads and writes whole files for the commands, with errors that name them."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any

from isentrope._core.libraries import path_of

_MOST_FROM_PIPE = 256 << 20  # anything but a regular file might never end


def name_of(path: Path) -> str:
    """Returns the path as text for JSON; a file name may be any bytes."""
    return os.fsencode(path.name).decode(errors="replace")


def read_text(path: Path) -> str:
    """Returns the file's content as UTF-8. Raises OSError if it is unreadable, ValueError if it may be endless."""
    try:
        with path.open("rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            text = file.read(-1 if regular else _MOST_FROM_PIPE + 1)
    except OSError as error:
        raise OSError(f'cannot read "{path}": {error.strerror}') from error
    if not regular and len(text) > _MOST_FROM_PIPE:
        raise ValueError(f"{path} must hold at most 256 MiB, because it is not a regular file; got more")
    return text.decode(errors="replace")


def check_output(path: Path) -> None:
    """Creates the folder and raises OSError if the file clearly cannot be written, before long work starts."""
    _call("isentrope_require_writable", path)


def write_text(path: Path, text: str) -> None:
    """Writes `text` as the file's content with the library (src/files/writing.h). Raises OSError."""
    if sys.stdout is not None:
        sys.stdout.flush()  # keeps the order of output
    data = text.encode()
    _call("isentrope_write_file", path, data, ctypes.c_size_t(len(data)))


@cache
def _library() -> Any:
    return ctypes.CDLL(str(path_of("isentrope_operators")))


def _call(name: str, path: Path, *arguments: Any) -> None:
    function = getattr(_library(), name)
    function.restype = ctypes.c_char_p
    if (message := function(os.fsencode(path), *arguments)) is not None:
        raise OSError(os.fsdecode(message))
