"""Isentrope's C interface on torch tensors."""

import ctypes

import torch

DTYPES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3, torch.int64: 6}
STATISTICS = ("lse", "entropy", "collision", "max_logit", "variance", "lambda")
NONE, BOTTOM_RIGHT = 0, 2


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("extents", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
    ]


def struct(*names):
    fields = [("struct_size", ctypes.c_size_t)]
    fields += [(name, ctypes.c_int64 if name == "paged_keys" else Array) for name in names]
    return type("Call", (ctypes.Structure,), {"_fields_": fields})


Forward = struct("q", "k", "v", "block_table", "paged_keys", "output", *STATISTICS, "support")
Backward = struct(
    *("q", "k", "v", "output", "lse", "entropy", "collision", "variance"),
    *("d_output", "d_lse", "d_entropy", "d_collision", "d_variance"),
    *("dq", "dk", "dv", "d_bias", "d_lambda", "d_sinks"),
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

    def _caller(self, function, struct_type, causal, tensors):
        options = ctypes.c_void_p(self.library.isentrope_options_create())
        self.library.isentrope_options_set_causal(options, BOTTOM_RIGHT if causal else NONE)
        call = struct_type(struct_size=ctypes.sizeof(struct_type))
        for name, tensor in tensors.items():
            setattr(call, name, array_of(tensor))

        def run(keep=tensors):  # the tensors live as long as the call does
            if function(options, ctypes.byref(call)) != 0:
                raise RuntimeError(self.library.isentrope_last_error().decode())

        return run

    def forward(self, q, k, v, output, causal, statistics):
        tensors = {"q": q, "k": k, "v": v, "output": output} | statistics
        return self._caller(self.library.isentrope_forward, Forward, causal, tensors)

    def backward(self, q, k, v, output, causal, statistics, d_output, dq, dk, dv):
        tensors = {"q": q, "k": k, "v": v, "output": output, "lse": statistics["lse"]}
        tensors |= {"d_output": d_output, "dq": dq, "dk": dk, "dv": dv}
        return self._caller(self.library.isentrope_backward, Backward, causal, tensors)


def all_statistics(q):
    rows = q.shape[:3]
    statistics = {name: torch.empty(rows) for name in STATISTICS}
    return statistics | {"support": torch.empty(rows, dtype=torch.int64)}
