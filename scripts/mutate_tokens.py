"""Which tokens scripts/mutate changes, into what, and where they stand."""

import re

# What runs on this machine: not what is Arm's alone.
SOURCES = ("src/cpu", "src/call/mask.cc", "src/call/mask_parts.h", "include/isentrope/mask.h")
LEFT_OUT = ("src/cpu/product/bf16_neon.cc",)

# Operators of two operands have spaces around them, which the brackets of templates and the signs of numbers have not.
CHANGES = {
    r" < ": [" <= ", " > "], r" <= ": [" < "], r" > ": [" >= ", " < "], r" >= ": [" > "], r" == ": [" != "],
    r" != ": [" == "], r" && ": [" || "], r" \|\| ": [" && "], r" \+ ": [" - "], r" - ": [" + "], r" % ": [" / "],
    r" \+= ": [" -= ", " = "], r" -= ": [" += "], r"\+\+": ["--"], r"\btrue\b": ["false"], r"\bfalse\b": ["true"],
    r"\bmin\b": ["max"], r"\bmax\b": ["min"], r"\bcontinue\b": ["break"], r"\bbreak\b": ["continue"],
    r"\bhn::Add\b": ["hn::Sub"], r"\bhn::Sub\b": ["hn::Add"], r"\bhn::Lt\b": ["hn::Le"], r"\bhn::Le\b": ["hn::Lt"],
    r"\bhn::Gt\b": ["hn::Ge"], r"\bhn::Ge\b": ["hn::Gt"], r"\bhn::Min\b": ["hn::Max"], r"\bhn::Max\b": ["hn::Min"],
    r"\bhn::MulAdd\b": ["hn::MulSub"], r"\bhn::NegMulAdd\b": ["hn::MulAdd"],
    r"\bbegin\b": ["end"], r"\bend\b": ["begin"],
    r"\bfirst\b": ["last"], r"\blast\b": ["first"], r"(?<![\w.])\d+(?![\w.])": ["{} + 1"],
}  # fmt: skip
# Where a change would concern no code.
SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|^\s*#[^\n]*|"(?:\\.|[^"\\\n])*"|static_assert\(.*?\);',
                    re.DOTALL | re.MULTILINE)  # fmt: skip


def all_places(root):
    """Of each pattern: (file, its text, begin, end)."""
    files = []
    for name in SOURCES:
        path = root / name
        files += [path] if path.is_file() else sorted(x for x in path.rglob("*") if x.suffix in (".h", ".cc"))
    found = {}
    for file in files:
        name = str(file.relative_to(root))
        if name in LEFT_OUT:
            continue
        text = file.read_text()
        silent = [match.span() for match in SILENT.finditer(text)]
        for pattern in CHANGES:
            for match in re.finditer(pattern, text):
                if not any(begin <= match.start() < end for begin, end in silent):
                    found.setdefault(pattern, []).append((name, text, *match.span()))
    return found


def drawn(draw, places):
    """One change. The kind is drawn first, for of some there are many more than of others."""
    pattern = draw.choice(sorted(places))
    name, text, begin, end = draw.choice(places[pattern])
    old, new = text[begin:end], draw.choice(CHANGES[pattern])
    line = text.count("\n", 0, begin) + 1
    return {"file": name, "line": line, "code": text.splitlines()[line - 1].strip(), "from": old, "to": new.format(old),
            "begin": begin, "end": end}  # fmt: skip
