"""Attention calls to time, each a row of the table."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Work:
    # forward, gradient (with forward), decode, entropy (forward with row entropy); on a GPU also statistics (forward
    # with each), entropy gradient (of a loss that reads it), double gradient (and its own); small calls from Python: call, call gradient, call entropy
    kind: str
    batch: int
    heads: int
    queries: int
    keys: int
    dim: int
    dtype: str = "f32"
    causal: bool = False
    kv_heads: int = 0  # 0: same as heads
    page: int = 0  # keys of a page of a decode step's cache, which peers read contiguous; 0: contiguous for all

    @property
    def key_heads(self):
        return self.kv_heads or self.heads

    @property
    def from_python(self):
        return self.kind.startswith("call")

    @property
    def name(self):
        kv = f":{self.kv_heads}" if self.kv_heads else ""
        mask = "causal" if self.causal else "full"
        shape = f"{self.batch} x {self.heads}{kv} x {self.keys} x {self.dim}"
        pages = f", pages of {self.page}, peers contiguous" if self.page else ""
        return f"{self.kind} {shape} {self.dtype} {mask}{pages}"

    @property
    def flops(self):
        """4 d for each pair of query and key, half of the square if causal; times 2.5 for the backward pass, 7.5 more if twice."""
        pairs = self.batch * self.heads * self.queries * self.keys * (0.5 if self.causal else 1)
        passes = 11 if self.kind == "double gradient" else 3.5 if self.kind.endswith("gradient") else 1
        return 4 * pairs * self.dim * passes

    @property
    def bytes(self):
        """Bytes of the cache that a decode step reads."""
        return 2 * self.batch * self.key_heads * self.keys * self.dim * (4 if self.dtype == "f32" else 2)

    def as_json(self):
        # The report draws calls of one kind as one curve.
        kind = f"{self.kind} in pages of {self.page}" if self.page else self.kind
        return asdict(self) | {"kind": kind, "name": self.name}


def square(kind, batch, heads, n, dim, dtype="f32", causal=False):
    return Work(kind, batch, heads, n, n, dim, dtype, causal)


def decode(keys, dtype):
    return Work("decode", 1, 32, 1, keys, 128, dtype, False, 8)


# Small calls, dominated by dispatch. Peers cannot return entropy.
CALLS = [
    square("call", 1, 8, 1, 64),
    square("call entropy", 1, 8, 1, 64),
    square("call", 1, 8, 16, 64),
    square("call gradient", 1, 8, 16, 64),
]

QUICK = [
    *CALLS,
    square("forward", 64, 8, 64, 32),
    square("forward", 1, 8, 512, 64),
    square("forward", 1, 8, 2048, 64),
    square("forward", 1, 8, 2048, 64, causal=True),
    square("forward", 1, 8, 2048, 64, "bf16"),
    square("forward", 1, 4, 2048, 128),
    square("gradient", 1, 4, 1024, 64),
    square("gradient", 64, 8, 64, 32),
    decode(8192, "f32"),
    decode(8192, "bf16"),
]

FULL = [
    *CALLS,
    *(square("forward", 64, 8, 64, 32, dtype) for dtype in ("f32", "bf16")),
    *(
        square("forward", 1, 8, n, dim, dtype, causal)
        for dim in (64, 128)
        for dtype in ("f32", "bf16")
        for causal in (False, True)
        for n in (512, 1024, 2048, 4096)
    ),
    square("forward", 1, 4, 8192, 128),
    square("forward", 1, 4, 8192, 128, causal=True),
    square("forward", 1, 4, 8192, 128, "bf16", causal=True),
    *(
        square("gradient", 1, 8, n, 64, dtype, causal)
        for dtype in ("f32", "bf16")
        for causal in (False, True)
        for n in (512, 2048)
    ),
    *(square("gradient", 1, 8, 2048, 128, dtype) for dtype in ("f32", "bf16")),
    *(square("gradient", 64, 8, 64, 32, dtype) for dtype in ("f32", "bf16")),
    *(square("entropy", 1, 8, 4096, 64, dtype) for dtype in ("f32", "bf16")),
    *(decode(keys, dtype) for dtype in ("f32", "bf16") for keys in (1024, 8192, 32768)),
]


def tensors_of(work, device="cpu"):
    """Returns q, k, v and the output's gradient, the same numbers on every device."""
    import torch  # here, because lists of work are read by programs without it

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[work.dtype]
    torch.manual_seed(1)
    query = (work.batch, work.heads, work.queries, work.dim)
    key = (work.batch, work.key_heads, work.keys, work.dim)
    return [torch.randn(shape, device=device).to(dtype) for shape in (query, key, key, query)]
