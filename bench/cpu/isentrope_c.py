"""Isentrope's C interface on torch tensors."""

import ctypes
import re
from pathlib import Path

import torch

DTYPES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3, torch.int64: 6, torch.int8: 7}
_HEADER = (Path(__file__).parents[2] / "include/isentrope/isentrope.h").read_text()
_STATISTICS = _HEADER.partition("struct isentrope_statistics {")[2].partition("}")[0]
STATISTICS = re.findall(r"isentrope_array (\w+);", _STATISTICS)
NONE, BOTTOM_RIGHT = 0, 2


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("extents", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
    ]


def struct(fields):
    return type("Struct", (ctypes.Structure,), {"_fields_": [("struct_size", ctypes.c_size_t), *fields.items()]})


Statistics = struct(dict.fromkeys(STATISTICS, Array))
Forward = struct(
    dict.fromkeys(("q", "k", "v", "block_table"), Array)
    | {"paged_keys": ctypes.c_int64}
    | dict.fromkeys(("k_scale", "v_scale", "output"), Array)
    | {"statistics": ctypes.POINTER(Statistics)}
)
Backward = struct(
    dict.fromkeys(("q", "k", "v", "output"), Array)
    | {"statistics": ctypes.POINTER(Statistics), "d_output": Array, "d_statistics": ctypes.POINTER(Statistics)}
    | dict.fromkeys(("dq", "dk", "dv", "d_bias", "d_lambda", "d_sinks"), Array)
)


def array_of(tensor):
    array = Array(tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim())
    array.extents[: tensor.dim()] = tensor.shape
    array.strides[: tensor.dim()] = tensor.stride()
    return array


class Isentrope:
    def __init__(self, library):
        self.library = ctypes.CDLL(str(library))
        self.library.isentrope_options_create.restype = ctypes.c_void_p
        self.library.isentrope_last_error.restype = ctypes.c_char_p
        self.library.isentrope_active_target.restype = ctypes.c_char_p

    @property
    def target(self):
        return self.library.isentrope_active_target().decode()

    def _caller(self, function, struct_type, causal, tensors, statistics):
        options = ctypes.c_void_p(self.library.isentrope_options_create())
        self.library.isentrope_options_set_causal(options, BOTTOM_RIGHT if causal else NONE)
        requested = Statistics(struct_size=ctypes.sizeof(Statistics))
        call = struct_type(struct_size=ctypes.sizeof(struct_type), statistics=ctypes.pointer(requested))
        for struct, arrays in ((call, tensors), (requested, statistics)):
            for name, tensor in arrays.items():
                setattr(struct, name, array_of(tensor))

        def run(keep=(tensors, requested, statistics)):  # keeps the call's arguments alive
            if function(options, ctypes.byref(call)) != 0:
                raise RuntimeError(self.library.isentrope_last_error().decode())

        return run

    def forward(self, q, k, v, output, causal, statistics):
        tensors = {"q": q, "k": k, "v": v, "output": output}
        return self._caller(self.library.isentrope_forward, Forward, causal, tensors, statistics)

    def quantized(self, rows):
        """Returns 8-bit codes of keys or values, and their scales, one a row."""
        codes, scales = torch.empty_like(rows, dtype=torch.int8), torch.empty(*rows.shape[:3], 1)
        arrays = [array_of(x) for x in (rows, codes, scales)]
        if self.library.isentrope_quantize(*map(ctypes.byref, arrays)) != 0:
            raise RuntimeError(self.library.isentrope_last_error().decode())
        return codes, scales

    def forward_quantized(self, q, k, v, output, statistics):
        tensors = {"q": q, "output": output}
        for name, (codes, scales) in {"k": k, "v": v}.items():
            tensors |= {name: codes, f"{name}_scale": scales}
        return self._caller(self.library.isentrope_forward, Forward, False, tensors, statistics)

    def backward(self, q, k, v, output, causal, statistics, d_output, dq, dk, dv):
        tensors = {"q": q, "k": k, "v": v, "output": output}
        tensors |= {"d_output": d_output, "dq": dq, "dk": dk, "dv": dv}
        lse = {"lse": statistics["lse"]}
        return self._caller(self.library.isentrope_backward, Backward, causal, tensors, lse)


def all_statistics(q):
    rows = q.shape[:3]
    return {name: torch.empty(rows, dtype=torch.int64 if name == "support" else None) for name in STATISTICS}
