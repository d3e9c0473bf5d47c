"""Tables of speed: README's, those of CPUs, of GPUs, of whole models and of llama.cpp."""

from text import record, table

MODELS = ("prompt of 2048 f32", "decode after 2048 f32", "decode after 2048 bf16", "64 requests of 1 to 3000, 48 new f32")
ON_CPU = ("entropy 1 x 8 x 4096 x 64 bf16 full",)
ON_GPU = ("forward 4 x 16 x 4096 x 128 bf16 causal", "decode 8 x 32:8 x 32768 x 128 bf16 full")
COMPARED = (  # works that differ most in what limits them
    "forward 1 x 8 x 2048 x 128 f32 full",
    "forward 1 x 8 x 2048 x 128 bf16 full",
    "forward 1 x 8 x 2048 x 128 bf16 causal",
    "gradient 1 x 8 x 2048 x 64 f32 full",
    "gradient 1 x 8 x 2048 x 64 bf16 causal",
    "entropy 1 x 8 x 4096 x 64 bf16 full",
    "decode 1 x 32:8 x 8192 x 128 bf16 full",
)
ON_DEVICE = {  # columns by system
    "isentrope, lse alone": "lse alone",
    "isentrope": "all statistics",
    "torch cuDNN": "cuDNN",
    "torch flash": "flash (torch)",
    "torch FlexAttention": "FlexAttention",
    "torch, two passes": "two passes of flash",
}
OF_LLAMA = {"p512": "prompt of 512", "p8192": "prompt of 8,192", "p32768": "prompt of 32,768"}
OF_LLAMA |= {"d0": "first tokens", "d1024": "next tokens after 1,024", "d8192": "next tokens after 8,192"}


def rows_of(bench: dict) -> dict[str, dict]:
    """Returns the rows of the first run, on one thread, by the names of their works."""
    return {row["work"]["name"]: row for row in bench["runs"][0]["rows"]}


def systems_of(row: dict) -> dict[str, dict]:
    return {system["name"]: system for system in row["systems"]}


def source(found: dict) -> str:
    return f"{found['machine']}, {found['date']}"


def one_thread(found: dict) -> str:
    rounds = f", {found['rounds']} rounds" if "rounds" in found else ""
    return f"{found['machine']}, one thread{rounds}, {found['date']}"


def beside_the_best_peer(row: dict, place: str, ours: str) -> list[str]:
    rates = {name: system["rate"] for name, system in systems_of(row).items()}
    best = max((name for name in rates if not name.startswith("isentrope")), key=rates.__getitem__)
    tera = rates[ours] >= 1e13
    unit = "GB/s" if row["work"]["kind"] == "decode" else "TFLOP/s" if tera else "GFLOP/s"
    factor = 1e12 if tera else 1e9
    return [row["work"]["name"], place, f"{rates[ours] / factor:.0f} {unit}", f"{rates[best] / factor:.0f} ({best})",
            f"{rates[ours] / rates[best]:.2f}"]  # fmt: skip


def model_rows(found: dict, works: tuple[str, ...] = ()) -> list[list[str]]:
    rows = []
    for row in found["rows"]:
        work = f"{row['work']} {'f32' if row['dtype'] == 'float32' else 'bf16'}"
        if works and work not in works:
            continue
        peer, ours, *_ = row["systems"]
        rates = [row["tokens"] / system["seconds"] for system in (ours, peer)]
        ratios = [theirs / own for theirs, own in zip(peer["repetitions"], ours["repetitions"])]
        rows.append([f"{row['engine']}: {work}", "CPU", f"{rates[0]:.0f} tokens/s", f"{rates[1]:.0f} ({peer['name']})",
                     f"{rates[0] / rates[1]:.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"])  # fmt: skip
    return rows


def of_models(found: dict) -> str:
    return f"{found['machine']}, {found['threads']} threads, {found['date']}"


def models() -> list[str]:
    found = record("bench-models")
    return [*table(["work", "on", "isentrope", "its own attention", "ratio"], model_rows(found)), "", f"{of_models(found)}."]


def llama_rates(found: dict, cache: str, work: str) -> tuple[float, float] | None:
    """Returns the best rates of a work with the backend and without, in tokens per second."""
    for row in found["rows"]:
        if (row["cache"], row["work"]) == (cache, work):
            return max(row["isentrope"]), max(row["llama.cpp"])
    return None


def llama() -> list[str]:
    found, rows = record("llama-cpp"), []
    for work, name in OF_LLAMA.items():
        rows.append([name])
        for cache in ("f16", "bf16"):
            rates = llama_rates(found, cache, work)
            rows[-1] += [*(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}"] if rates else [""] * 3
    about = f"Tokens per second of {found['model']} on {found['threads']} threads of {source(found)}, the best runs of " \
            "`bench/cpu/llama_cpp.py`; f16 and bf16 are the types of the cache."  # fmt: skip
    return [*table(["work", "f16", "llama.cpp", "ratio", "bf16", "llama.cpp", "ratio"], rows), "", about]


def speed() -> list[str]:
    of, stock, cpu, gpu = record("bench-models"), record("llama-cpp"), record("bench"), record("gpu-h200")
    rates = llama_rates(stock, "f16", "p8192")
    assert rates
    rows = [
        *model_rows(of, MODELS),
        ["llama.cpp, prompt of 8,192", "CPU", f"{rates[0]:.0f} tokens/s", f"{rates[1]:.0f} (llama.cpp)", f"{rates[0] / rates[1]:.2f}"],
        *(beside_the_best_peer(rows_of(cpu)[work], "CPU", "isentrope") for work in ON_CPU),
        *(beside_the_best_peer(rows_of(gpu)[work], "GPU", "isentrope, lse alone") for work in ON_GPU),
    ]
    sources = f"Models: {of_models(of)}. llama.cpp: {source(stock)}, {stock['threads']} threads. " \
              f"Other CPU rows: {source(cpu)}, one thread. GPU: {source(gpu)}."  # fmt: skip
    return [*table(["work", "on", "Isentrope", "best peer", "ratio"], rows), "", sources]


def device() -> list[str]:
    """In TFLOP/s, decode steps in GB/s; "-" if a system did not run."""
    found, rows = record("gpu-h200"), []
    for name, row in rows_of(found).items():
        systems, unit = systems_of(row), 1e9 if row["work"]["kind"] == "decode" else 1e12
        rows.append([name, *(f"{systems[x]['rate'] / unit:.0f}" if x in systems else "-" for x in ON_DEVICE)])
    versions = found["versions"]
    where = f"{found['machine']}, torch {versions['torch']}, Triton {versions['triton']}, {found['date']}."
    return [*table(["work", *ON_DEVICE.values()], rows), "", where]


def gigaflops(row: dict) -> list[str]:
    """Returns the rates of Isentrope and of the best peer, and their ratio."""
    systems, peer = systems_of(row), row["best_peer"]
    return [f"{systems['isentrope']['rate'] / 1e9:.0f}", f"{systems[peer]['rate'] / 1e9:.0f} ({peer})", f"{row['ratio']:.2f}"]


def compared() -> list[str]:
    plain, amx = record("bench"), record("bench-amx")
    rows = [[work, *gigaflops(rows_of(plain)[work]), *gigaflops(rows_of(amx)[work])] for work in COMPARED]
    head = ["work", "AVX-512", "best peer", "ratio", "AMX", "best peer", "ratio"]
    return [*table(head, rows), "", f"{one_thread(plain)}; {one_thread(amx)}."]


def bench(name: str) -> list[str]:
    found, rows = record(name), []
    for title, row in rows_of(found).items():
        work = row["work"]
        if work["keys"] in (64, 2048) or work["kind"] == "entropy" or (work["kind"] == "decode" and work["keys"] == 8192):
            systems, limit = systems_of(row), row["of_limit"]
            rows.append([title, *gigaflops(row), "" if limit is None else f"{100 * limit:.0f} %",
                         *(f"{systems[system]['error']:.1e}" for system in ("isentrope", row["best_peer"]))])  # fmt: skip
    head = ["work", "Isentrope", "best peer", "ratio", "of the limit", "error", "peer's error"]
    return [*table(head, rows), "", f"{one_thread(found)}."]


def watched_steps() -> list[str]:
    steps = record("bench")["training_step"]
    rows = [[row["watcher"], row["function"], f"{row['ratio']:.3f}", "{:.3f} to {:.3f}".format(*row["quartiles"])] for row in steps["rows"]]
    return [*table(["watched by", "attention", "over a step that nothing watches", "quartiles"], rows), "", f"{one_thread(steps)}."]


def derivatives() -> list[str]:
    found = record("bench-amd")["derivatives"]
    ratios = ("jvp", "second", "math_jvp", "math_second")
    rows = [[row["work"], *("{:.2f} ({:.2f} to {:.2f})".format(row[x]["ratio"], *row[x]["range"]) for x in ratios)]
            for row in found["rows"]]  # fmt: skip
    head = ["call", "`jvp` / forward", "second order / gradient", "torch's math / `jvp`", "torch's math / second order"]
    return [*table(head, rows), "", f"{one_thread(found)}."]


def tables() -> dict[tuple[str, str], list[str]]:
    return {
        ("README.md", "speed"): speed(),
        ("docs/recipes/llama-cpp.md", "bench with llama.cpp"): llama(),
        ("docs/gpu.md", "bench on a GPU"): device(),
        ("docs/bench.md", "compared"): compared(),
        ("docs/bench.md", "derivatives"): derivatives(),
        ("docs/bench.md", "models"): models(),
        ("docs/bench.md", "watched steps"): watched_steps(),
        ("docs/bench-tables.md", "bench"): bench("bench"),
        ("docs/bench-tables.md", "bench on AMD"): bench("bench-amd"),
        ("docs/bench-tables.md", "bench with AMX"): bench("bench-amx"),
    }
