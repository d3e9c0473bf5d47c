"""Common parts of the commands: arguments, progress, results and exit status."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from isentrope._core.files import check_output, read_text, write_text

STDOUT = Path("-")


def put(text: str, end: str = "\n") -> None:
    """Prints on standard output. Raises OSError if the text is lost, as far as known before `_flush`."""
    try:
        print(text, end=end)
    except OSError as error:
        raise _lost(error) from error


def _flush() -> None:
    """Raises OSError if printed text was lost, which Python would report after the exit status is set."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards what remains in the buffer
        raise _lost(error) from error


def _lost(error: OSError) -> OSError:
    return OSError(f"cannot write standard output: {error.strerror}")


class Parser(argparse.ArgumentParser):
    """Argument parser that raises errors, so that commands handle them like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Passes "--" on. Before Python 3.13 argparse removes it anywhere and leaves an option an empty list."""
        for word in sys.argv[1:] if args is None else args:
            if word.startswith("--") and word.endswith("=--"):
                self.error(f"argument {word[:-3]}: a value is needed; got --")
        return super().parse_known_args(args, namespace)

    def print_help(self, file: Any = None) -> None:
        """Raises OSError if the help cannot be written; argparse ignores that."""
        put(self.format_help(), end="")

    def add_model_and_text(self, text: str, **options: Any) -> None:
        self.add_argument(
            "model", type=Path, metavar="MODEL", help="a folder written by save_pretrained, or a GGUF file"
        )
        self.add_argument("--text", type=Path, required=True, metavar="FILE", help=text, **options)

    def add_dtype_and_resume(self) -> None:
        self.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto",
                          help="type of weights and cache (auto: bfloat16 if the processor multiplies it, else float32)")  # fmt: skip
        self.add_argument("--resume", type=Path, metavar="FILE", help="save finished passages in FILE, and continue from them")

    def add_json(self) -> None:
        self.add_argument("--json", type=Path, nargs="?", const=STDOUT, metavar="FILE",
                          help="write the result as JSON; without FILE, or with -, on standard output")  # fmt: skip


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Returns an argument type for integers in [least, most]."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:  # also for more digits than Python converts
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"a whole number from {least} to {most} is needed; got {text:.60}")
        return value

    return number


# Limits beyond any sensible use, so that loops end and sums do not overflow.
text_count = whole_number(1, 10_000)
token_count = whole_number(1, 100_000_000)


class Outputs:
    """Destinations of a command's results. Created before the model runs, so that unwritable ones are reported at
    once."""

    def __init__(self, *results: Path | None, page: Path | None, resume: Path | None = None) -> None:
        self._results = [path for path in results if path not in (None, STDOUT)]
        self._prints = STDOUT in results
        self._page = page
        for path in (*self._results, page, resume):
            if path is not None:
                check_output(path)
        self._program = None if page is None else program("isentrope", "makes the page")

    def write(self, result: dict[str, Any], readable: str) -> None:
        """Writes the result to its destination, or prints `readable` on standard output; writes the page."""
        text = json.dumps(result)
        put(text if self._prints else readable)
        for path in self._results:
            write_text(path, text)
        if self._page is not None:
            write_text(self._page, self._page_of(text))

    def _page_of(self, result: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            source, page = Path(folder) / "result.json", Path(folder) / "report.html"
            source.write_text(result)
            run = subprocess.run([str(self._program), "report", source, "--output", page], capture_output=True, text=True)
            if run.returncode:
                raise ValueError(f"the report cannot be made: {run.stderr or run.returncode}")
            return read_text(page)


def program(name: str, does: str) -> str:
    """Returns the path of one of the project's programs. Raises FileNotFoundError."""
    # Without a command, as in `python -c`, the name of the program is no file.
    beside = [os.path.dirname(os.path.abspath(sys.argv[0]))] if os.path.isfile(sys.argv[0]) else []
    places = os.pathsep.join([sysconfig.get_path("scripts"), *beside, os.environ.get("PATH", os.defpath)])
    path = shutil.which(name, path=places)
    if path is None:
        raise FileNotFoundError(f"{name}, which {does}, must be next to this command or on PATH; got none")
    return path


def _say(text: str, end: str = "\n") -> None:
    """Prints on standard error, ignoring a full disk. On a terminal it replaces the current line."""
    with contextlib.suppress(OSError):
        print(("\x1b[K" if sys.stderr.isatty() else "") + text, end=end, file=sys.stderr, flush=True)


def progress_of(command: str) -> Callable[[str, int, int], None]:
    """Returns a progress function: on a terminal it rewrites one line, otherwise it prints a line for each step."""

    def show(what: str, done: int, all_: int) -> None:
        _say(f"[{command}] {what}: {done} of {all_}", end="\r" if sys.stderr.isatty() and done < all_ else "\n")

    return show


def described(error: BaseException) -> str:
    """Returns an error as one line, with its type unless it is meant for users."""
    known = isinstance(error, (ImportError, OSError, ValueError))
    return ("" if known else type(error).__name__ + ": ") + " ".join(str(error).split())


def command(
    name: str, parser: Callable[[], Parser], body: Callable[[argparse.Namespace], int | None], module: str
) -> Callable[..., int]:
    """Returns the `main` of a command, which runs body(options) and returns its exit status: 0 for None; 2 after an error,
    printed as one line; 130 after Ctrl-C, with the KeyboardInterrupt's text if it has one.

    module: __name__ of the caller; if that is started as a program, runs it."""

    def main(arguments: list[str] | None = None) -> int:
        sys.stderr = sys.stderr or open(os.devnull, "w")
        options = None
        try:
            if sys.stdout is None:
                raise _lost(OSError(errno.EBADF, "it is closed"))
            try:
                options = parser().parse_args(arguments)
                return body(options) or 0
            finally:
                _flush()
        except KeyboardInterrupt as stop:
            resume = getattr(options, "resume", None)
            kept = str(stop) or (f"finished passages are kept in {resume}" if resume else "")
            _say(f"isentrope {name}: interrupted{f'; {kept}' if kept else ''}")
            return 130
        except Exception as error:
            _say(f"isentrope {name}: {described(error)}")
            return 2

    if module == "__main__":
        sys.exit(main())
    return main
