#!/usr/bin/env python3
"""Times attention over 1, 2 and 4 processes of this machine with each method: time, bytes, overlap, prediction.

    bench/distributed.py [--tokens 4096] [--output results/distributed.json]     # make bench-distributed
    bench/distributed.py --page docs/distributed.md    # writes the page's tables, from docs/results/distributed.json

Every method alternates with one process that has as many threads as there are processes, up to the number of cores. The
rates for the cost model (cost_model.py) are measured in the same run.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from unittest import mock

import cost_model
import torch
import torch.distributed as dist
from cost_model import Machine, Work

import isentrope
from isentrope import distributed
from isentrope._core.files import write_text
from isentrope.commands.doctor import processor_name
from isentrope.distributed import ring

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("scripts", "docs/generate")]
from json_rows import write_rows
from marks import put

CORES = len(os.sched_getaffinity(0))
WAYS = [("ring", "contiguous"), ("ring", "zigzag"), ("all_gather", "zigzag"), ("all_to_all", "contiguous")]


def median(function, repeats):
    times = []
    function()
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def tensors(work, rows):
    shapes = [(1, heads, rows, work.dim) for heads in (work.heads, work.kv_heads, work.kv_heads)]
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def step(inputs, attend):
    attend(*inputs).sum().backward()


class Sent:
    """Bytes that this rank hands to torch.distributed inside the block."""

    def __enter__(self):
        self.bytes, self._original = 0, dist.batch_isend_irecv

        def counted(operations):
            self.bytes += sum(op.tensor.nbytes for op in operations if op.op is dist.isend)
            return self._original(operations)

        dist.batch_isend_irecv = counted
        return self

    def __exit__(self, *_):
        dist.batch_isend_irecv = self._original


# Replaced, a ring has no transfers: blocks arrive at once, with undefined contents. Or it has no products.
start = ring.start
WITHOUT_TRANSFERS = {"start": lambda group, tag, phase, sends, receives: start(group, tag, phase, {}, {})}
WITHOUT_PRODUCTS = {"calls": lambda *_: ()}


def link(rank, size, repeats):
    """Returns the seconds of a message of `size` bytes from rank 0 to rank 1, as half of a round trip."""
    message, received = torch.zeros(size // 4), torch.zeros(size // 4)

    def there_and_back():
        if rank == 0:
            dist.send(message, 1)
            dist.recv(received, 1)
        elif rank == 1:
            dist.recv(received, 0)
            dist.send(message, 0)

    return median(there_and_back, repeats) / 2


def measured(ranks, work, repeats):
    rows = []
    for method, layout in WAYS:
        inputs = tensors(work, work.tokens // ranks)

        def run(method=method, layout=layout, inputs=inputs):
            step(inputs, lambda *x: distributed.attention(*x, method=method, layout=layout, causal=True))

        with Sent() as sent:
            run()
        row = {"method": method, "layout": layout, "seconds": median(run, repeats), "sent": sent.bytes}
        if method == "ring" and ranks > 1:
            for part, replaced in {"products": WITHOUT_TRANSFERS, "transfers": WITHOUT_PRODUCTS}.items():
                with mock.patch.multiple(ring, **replaced):
                    row[part] = median(run, repeats)
        rows.append(row)
    return rows


def process(rank, ranks, store, results, work, repeats):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", f"file://{store}", timedelta(seconds=600), ranks, rank)
    rates = None
    if ranks == 2:
        small, large = link(rank, 4, 50 * repeats), link(rank, 1 << 24, repeats)
        rates = {"latency": small, "bandwidth": (1 << 24) / (large - small)}
    results.put((rank, measured(ranks, work, repeats), rates))
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(ranks, folder, work, repeats):
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    store = Path(folder) / f"store-{os.getpid()}-{ranks}"
    arguments = [(rank, ranks, store, results, work, repeats) for rank in range(ranks)]
    processes = [context.Process(target=process, args=arguments_) for arguments_ in arguments]
    for worker in processes:
        worker.start()
    gathered = [results.get() for _ in processes]
    for worker in processes:
        worker.join()
    store.unlink(missing_ok=True)
    gathered.sort(key=lambda result: result[0])
    return [result[1] for result in gathered], gathered[0][2]


def on_one_process(work, threads, repeats):
    torch.set_num_threads(threads)
    inputs = tensors(work, work.tokens)
    return median(lambda: step(inputs, lambda *x: isentrope.attention(*x, causal=True)), repeats)


def rows_of(ranks, results, one_process, single, rates, work):
    whole = (1 + cost_model.BACKWARD) * cost_model.flops(work)
    machine = Machine(whole / single * min(1, CORES / ranks), rates["bandwidth"], rates["latency"])
    for index, (method, layout) in enumerate(WAYS):
        of_ranks = [result[index] for result in results]
        row = {"ranks": ranks, "method": method, "layout": layout, "sent": sum(r["sent"] for r in of_ranks),
               "least": sum(cost_model.received(method, work, ranks)) * ranks,
               "seconds": max(r["seconds"] for r in of_ranks), "one_process": one_process}  # fmt: skip
        if layout == "zigzag" or method == "all_to_all":  # cases that the model covers
            row["predicted"] = cost_model.seconds(method, work, ranks, machine)
        if "products" in of_ranks[0]:
            row["products"], row["transfers"] = (max(r[key] for r in of_ranks) for key in ("products", "transfers"))
        yield row


def cell(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def table(result):
    lines = ["| processes | method | layout | time over one process | MB sent | over the least | transfers hidden | predicted |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in result["rows"]:
        zigzag = row["layout"] == "zigzag" or row["method"] == "all_to_all"
        over = row["sent"] / row["least"] if row["least"] and zigzag else None
        hidden = None
        if "products" in row:
            hidden = min(max(1 - (row["seconds"] - row["products"]) / row["transfers"], 0), 1)
        predicted = row["predicted"] / row["seconds"] if "predicted" in row else None
        lines.append(
            f"| {row['ranks']} | `{row['method']}` | {row['layout']} | {cell(row['seconds'] / row['one_process'])} | "
            f"{cell(row['sent'] / 1e6, 1)} | {cell(over)} | {cell(hidden)} | {cell(predicted)} |"
        )
    return "\n".join(lines)


def page(text, result):
    text = put(text, "ways", [table(result), "", machine_of(result)])
    return put(text, "plan", [cost_model.plan()])


def machine_of(result):
    rates, work = result["rates"], result["work"]
    return (
        f"{result['cpu']}, {result['cores']} cores, other load of {result['load_before']:.0f} on it; "
        f"{work['tokens']} tokens, {work['heads']} heads of {work['dim']}, f32, causal, forward and backward, a thread for "
        f"each process; rates of the same run: {rates['flops'] / 1e9:.0f} GFLOP/s, {rates['bandwidth'] / 1e9:.2f} GB/s, "
        f"{1e6 * rates['latency']:.0f} us."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--output", type=Path, default=Path("results/distributed.json"))
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    if arguments.page:
        result = json.loads((arguments.page.parent / "results/distributed.json").read_text())
        write_text(arguments.page, page(arguments.page.read_text(), result))
        return
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    work, repeats = Work(arguments.tokens, 8, 8, 64, 4), arguments.repeats
    load = os.getloadavg()[0]
    single = on_one_process(work, 1, repeats)
    runs = {ranks: on_ranks(ranks, arguments.output.parent, work, repeats) for ranks in {*arguments.ranks, 2}}
    rates = runs[2][1]
    rows = []
    for ranks in arguments.ranks:
        one_process = on_one_process(work, min(ranks, CORES), repeats)
        rows += rows_of(ranks, runs[ranks][0], one_process, single, rates, work)
    rates["flops"] = (1 + cost_model.BACKWARD) * cost_model.flops(work) / single
    result = {"cpu": processor_name(), "cores": CORES, "load_before": load, "work": work._asdict(), "rates": rates, "rows": rows}
    write_rows(arguments.output, result, 2)
    print(table(result))
    print(f"\n{machine_of(result)} {arguments.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
