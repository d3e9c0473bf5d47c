#!/usr/bin/env python3
"""Times llama.cpp without the backend for ggml and with it, in turns, and keeps every run in a record.

    llama_cpp.py LLAMA_BENCH LIBRARY MODEL RECORD [--rounds 3] [--threads 2] [--caches f16 bf16] [--work p512 p8192 d0 d8192]

Work is the prompt of so many tokens (p512), or 32 tokens after so many (d8192). Runs that the record has are not repeated, so an
interrupted measurement goes on. Rates are tokens per second; compare the best, because other programs only slow a run down.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from bench.cpu.run import name_of_cpu
from bench.harness import record_of
from scripts.json_rows import write_rows


def rate(bench: Path, model: Path, cache: str, threads: int, work: str, library: Path | None) -> float:
    """Returns tokens per second of one run of llama-bench."""
    tokens = work[1:]
    options = ["-p", tokens, "-n", "0"] if work[0] == "p" else ["-p", "0", "-n", "32", "-d", tokens]
    if int(tokens) > 8192:
        options.append("--no-warmup")  # a run of minutes needs none before it
    command = [bench, "-m", model, "-t", threads, "-fa", "1", "-ctk", cache, "-ctv", cache, "-r", "1", "-o", "json", *options]
    environment = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"}
    if library:
        environment["GGML_BACKEND_PATH"] = str(library)
    done = subprocess.run([str(x) for x in command], check=True, capture_output=True, text=True, env=environment)
    result = json.loads(done.stdout)[0]
    if ("ISENTROPE" in result["backends"]) != bool(library):
        raise SystemExit(f"[llama_cpp] the backend must be loaded exactly if it is named; got {result['backends']}, {done.stderr[-300:]}")
    return result["avg_ts"]


def row_of(rows: list[dict], cache: str, work: str) -> dict:
    """Returns the row of a cache and a work, which it appends if there is none."""
    for row in rows:
        if (row["cache"], row["work"]) == (cache, work):
            return row
    rows.append({"cache": cache, "work": work, "llama.cpp": [], "isentrope": []})
    return rows[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bench", "library", "model", "record"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--caches", nargs="+", default=["f16", "bf16"])
    parser.add_argument("--work", nargs="+", default=["p512", "p8192", "d0", "d8192"])
    options = parser.parse_args()
    about = {"kind": "llama.cpp", "machine": name_of_cpu(), "model": options.model.stem, "threads": options.threads}
    record = record_of(options.record, about)
    print("cache  work     llama.cpp  isentrope  ratio")
    for cache, work in itertools.product(options.caches, options.work):
        row = row_of(record["rows"], cache, work)
        while len(row["isentrope"]) < options.rounds:
            name = min(("llama.cpp", "isentrope"), key=lambda name: len(row[name]))
            library = options.library if name == "isentrope" else None
            row[name].append(rate(options.bench, options.model, cache, options.threads, work, library))
            write_rows(options.record, record, 2)
        stock, ours = max(row["llama.cpp"]), max(row["isentrope"])
        print(f"{cache:<6} {work:<8} {stock:>9.1f}  {ours:>9.1f}  {ours / stock:>5.2f}", flush=True)


if __name__ == "__main__":
    main()
