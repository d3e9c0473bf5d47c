"""Times systems on the GPU of this machine, or in the interpreter, where one call shows only that it runs.

They alternate, repetition by repetition, after WARM seconds that warm the clocks, timed by the device's events.
"""

import datetime
import os
import time

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import isentrope.gpu  # noqa: F401, after it is decided who interprets
from bench.errors import error_of, gradient_error_of
from bench.gpu.systems import Isentrope, small_systems
from bench.harness import add_rates, first_line, prepared, row_of, streams, timed
from bench.work import tensors_of
from isentrope.gpu.interpreter import speed_up

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    speed_up()
WARM = 0.05
HOST_CALLS = 100  # small calls that the host makes in a row


def seconds_of(run, calls):
    """Returns the seconds of one call, and its output."""
    if DEVICE == "cpu":
        start = time.perf_counter()
        output = run()
        return time.perf_counter() - start, output
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        output = run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls, output


def warmed(run):
    """Calls until the device's clocks are up, and returns the seconds of one call; the interpreter needs one call."""
    seconds, spent = seconds_of(run, 1)[0], 0.0
    while DEVICE != "cpu" and spent < WARM:
        calls = max(1, int(WARM / 4 / seconds))
        seconds = seconds_of(run, calls)[0]
        spent += calls * seconds
    return seconds


def limits():
    """Returns the device's peak rates, measured with torch's products of large matrices and by reading memory."""
    if DEVICE == "cpu":
        return {"memory_read": 1.0, "flops": dict.fromkeys(DTYPES, 1.0)}
    side, rates = 8192, {}
    for name, dtype in DTYPES.items():
        a = torch.randn(side, side, device=DEVICE).to(dtype)
        warmed(lambda a=a: a @ a)
        rates[name] = 2 * side**3 / seconds_of(lambda a=a: a @ a, 20)[0]
    large = torch.empty(1 << 30, dtype=torch.float32, device=DEVICE)
    warmed(large.sum)
    return {"memory_read": large.numel() * 4 / seconds_of(large.sum, 10)[0], "flops": rates}


def errors_of(work, result, tensors, rule, reads_entropy):
    output, *gradients = result if isinstance(result, tuple) else (result,)
    tensors = [x.detach() for x in tensors]
    errors = {"error": error_of(work, output.detach().cpu(), *(x.cpu() for x in tensors[:3]), rule=rule)}
    if gradients:
        errors["gradient_error"] = gradient_error_of(work, gradients, *tensors, rule, reads_entropy)
    return errors


def measured(systems, work, repetitions, notes):
    """Returns the results of the systems that ran; notes say why the others did not."""
    torch._dynamo.reset()  # otherwise FlexAttention would be compiled for dynamic sizes
    tensors = tensors_of(work, DEVICE)
    runs = prepared(systems, work, tensors, notes)
    rules = {
        system.name: (getattr(system, "rule", None), isinstance(system, Isentrope) and system.reads_entropy(work))
        for system in systems
    }  # fmt: skip
    calls = {name: max(1, int(0.02 / warmed(run))) for name, run in runs.items()}
    return timed(
        runs, repetitions, lambda name: seconds_of(runs[name], calls[name]),
        lambda name, result: errors_of(work, result, tensors, *rules[name]),
    )  # fmt: skip


def host_microseconds(step, calls):
    """Returns the host's time for a call, without waiting for the device."""
    synchronize = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    for _ in range(max(1, calls // 5)):
        step()
    synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        step()
    seconds = time.perf_counter() - start
    synchronize()
    return round(1e6 * seconds / calls, 2)


def captured(step):
    """Returns the step as a CUDA graph. Raises RuntimeError without a device."""
    if DEVICE != "cuda":
        raise RuntimeError("a CUDA graph needs a CUDA device; got none")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def seconds_under_a_graph(step):
    try:
        return {"graph_seconds": warmed(captured(step).replay)}
    except Exception as error:
        return {"graph_error": first_line(error)}


def host_row(work, calls=HOST_CALLS):
    """Returns the host time of small calls and of scaled_dot_product_attention, and a forward pass's in a CUDA graph."""
    row = {"work": work.as_json(), "host_us": {}}
    for system in small_systems():
        try:
            step = system.prepare(work, *tensors_of(work, DEVICE))
            row["host_us"][system.name] = host_microseconds(step, calls)
            if isinstance(system, Isentrope) and not system.statistics and work.kind == "forward":
                row |= seconds_under_a_graph(step)
        except Exception as error:
            row["host_us"][system.name] = first_line(error)
    print(f"host time of {work.name}: {row['host_us']} us", flush=True)
    return row


def rated(work, systems, limit):
    """Returns the row of the work, with its rates."""
    row = row_of(work, systems)
    return add_rates(row, limit["memory_read"] if streams(row) else limit["flops"][work.dtype])


def print_row(row):
    unit = 1e9 if row["work"]["kind"].startswith("decode") else 1e12
    print(f"{row['work']['name']}  of the limit {row['of_limit']:.1%}, statistics cost {row['statistics_cost']:.1%}")
    for system in sorted(row["systems"], key=lambda system: system["seconds"]):
        rate = f"{system['rate'] / unit:>10.1f} {'GB/s' if unit == 1e9 else 'TFLOP/s'}"
        print(f"  {system['name']:<24} {rate}  error {system['error']:.1e}")


def result_of(limit, rows, notes):
    name = torch.cuda.get_device_name() if DEVICE == "cuda" else "interpreter"
    flops = {"flops": limit["flops"]["f32"], "bf16_flops": limit["flops"]["bf16"], "exps": 0.0}
    return {
        "kind": "bench", "machine": name, "processors": 1, "date": datetime.date.today().isoformat(),
        "limits": {"memory_read": limit["memory_read"], "targets": [{"target": name} | flops]},
        "runs": [{"threads": 1, "target": name, "rows": rows, "notes": notes}],
    }  # fmt: skip
