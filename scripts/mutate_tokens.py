"""Tokens that scripts/mutate changes, their replacements and their places."""

import re

# Sources that run on this machine: not Arm's own.
SOURCES = ("src/cpu", "src/call/mask.cc", "src/call/mask_parts.h", "include/isentrope/mask.h")
LEFT_OUT = ("src/cpu/product/bf16_neon.cc",)

CHANGES = {  # binary operators have spaces around them; template brackets and signs do not
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
SILENT = re.compile(r'//[^\n]*|/\*.*?\*/|^\s*#[^\n]*|"(?:\\.|[^"\\\n])*"|static_assert\(.*?\);',
                    re.DOTALL | re.MULTILINE)  # fmt: skip


def all_places(root):
    """Returns (file, its text, begin, end) for each pattern."""
    files = []
    for name in SOURCES:
        path = root / name
        files += [path] if path.is_file() else sorted(x for x in path.rglob("*") if x.suffix in (".h", ".cc"))
    places = {}
    for file in files:
        name = str(file.relative_to(root))
        if name in LEFT_OUT:
            continue
        text = file.read_text()
        silent = [match.span() for match in SILENT.finditer(text)]
        for pattern in CHANGES:
            for match in re.finditer(pattern, text):
                if not any(begin <= match.start() < end for begin, end in silent):
                    places.setdefault(pattern, []).append((name, text, *match.span()))
    return places


def drawn(draw, places):
    """Draws a change. The kind is drawn first, because some are much more frequent than others."""
    pattern = draw.choice(sorted(places))
    name, text, begin, end = draw.choice(places[pattern])
    old, new = text[begin:end], draw.choice(CHANGES[pattern])
    line = text.count("\n", 0, begin) + 1
    return {"file": name, "line": line, "code": text.splitlines()[line - 1].strip(), "from": old, "to": new.format(old),
            "begin": begin, "end": end}  # fmt: skip
