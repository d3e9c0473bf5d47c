#!/usr/bin/env python3
"""Times llama.cpp without the backend for ggml and with it, in turns.

    llama_cpp.py LLAMA_BENCH LIBRARY MODEL [--rounds 3] [--threads 2] [--caches f16 bf16] [--work p512 p8192 d0 d8192] [--json FILE]

Work is the prompt of so many tokens (p512), or 32 tokens after so many (d8192). Rates are the best of the rounds, because other programs
only slow a run down.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path


def rate(bench: Path, model: Path, cache: str, threads: int, work: str, library: Path | None) -> float:
    """Returns tokens per second of one run of llama-bench."""
    tokens = work[1:]
    options = ["-p", tokens, "-n", "0"] if work[0] == "p" else ["-p", "0", "-n", "32", "-d", tokens]
    command = [bench, "-m", model, "-t", threads, "-fa", "1", "-ctk", cache, "-ctv", cache, "-r", "1", "-o", "json", *options]
    environment = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"}
    if library:
        environment["GGML_BACKEND_PATH"] = str(library)
    done = subprocess.run([str(x) for x in command], check=True, capture_output=True, text=True, env=environment)
    result = json.loads(done.stdout)[0]
    if ("ISENTROPE" in result["backends"]) != bool(library):
        raise SystemExit(f"[llama_cpp] the backend must be loaded exactly if it is named; got {result['backends']}, {done.stderr[-300:]}")
    return result["avg_ts"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--caches", nargs="+", default=["f16", "bf16"])
    parser.add_argument("--work", nargs="+", default=["p512", "p8192", "d0", "d8192"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print("cache  work     llama.cpp  isentrope  ratio")
    for cache in options.caches:
        for work in options.work:
            best = [0.0, 0.0]
            for _ in range(options.rounds):
                for i, library in enumerate((None, options.library)):
                    best[i] = max(best[i], rate(options.bench, options.model, cache, options.threads, work, library))
            rows.append({"cache": cache, "work": work, "llama.cpp": best[0], "isentrope": best[1]})
            print(f"{cache:<6} {work:<8} {best[0]:>9.1f}  {best[1]:>9.1f}  {best[1] / best[0]:>5.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"kind": "llama.cpp", "threads": options.threads, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
