#!/usr/bin/env python3
"""Writes the text of the note's experiment as tokens: English prose of Debian packages, as pieces of a BPE of 8192.

    tools/lab/note/corpus.py data/note

The packages are downloaded and unpacked under data/note/packages, and not installed; README.md names their licences. The
folder then holds train.npy and test.npy, tokens as uint16, bpe.model, and corpus.json, which describes them. A tenth of
the documents is held out whole as the test. A document is a file, a book of the Bible, or 20,000 characters of a
dictionary. A line that an earlier document has is left out. Needs apt-get, dpkg and the programs `bible` and `spm_train`
of the packages bible-kjv and sentencepiece. Takes about ten minutes; what is finished is not done again.
"""

import argparse
import gzip
import hashlib
import html
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PACKAGES = [
    "anarchism", "apache2-doc", "cmake-doc", "debian-reference-en", "dict-devil", "dict-foldoc", "dict-gcide", "dict-jargon",
    "dict-wn", "fortunes", "git-doc", "gnome-user-docs", "libreoffice-help-en-us", "linux-doc-6.1", "octave-doc",
    "perl-doc", "postgresql-doc-15", "python-django-doc", "python3.11-doc", "sqlite3-doc", "vim-doc",
]  # fmt: skip
VOCABULARY, PAD, UNKNOWN, END, MASK = 8192, 0, 1, 2, 3
SEED, HELD_OUT = 5, 0.1
DICTIONARY_PIECE = 20_000  # characters
FEWEST = 400  # characters of a document
LEARNED_FROM = 6  # the BPE learns from every sixth document of the training part

TAGS = re.compile(r"(?is)<(script|style|head|nav)[^>]*>.*?</\1>|<[^>]+>")
TRANSLATED = re.compile(
    r"/(ar|ca|cs|da|de|el|en[-_]GB|es|fa|fi|fr|hr|hu|id|it|ja|ko|lt|lv|nb|nl|nn|pl|pt|pt[-_]BR|ro|ru|sk|sl|sv|tr|uk|vi|zh|zh[-_]CN"
    r"|[a-z]{2}-[A-Z]{2}(?<!en-US))/"
)


def unpack(packages: Path) -> None:
    """Downloads and unpacks the packages that are not there yet."""
    packages.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        if (packages / name).exists():
            continue
        print(f"[corpus] {name}", flush=True)
        subprocess.run(["apt-get", "download", "-qq", name], cwd=packages, check=True)
        archive = next(packages.glob(f"{name}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, packages / f"{name}.part"], check=True)
        (packages / f"{name}.part").rename(packages / name)
        archive.unlink()


def read(path: Path) -> str:
    opened = gzip.open(path, "rt", encoding="utf-8", errors="replace") if path.suffix in (".gz", ".dz") else None
    with opened or open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def documents_of(path: Path) -> list[str]:
    """Returns the documents of a file; none if the file is not English prose."""
    name = path.name.removesuffix(".gz")
    if TRANSLATED.search(str(path)) or "/_sources/" in str(path):
        return []
    if name.endswith(".dict.dz"):
        return pieces(re.sub(r"[ \t]+", " ", read(path)), DICTIONARY_PIECE)
    if name.endswith((".html", ".xhtml", ".page")):
        return [prose(html.unescape(TAGS.sub(" ", read(path))))]
    if name.endswith((".txt", ".pod")) or ("/games/fortunes/" in str(path) and "." not in name):
        return [prose(read(path))]
    return []


def prose(text: str) -> str:
    """Returns the lines that are mostly words."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if len(line) > 30 and sum(c.isalpha() or c == " " for c in line) > 0.8 * len(line))


def books_of_the_bible() -> list[str]:
    verses = subprocess.run(["bible", "-f", "-l", "10000", "Gen1:1-Rev22:21"], capture_output=True, text=True, check=True)
    books: dict[str, list[str]] = {}
    for line in verses.stdout.splitlines():
        label, _, verse = line.partition(" ")
        books.setdefault(re.sub(r"\d+:\d+$", "", label), []).append(verse)
    return ["\n".join(book) for book in books.values()]


def documents(packages: Path) -> Iterator[str]:
    """Yields documents in a fixed order, without lines that were there before."""
    seen: set[str] = set()
    files = (path for path in sorted(packages.rglob("*")) if path.is_file() and not path.is_symlink())
    found = (document for path in files for document in documents_of(path))
    for document in (*books_of_the_bible(), *found):
        lines = [line for line in dict.fromkeys(line.strip() for line in document.split("\n")) if line and line not in seen]
        seen.update(lines)
        if sum(map(len, lines)) > FEWEST:
            yield " ".join(lines)


def learn_bpe(texts: list[str], model: Path) -> None:
    sample = model.with_suffix(".txt")
    # The trainer leaves out sentences longer than 4,192 bytes.
    sample.write_text("\n".join(piece for text in texts[::LEARNED_FROM] for piece in pieces(text, 1000)))
    subprocess.run(
        ["spm_train", f"--input={sample}", f"--model_prefix={model.with_suffix('')}", "--model_type=bpe",
         f"--vocab_size={VOCABULARY}", f"--pad_id={PAD}", f"--unk_id={UNKNOWN}", f"--eos_id={END}", "--bos_id=-1",
         "--control_symbols=[MASK]", "--minloglevel=1"], check=True)  # fmt: skip
    sample.unlink()


def encode(texts: list[str], model: Path) -> np.ndarray:
    """Returns the tokens of the texts in a row, each text followed by END."""
    lines = model.with_suffix(".lines")
    lines.write_text("".join(text + "\n" for text in texts))
    command = ["spm_encode", f"--model={model}", "--output_format=id", "--extra_options=eos", f"--input={lines}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as encoder:
        tokens = [np.array(line.split(), dtype=np.uint16) for line in encoder.stdout or ()]
    if encoder.returncode or len(tokens) != len(texts):
        raise RuntimeError(f"[corpus] spm_encode must encode {len(texts)} documents; got {len(tokens)}")
    lines.unlink()
    return np.concatenate(tokens)


def write(folder: Path) -> dict:
    """Writes the tokens and returns their description."""
    unpack(folder / "packages")
    print("[corpus] reading documents", flush=True)
    texts = list(documents(folder / "packages"))
    random.Random(SEED).shuffle(texts)
    held_out = round(HELD_OUT * len(texts))
    parts = {"test": texts[:held_out], "train": texts[held_out:]}
    print(f"[corpus] learning a BPE of {VOCABULARY} from {len(parts['train'])} documents", flush=True)
    learn_bpe(parts["train"], folder / "bpe.model")
    about = {"kind": "note's corpus", "vocabulary": VOCABULARY, "mask": MASK, "first_ordinary": MASK + 1, "parts": {}}
    for name, part in parts.items():
        print(f"[corpus] encoding the {name} part", flush=True)
        tokens = encode(part, folder / "bpe.model")
        np.save(folder / f"{name}.npy", tokens)
        about["parts"][name] = {"documents": len(part), "characters": sum(map(len, part)), "tokens": len(tokens),
                                "sha256": hashlib.sha256(tokens.tobytes()).hexdigest()}  # fmt: skip
    (folder / "corpus.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print the description of the corpus")
    options = parser.parse_args()
    known = options.folder / "corpus.json"
    about = json.loads(known.read_text()) if known.exists() else write(options.folder)
    if options.json:
        print(json.dumps(about))
    else:
        for name, part in about["parts"].items():
            print(f"[corpus] {name}: {part['documents']:,} documents, {part['tokens']:,} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
