"""isentrope tune: measures the fastest tiles of the GPU kernels on this device, and writes their table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from isentrope._core.files import check_output
from isentrope.commands.frame import Outputs, Parser, command, progress_of, whole_number


def _parser() -> Parser:
    parser = Parser(
        prog="isentrope tune",
        description="Measures which tiles are the fastest for each GPU kernel on this card, and writes the table that later "
        "calls read. Candidates are compiled on all cores, checked against the float64 reference, and timed if they are right. "
        "Without options: bfloat16 at head dimensions 64 and 128, about three minutes with 16 cores (an estimate). An interrupted "
        "run goes on where it stopped.",
        epilog="example: isentrope tune --types bf16 f16 --dims 128 --json tiles.json",
    )
    parser.add_argument("--all", action="store_true", help="every type, every head dimension, also with boolean masks")
    parser.add_argument("--types", nargs="+", choices=("bf16", "f16", "f32"), help="types of q, k and v (bf16)")
    parser.add_argument("--dims", nargs="+", type=int, choices=(16, 32, 64, 128, 256), help="padded head dimensions (64 128)")
    parser.add_argument("--device", type=whole_number(0, 1023), default=0, help="number of the device (0)")
    parser.add_argument("--jobs", type=whole_number(0, 1024), default=0, help="processes that compile (0: one for each core)")
    parser.add_argument("--again", action="store_true", help="measure anew what an earlier run measured")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there instead of the cache folder")
    parser.add_json()
    return parser


def _device(index: int) -> torch.device:
    """Returns the device of this number. Raises ValueError if there is none."""
    for kind in ("cuda", "xpu"):
        count = torch.get_device_module(kind).device_count() if torch.get_device_module(kind).is_available() else 0
        if index < count:
            torch.get_device_module(kind).set_device(index)
            return torch.device(kind, index)
        if count:
            raise ValueError(f"--device must be below {count}, the number of devices; got {index}")
    raise ValueError("a CUDA or XPU device is needed to time kernels; got none: isentrope doctor says why")


def _options(tiles: dict[str, Any]) -> list[str]:
    """Returns the fields of tiles that have no column, in words, if they are not at their default."""
    counts = {"registers": "registers", "occupancy": "programs"}
    options = [f"{tiles[name]} {words}" for name, words in counts.items() if tiles.get(name)]
    return options + [name for name in ("apart", "descriptors") if tiles.get(name)]


def table(result: dict[str, Any]) -> str:
    """Returns a table as text: tiles, milliseconds of the call, time saved against the current tiles, and options.

    Options are most registers of a thread, programs of a multiprocessor that shares fill, gradients apart, descriptors."""
    names = f"{'kernel':<22} {'type':<5} {'d':>4} {'results':<8} {'rows x keys':<12}"
    lines = [f"{names} {'warps':>5} {'stages':>6} {'ms':>9} {'faster':>7}  options"]
    for row in result["rows"]:
        tiles, planned = row["tiles"], row["planned_ms"]
        faster = "" if planned is None else f"{100 * (planned / row['ms'] - 1):.0f} %"
        shape = f"{tiles['rows']} x {tiles['keys']}"
        lines.append(
            f"{row['kernel']:<22} {row['dtype']:<5} {row['columns']:>4} {row['results']:<8} {shape:<12} {tiles['warps']:>5} "
            f"{tiles['stages']:>6} {row['ms']:>9.4f} {faster:>7}  {', '.join(_options(tiles))}".rstrip()
        )
    failed = [trial for trial in result["trials"] if trial[2] is None]
    wrong = sum(trial[3].startswith("wrong") for trial in failed)
    counts = f"{len(failed) - wrong} did not compile or run, {wrong} gave wrong results and were left out"
    lines.append(f"{len(result['trials'])} candidates: {counts}")
    return "\n".join(lines)


def _tune(options: argparse.Namespace) -> None:
    if options.all and (options.types or options.dims):
        raise ValueError("--all is every type and head dimension; got --dims or --types too")
    outputs = Outputs(options.json, page=None)
    device = _device(options.device)
    from isentrope.gpu import candidates, tuning
    from isentrope.gpu.tile_table import user_file

    on = tuning.Device(device)
    file = options.output or user_file(on.chip.card)
    check_output(file)
    record = tuning.Record(file, on.chip)
    wanted = candidates.all_keys() if options.all else candidates.keys(options.types or ["bf16"], options.dims or [64, 128])
    show = tuning.with_time_left(progress_of("tune"))
    try:
        tuning.tune(wanted, on, record, jobs=options.jobs, progress=show, again=options.again)
    except KeyboardInterrupt:
        message = f"{len(record.trials)} candidates are kept in {file}; the next run goes on" if record.trials else ""
        raise KeyboardInterrupt(message) from None
    result = record.as_json()
    tried = [trial for trial in record.trials.values() if trial.key in wanted]
    if all(trial.ms is None for trial in tried):
        raise ValueError(f"none of {len(tried)} candidates gave right results; --again tries them anew; the first: {tried[0].error}")
    outputs.write(result, f"{table(result)}\nwrote {file}")


main = command("tune", _parser, _tune, __name__)
