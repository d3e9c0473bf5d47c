"""Isentrope and its peers, each with a way to run a piece of work. A system returns None for unsupported work."""

import numpy
import torch
import torch.nn.functional as F

import isentrope
from bench.cpu.isentrope_c import Isentrope, all_statistics


def with_gradients(attention, q, k, v, d_output, **options):
    """Runs forward and backward from Python."""
    inputs = [x.detach().clone().requires_grad_() for x in (q, k, v)]

    def run():
        output = attention(*inputs, **options)
        torch.autograd.grad(output, inputs, d_output)
        return output.detach()

    return run


def call_from_python(work, q, k, v, d_output):
    if work.kind == "call gradient":
        return with_gradients(isentrope.attention, q, k, v, d_output)
    if work.kind == "call entropy":
        return lambda: isentrope.attention(q, k, v, return_stats=("entropy",))[0]
    return lambda: isentrope.attention(q, k, v)


class IsentropeSystem:
    """Isentrope through its C interface, with all statistics by default, and its calls from Python."""

    def __init__(self, library, statistics=True):
        self.library = Isentrope(library)
        self.statistics = statistics
        self.name = "isentrope" if statistics else "isentrope, lse alone"

    def prepare(self, work, q, k, v, d_output):
        if not self.statistics and work.kind != "forward":
            return None
        if work.from_python:
            return call_from_python(work, q, k, v, d_output)
        statistics = all_statistics(q)
        output = torch.empty_like(q)
        wanted = statistics if self.statistics else {"lse": statistics["lse"]}
        forward = self.library.forward(q, k, v, output, work.causal, wanted)
        if work.kind != "gradient":
            return lambda: (forward(), output)[1]
        d_inputs = [torch.empty_like(x) for x in (q, k, v)]
        backward = self.library.backward(q, k, v, output, work.causal, statistics, d_output, *d_inputs)
        return lambda: (forward(), backward(), output)[2]


class IsentropeInEightBits:
    """Decode steps with an 8-bit cache, a scale a row: half the bytes of bf16, and a different error."""

    name = "isentrope, 8 bits"

    def __init__(self, library):
        self.library = Isentrope(library)

    def prepare(self, work, q, k, v, d_output):
        if work.kind != "decode":
            return None
        output, cache = torch.empty_like(q), [self.library.quantized(x) for x in (k, v)]
        forward = self.library.forward_quantized(q, *cache, output, all_statistics(q))
        return lambda: (forward(), output)[1]


class Torch:
    name = "torch"

    def prepare(self, work, q, k, v, d_output):
        if work.kind == "entropy":
            return lambda: entropy_in_chunks(q, k, v)
        if work.kind.endswith("gradient"):
            return with_gradients(F.scaled_dot_product_attention, q, k, v, d_output, is_causal=work.causal)
        grouped = work.key_heads != work.heads
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=work.causal, enable_gqa=grouped)


def entropy_in_chunks(q, k, v):
    """Returns the entropy of every row by the cheapest method in torch: softmax in chunks of 256 rows."""
    outputs = []
    for rows in q.split(256, dim=2):
        z = (rows @ k.transpose(-1, -2)).float() * q.shape[-1] ** -0.5
        p = z.softmax(-1)
        z.logsumexp(-1) - (p * z).sum(-1)
        outputs.append(p.to(v.dtype) @ v)
    return torch.cat(outputs, 2)


class Zentorch:
    name = "zentorch"

    def __init__(self):
        import zentorch  # noqa: F401, registers its operators

    def prepare(self, work, q, k, v, d_output):
        if work.kind not in ("forward", "decode"):
            return None
        attention = torch.ops.zentorch.zentorch_sdpa
        return lambda: attention(q, k, v, 0.0, work.causal)[0]


class OpenVino:
    name = "openvino"

    def __init__(self, threads):
        import openvino

        self.ov, self.threads = openvino, threads
        self.core = openvino.Core()

    def prepare(self, work, q, k, v, d_output):
        if work.kind != "forward":
            return None
        ov = self.ov
        kind = ov.Type.f32 if work.dtype == "f32" else ov.Type.bf16
        inputs = [ov.opset13.parameter(list(x.shape), kind) for x in (q, k, v)]
        attention = ov.opset13.scaled_dot_product_attention(*inputs, causal=work.causal)
        hints = {"INFERENCE_NUM_THREADS": self.threads, "INFERENCE_PRECISION_HINT": kind.to_string()}
        request = self.core.compile_model(ov.Model([attention], inputs), "CPU", hints).create_infer_request()
        bits = numpy.float32 if work.dtype == "f32" else numpy.uint16
        view = torch.float32 if work.dtype == "f32" else torch.uint16
        arrays = [x.view(view).numpy() for x in (q, k, v)]
        for i, array in enumerate(arrays):
            request.set_input_tensor(i, ov.Tensor(array, list(array.shape), kind))

        def run(keep=arrays):
            request.infer()
            data = request.get_output_tensor(0).data
            return torch.from_numpy(data.view(bits)).view(q.dtype).reshape(q.shape)

        return run


class OnnxRuntime:
    """onnxruntime's operators: its own MultiHeadAttention, and Attention of opset 23. No bf16 on the CPU."""

    rest = 0.15  # seconds: its threads spin after a call, and halve the speed of the next system

    def __init__(self, operator, threads):
        import onnx
        import onnxruntime

        self.onnx, self.ort, self.operator = onnx, onnxruntime, operator
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.name = "ort MHA" if operator == "MultiHeadAttention" else "ort Attention"

    def _model(self, work, shape):
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        if self.operator == "MultiHeadAttention":
            attributes = {"num_heads": work.heads, "unidirectional": int(work.causal)}
            node = helper.make_node(self.operator, list("qkv"), ["o"], domain="com.microsoft", **attributes)
        else:
            node = helper.make_node(self.operator, list("qkv"), ["o"], is_causal=int(work.causal))
        values = [helper.make_tensor_value_info(name, kind, shape) for name in "qkvo"]
        graph = helper.make_graph([node], "attention", values[:3], values[3:])
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def prepare(self, work, q, k, v, d_output):
        if work.kind != "forward" or work.dtype != "f32":
            return None
        merged = self.operator == "MultiHeadAttention"  # expects [batch, queries, heads x dim]
        arrays = [x.transpose(1, 2).flatten(2).contiguous() if merged else x for x in (q, k, v)]
        output = torch.empty_like(arrays[0])
        model = self._model(work, list(output.shape))
        session = self.ort.InferenceSession(model, self.options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, x in zip("qkv", arrays):
            binding.bind_input(name, "cpu", 0, numpy.float32, list(x.shape), x.data_ptr())
        binding.bind_output("o", "cpu", 0, numpy.float32, list(output.shape), output.data_ptr())

        def run(keep=arrays):
            session.run_with_iobinding(binding)
            return output.unflatten(-1, (work.heads, -1)).transpose(1, 2) if merged else output

        return run


def all_systems(library, threads):
    """Returns the available systems, and the reasons why others are missing."""
    isentrope_systems = [IsentropeSystem(library), IsentropeSystem(library, statistics=False), IsentropeInEightBits(library)]
    systems, missing = [*isentrope_systems, Torch()], {}
    makers = {
        "zentorch": Zentorch,
        "openvino": lambda: OpenVino(threads),
        "ort MHA": lambda: OnnxRuntime("MultiHeadAttention", threads),
        "ort Attention": lambda: OnnxRuntime("Attention", threads),
    }
    for name, make in makers.items():
        try:
            systems.append(make())
        except Exception as error:
            missing[name] = str(error).splitlines()[0]
    return systems, missing
