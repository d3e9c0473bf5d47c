"""isentrope inspect MODEL --text FILE: the command."""

from __future__ import annotations

import argparse
import json
import math
import os
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any


# More than tokenizers take for a token, over a stretch of text.
_CHARACTERS_A_TOKEN = 16
# What is no regular file might never end.
_MOST_FROM_PIPE = 256 << 20


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {value}")
    return value


class _Parser(argparse.ArgumentParser):
    def print_help(self, file: Any = None) -> None:
        """argparse itself says nothing where the help cannot be written."""
        print(self.format_help(), end="", file=file)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="isentrope inspect",
        description="Entropy of every layer and head of a model against the number of keys a row sees.",
        epilog="example: isentrope inspect ./SmolLM2-135M --text novel.txt --output report.html",
    )
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="a folder as save_pretrained writes it, or a GGUF file"
    )
    parser.add_argument("--text", type=Path, required=True, metavar="FILE", help="what the model reads")
    parser.add_argument("--texts", type=_count, default=4, help="how many stretches of the file, evenly spread (4)")
    parser.add_argument("--max-length", type=_count, default=4096, help="tokens of each (4096)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result as JSON; - for standard output")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the report, one HTML file")
    return parser


def load(path: Path) -> tuple[Any, Any, bool]:
    """Model, tokenizer, and whether it is causal, of a folder or a GGUF file, on this machine alone.

    Raises ValueError when it is neither, when it cannot be loaded, or when it brings code of its own.
    """
    if path.is_dir() and not (path / "config.json").exists():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise ValueError(f"[inspect] MODEL must be a folder with config.json or a GGUF file; got {path}")
        path = files[0]
    if not path.exists():
        raise ValueError(f"[inspect] MODEL must exist; got {path}")
    # Without the option transformers asks on the terminal whether to run the code.
    folder, options = path, {"local_files_only": True, "trust_remote_code": False}
    if path.is_file():
        folder, options = path.parent, options | {"gguf_file": path.name}
    try:
        return _loaded(folder, options)
    except Exception as error:  # of a damaged file: from the readers of many formats, who raise what they like
        if "trust_remote_code" in str(error):
            reason = "one that brings code of its own, which is not run"
        else:
            reason = f"{type(error).__name__}: {_one_line(error)}"
        raise ValueError(f"[inspect] MODEL must be one that transformers loads; got {reason}") from error


def _loaded(folder: Path, options: dict[str, Any]) -> tuple[Any, Any, bool]:
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(folder, **options)
    causal = "gguf_file" in options or any("CausalLM" in name for name in config.architectures or [])
    kind = AutoModelForCausalLM if causal else AutoModel
    tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    if "gguf_file" in options:
        tokenizer.add_bos_token = _begins_texts(folder / options["gguf_file"])
    return kind.from_pretrained(folder, **options), tokenizer, causal


def _begins_texts(file: Path) -> bool:
    """Whether the model of a GGUF file was trained on texts that begin with a token of their own, which transformers
    does not take over: Gemma reads badly without."""
    from gguf import GGUFReader

    field = GGUFReader(file).fields.get("tokenizer.ggml.add_bos_token")
    return field is not None and bool(field.contents())


def stretches(text: Any, count: int, length: int) -> list[Any]:
    """`count` runs of at most `length` characters or tokens, evenly spread."""
    length = min(length, len(text))
    gap = (len(text) - length) / max(count - 1, 1)
    starts = sorted({int(i * gap) for i in range(count)})
    return [text[start : start + length] for start in starts]


def readings(texts: list[Any], length: int, causal: bool) -> list[Any]:
    """What the model reads. The rows of a causal model see every n up to `length`; those of an encoder see a whole
    text, which therefore is read at `length` and at each half of it down to 16 tokens."""
    lengths = [length]
    while not causal and lengths[-1] >= 32:
        lengths.append(lengths[-1] // 2)
    return [text[:n] for n in lengths for text in texts]


def _tokenised(tokenizer: Any, text: str, count: int, length: int) -> list[Any]:
    """Evenly spread stretches of the text, each of which begins as the tokenizer has texts begin. Tokenizers are slower
    than they look: no more than those can need."""

    def tokens(text: str) -> Any:
        return tokenizer(text, return_tensors="pt", verbose=False)["input_ids"][0]

    room = _CHARACTERS_A_TOKEN * length
    if len(text) <= count * room:
        from torch import cat

        whole = tokens(text)
        first = whole[: int(whole[:1].tolist() == [getattr(tokenizer, "bos_token_id", None)])]
        return [cat([first, part]) for part in stretches(whole[len(first) :], count, length - len(first))]
    return [tokens(run)[:length] for run in stretches(text, count, room)]


def _longest(model: Any, wanted: int) -> int:
    known = getattr(model.config, "max_position_embeddings", None)
    return min(wanted, known) if known else wanted


def _table(result: Any) -> str:
    shown = [f"{'n':>8} {'entropy':>8} {'of ln n':>8} {'1/C':>8} {'max z':>8}"]
    means = {name: x.nanmean((0, 1)).tolist() for name, x in result.mean.items()}
    for i, n in enumerate(result.n):
        share = means["entropy"][i] / max(math.log(n), 1e-9)
        row = (n, means["entropy"][i], share, means["effective_keys"][i], means["max_logit"][i])
        shown.append(" ".join(f"{x:8.3f}" if j else f"{x:8.0f}" for j, x in enumerate(row)))
    return "\n".join(shown)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _text(path: Path) -> str:
    """All of the file. Raises ValueError when it is endless, or nothing."""
    with path.open("rb") as file:
        regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        text = file.read(-1 if regular else _MOST_FROM_PIPE + 1)
    if not regular and len(text) > _MOST_FROM_PIPE:
        raise ValueError(f"[inspect] {path} must hold at most 256 MiB, being no regular file; got more")
    return text.decode(errors="replace")


def _write(path: Path, text: str) -> None:
    """Replaces a regular file, also behind a symbolic link, at once; anything else is written as it is."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _make_folders(options: argparse.Namespace) -> None:
    """Before the model runs: what cannot be written later is an error now."""
    for path in (options.json, options.output):
        if path is None or str(path) == "-":
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        special = path.exists() and not path.is_file()
        if path.is_dir() or not os.access(path if special else path.parent, os.W_OK):
            raise ValueError(f"[inspect] {path} must be a file that can be written; got a folder, or no right to write")


def _report(result: dict[str, Any], output: Path) -> None:
    """The page is made by `isentrope report`, which lies beside this command."""
    program = Path(sysconfig.get_path("scripts")) / "isentrope-report"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "inspection.json"
        source.write_text(json.dumps(result))
        command = [str(program) if program.exists() else "isentrope-report", str(source), "--output", str(output)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _progress(done: int, all_: int) -> None:
    terminal = sys.stderr.isatty()
    start, end = ("\r" if terminal else ""), ("" if terminal and done < all_ else "\n")
    print(f"{start}[inspect] text {done} of {all_}", end=end, file=sys.stderr, flush=True)


def _name(path: Path) -> str:
    """As JSON can hold it: a file's name may be any bytes."""
    return os.fsencode(path.name).decode(errors="replace")


def _inspect(options: argparse.Namespace) -> None:
    from isentrope.inspection import inspect

    text = _text(options.text)
    _make_folders(options)
    model, tokenizer, causal = load(options.model)
    length = _longest(model, options.max_length)
    texts = readings(_tokenised(tokenizer, text, options.texts, length), length, causal)
    result = inspect(model, texts, max_length=length, progress=_progress)
    found = result.to_dict() | {"model": _name(options.model), "text": _name(options.text)}
    if str(options.json) == "-":
        print(json.dumps(found))
    else:
        print(_table(result))
        print(f"rule today: {result.rule.rule.text}; for constant entropy: {result.suggestion}")
        print(f"collapsed heads: {len(result.collapsed())}, blurred heads: {len(result.blurred())}")
        if options.json:
            _write(options.json, json.dumps(found))
    if options.output:
        _report(found, options.output)


def _flush() -> None:
    """Raises OSError where what was printed is lost, which Python itself would say after the exit status is set."""
    if sys.stdout is None:
        raise OSError("cannot write standard output: it is closed")
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still in the buffer goes there
        raise OSError(f"cannot write standard output: {error.strerror}") from error


def main(arguments: list[str] | None = None) -> int:
    """Exits 0, or 2 with one line on standard error."""
    try:
        try:
            _inspect(_parser().parse_args(arguments))
        finally:
            _flush()
    except Exception as error:  # whatever a model does, the command ends in one line
        known = isinstance(error, (ImportError, OSError, ValueError))
        print(f"isentrope inspect: {'' if known else type(error).__name__ + ': '}{_one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
