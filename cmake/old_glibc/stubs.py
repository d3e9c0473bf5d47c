"""Makes stub libraries to link with instead of this machine's glibc, so that the result runs with an older one.

    stubs.py FOLDER VERSION COMPILER      # VERSION: the oldest glibc to support, such as 2.28

They have this machine's symbols without their code, each in the newest version of the old glibc. A linker records names
and versions, and the loader resolves them. Newer symbols are missing, so that linking with them fails.
"""

import platform
import re
import subprocess
import sys
from pathlib import Path

SYMBOL = re.compile(r" (\d+) (FUNC|IFUNC|OBJECT) +(?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)@@?GLIBC_([\d.]+)$", re.M)
LOADER = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[platform.machine()]
IN_LIBPTHREAD = re.compile(r"_*(pthread|sem)_")  # libc has had them since 2.34


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def numbers(version):
    return tuple(map(int, version.split(".")))


def symbols(compiler, library, limit):
    """Returns (version, type, size) for each name."""
    table = output("readelf", "-W", "--dyn-syms", output(compiler, f"-print-file-name={library}").strip())
    found = {}
    for size, kind, name, version in SYMBOL.findall(table):
        if numbers(version) <= limit and (name not in found or numbers(version) > numbers(found[name][0])):
            found[name] = version, kind, int(size)
    return found


def write(compiler, folder, library, found):
    lines = []
    for i, (name, (version, kind, size)) in enumerate(sorted(found.items())):
        data = kind == "OBJECT"
        lines += [
            ".data" if data else ".text", f".globl s{i}", f".type s{i}, @{'object' if data else 'function'}",
            f".size s{i}, {size}", f".symver s{i}, {name}@@@GLIBC_{version}", f"s{i}: .zero {max(size if data else 1, 1)}",
        ]  # fmt: skip
    versions = sorted({version for version, *_ in found.values()}, key=numbers)
    source, script = folder / f"{library}.s", folder / f"{library}.map"
    source.write_text("\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n')
    script.write_text("".join(f"GLIBC_{version} {{}};\n" for version in versions))
    command = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library},--version-script={script}", source, "-o", folder / library]
    subprocess.run(command, check=True)


folder, limit, compiler = Path(sys.argv[1]), numbers(sys.argv[2]), sys.argv[3]
folder.mkdir(parents=True, exist_ok=True)
of_libc = symbols(compiler, "libc.so.6", limit)
write(compiler, folder, "libc.so.6", {name: x for name, x in of_libc.items() if not IN_LIBPTHREAD.match(name)})
write(compiler, folder, "libpthread.so.0", {name: x for name, x in of_libc.items() if IN_LIBPTHREAD.match(name)})
write(compiler, folder, "libm.so.6", symbols(compiler, "libm.so.6", limit))
write(compiler, folder, LOADER, symbols(compiler, LOADER, limit))
# Linker scripts for -lm and -lc. Libraries in brackets are recorded only if they are needed.
(folder / "libm.so").write_text(f"GROUP ( {folder / 'libm.so.6'} )\n")
libc, loader, libpthread = (folder / name for name in ("libc.so.6", LOADER, "libpthread.so.0"))
linked_in = output(compiler, "-print-file-name=libc_nonshared.a").strip()
(folder / "libc.so").write_text(f"GROUP ( {libc} {linked_in} AS_NEEDED ( {libpthread} {loader} ) )\n")
