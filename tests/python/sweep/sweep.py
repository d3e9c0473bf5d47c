#!/usr/bin/env python3
"""Judges every architecture of the installed transformers, each in a process of its own, and records the verdicts.

    tests/python/sweep/sweep.py docs/results/models.json [--only bert llama] [--jobs 2]

A record of the same transformers is continued: what it has is not judged again, unless --only names it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "scripts")]
SECONDS = 120
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # some default configurations ask the hub, which answers after minutes


def _judge(name: str, answer: Any) -> None:
    from sweep.judge import judge

    answer.send(judge(name))


def verdict_of(name: str) -> dict[str, Any]:
    """Returns the verdict of a separate process, which may crash or never end."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=_judge, args=(name, sender), daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else {"verdict": "not made", "why": f"it takes more than {SECONDS} s"}
    except EOFError:
        return {"verdict": "wrong", "why": "the process ended without a verdict"}
    finally:
        process.kill()
        process.join()


def sweep(names: list[str], record: dict[str, Any], save: Any, jobs: int) -> None:
    import torch

    import sweep.judge  # noqa: F401  # what takes seconds to import is imported once, before the processes are forked

    torch.set_num_threads(1)
    with ThreadPoolExecutor(jobs) as pool:
        for done, (name, verdict) in enumerate(zip(names, pool.map(verdict_of, names)), 1):
            record[name] = verdict
            save()
            print(f"[{done}/{len(names)}] {name}: {verdict['verdict']} {verdict.get('why', '')}"[:300], flush=True)


def main() -> int:
    from transformers import __version__
    from json_rows import write_rows
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--only", nargs="+", metavar="TYPE", help="judge these model types again")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    everything = json.loads(options.record.read_text()) if options.record.exists() else {}
    record = everything.setdefault(__version__, {})

    def save() -> None:
        everything[__version__] = dict(sorted(record.items()))
        write_rows(options.record, everything, 2)

    sweep(options.only or [name for name in CONFIG_MAPPING if name not in record], record, save, options.jobs)
    counts = Counter(verdict["verdict"] for verdict in record.values())
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return counts["wrong"] > 0


if __name__ == "__main__":
    sys.exit(main())
