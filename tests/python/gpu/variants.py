"""Problem lines that together choose every entry of the plan, and their kernels compiled for chips that need not be present."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from triton.runtime.jit import JITFunction

from isentrope._core.library import LSE
from src.gpu.lines import Line

MASKED, DROPOUT = "admitted=1 bias=1 cap=5 sink=1", "dropout=0.1 dropout_seed=7"
# Packed, padded and prefixed, with a boolean mask and a rule of each length that a row has.
DOCUMENTS = ",documents=2,left_padding,right_padding,prefix=5 admitted=1 rule=log_length(length=total)*attn_temperature_tuning"


@contextmanager
def changed_sources(sources: dict[JITFunction, str]) -> Iterator[None]:
    """Gives functions of the kernels other sources during the block."""
    before = {function: function.src for function in sources}
    try:
        _update(sources)
        yield
    finally:
        _update(before)


def _update(sources: dict[JITFunction, str]) -> None:
    for function, source in sources.items():
        function._unsafe_update_src(source)
    # Callers have a hash of the functions that they call, by which Triton finds a compiled kernel.
    for name, module in list(sys.modules.items()):
        if name.startswith("isentrope.gpu.kernels."):
            for found in vars(module).values():
                if isinstance(found, JITFunction):
                    found.hash = None


class Variant(Line):
    """A line, and the features of its kernels."""

    @property
    def masked(self) -> bool:
        return "bias" in self.fields

    @property
    def few(self) -> bool:
        """Returns whether the call has a few rows against a long cache."""
        return self.queries < 16

    @property
    def statistics(self) -> bool:
        return self.wanted != LSE

    @property
    def crowded(self) -> bool:
        """Returns whether tiles are masked, or dropout meets gradients of statistics: both take many registers."""
        dropped = "dropout" in self.fields and self.statistics and "bwd" in self.fields
        return self.masked or "dilation" in self.text or dropped


def line(dtype: str, dim: int | str, words: str = "", *, few: bool = False, mask: str = "") -> str:
    """Returns a causal call with many rows or few. mask, words: further ones of the mask and of the line."""
    size = "2x4096" if few else "1024x1024"
    return f"dt={dtype} shape=4x32:8x{size}x{dim} mask=causal:bottom_right{mask} {words}".strip()


def every() -> list[str]:
    words = ("", MASKED, "stats=lse", "bwd=1", f"{MASKED} bwd=1", "stats=lse bwd=1")
    places = [(dtype, dim) for dtype in ("bf16", "f16", "f32") for dim in (64, 128, 256)]
    return [
        *(line(*place, word) for place in places for word in words),
        *(line(*place, word, few=True) for place in places for word in ("", "stats=lse")),
    ]


def with_tiles_of_others() -> list[str]:
    """Returns lines with the tiles of one above and other kernels: padded and small dimensions, pages, masks of rows,
    dropout with gradients of statistics. Dilations are within a tile of keys, or wider, so that empty tiles are skipped."""
    return [
        *(line("bf16", dim, bwd) for dim in (16, "192:128") for bwd in ("", "bwd=1")),
        *(line("bf16", 128, f"stats=lse{bwd}", mask=f",dilation={dilation}") for dilation in (4, 256) for bwd in ("", " bwd=1")),
        *(line(dtype, dim, f"{DROPOUT} bwd=1") for dtype in ("bf16", "f16") for dim in (64, 128)),
        line("bf16", 128, "pages=16", few=True), line("bf16", 64, mask=DOCUMENTS),
    ]  # fmt: skip


def padded() -> list[str]:
    """Returns further dimensions, as many as long_compiled.py has time for."""
    return [line("bf16", dim, bwd) for dim in (32, 96) for bwd in ("", "bwd=1")]
