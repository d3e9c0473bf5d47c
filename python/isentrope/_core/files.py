"""Whole files in and out, as the commands read and write them, with errors that name them."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from pathlib import Path

# What is no regular file might never end.
_MOST_FROM_PIPE = 256 << 20
_MOST_LINKS = 40  # as the kernel has it
_DESCRIPTOR = re.compile(r"/(?:proc/self|dev)/fd/(\d+)")


def name_of(path: Path) -> str:
    """As JSON can hold it: a file's name may be any bytes."""
    return os.fsencode(path.name).decode(errors="replace")


def read_text(path: Path) -> str:
    """All of the file, as UTF-8. Raises OSError when it cannot be read, ValueError when it may be endless."""
    try:
        with path.open("rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            text = file.read(-1 if regular else _MOST_FROM_PIPE + 1)
    except OSError as error:
        raise OSError(f'cannot read "{path}": {error.strerror}') from error
    if not regular and len(text) > _MOST_FROM_PIPE:
        raise ValueError(f"{path} must hold at most 256 MiB, being no regular file; got more")
    return text.decode(errors="replace")


def check_output(path: Path) -> None:
    """Before work starts: what cannot be written later is an error now. Makes the folder. Raises OSError."""
    try:
        to = _destination(path)
        if isinstance(to, int):
            os.fstat(to)
        elif to.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            special = to.exists() and not to.is_file()
            if not os.access(to if special else to.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritable(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Makes `text` what the file holds. Raises OSError.

    A regular file, also one that a symbolic link leads to, is replaced at once: a reader, a crash or a full disk leaves
    the old one or the new one. Anything else (a device, a pipe, /dev/stdout) is written as it is.
    """
    try:
        to = _destination(path)
        if isinstance(to, int):
            if sys.stdout is not None:
                sys.stdout.flush()  # what was printed before comes before
            _write(os.dup(to), text)
        elif to.exists() and not to.is_file():
            _write(os.open(to, os.O_WRONLY), text)
        else:
            _replace(to, text)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OSError:
    return OSError(f'cannot write "{path}": {error.strerror or error}')


def _destination(path: Path) -> Path | int:
    """What the links of a path's last component lead to, or the descriptor of this process where that is one: opened by
    its name, a file behind /dev/stdout would be written from its beginning, and a pipe has no name at all."""
    for _ in range(_MOST_LINKS):
        if descriptor := _DESCRIPTOR.fullmatch(os.path.abspath(path)):
            return int(descriptor[1])
        if not path.is_symlink():
            return path
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
        if path.exists():
            os.fchmod(file, stat.S_IMODE(path.stat().st_mode))
        _write(file, text)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _write(descriptor: int, text: str) -> None:
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fsync(descriptor)
