"""Every argument of every public function with invalid values: refused by its name, or successful."""

import inspect
import re
import warnings
from fractions import Fraction

import pytest
import torch

import isentrope
from isentrope import AttentionState, ScaleRule, Statistics
from isentrope._core.options import DocumentOptions, MaskOptions, Options, RowOptions, SequenceOptions

Q, K = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8)
CU_Q, CU_K = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7])
PACKED = torch.randn(5, 4, 8), torch.randn(7, 2, 8)
CODES = isentrope.quantize(K)
STATE = AttentionState(torch.randn(2, 4, 5, 8), Statistics(lse=torch.randn(2, 4, 5)))


def _jagged():
    return torch.nested.nested_tensor([torch.randn(3, 4, 8), torch.randn(5, 4, 8)], layout=torch.jagged).transpose(1, 2)


def _strided():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it is a prototype
        return torch.nested.nested_tensor([torch.randn(4, 3, 8), torch.randn(4, 5, 8)])


TERRIBLE = {
    "None": None, "True": True, "False": False, "zero": 0, "minus one": -1, "minus two": -2, "one": 1, "2^31": 1 << 31,
    "2^62": 1 << 62, "2^63": 1 << 63, "-2^63 - 1": -(1 << 63) - 1, "2^64": 1 << 64, "ten to 400": 10**400,
    "NaN": float("nan"), "infinity": float("inf"), "-infinity": -float("inf"), "1e308": 1e308, "-0.3": -0.3, "denormal": 5e-324,
    "a fraction": Fraction(1, 3), "complex": 1j, "no text": "", "text": "nonsense", "long text": "x" * 100_000,
    "a null character": "standard\0", "a surrogate": "\ud800", "bytes": b"standard", "no list": [], "list": [1, 2],
    "tuple": (1, 2), "endless tuple": (1 << 63, -1), "dict": {}, "a set": {"lse"}, "a type": int, "an object": object(),
    "a function": len,
    "a scalar": torch.tensor(5), "a scalar float": torch.tensor(0.5), "one number": torch.tensor([3]),
    "nothing": torch.empty(0), "no integers": torch.empty(0, dtype=torch.int64), "a single zero": torch.tensor([0]),
    "wide integers": torch.tensor([1 << 62, -1]), "most negative": torch.tensor([-(1 << 63), (1 << 63) - 1]),
    "int32": torch.tensor([1, 2], dtype=torch.int32), "int8": torch.tensor([1, 2], dtype=torch.int8),
    "unsigned": torch.tensor([1, 2], dtype=torch.uint64), "bools": torch.tensor([True, False]),
    "float8": torch.randn(2, 4, 5, 8).to(torch.float8_e4m3fn), "complex numbers": torch.randn(2, 4, 5, 8, dtype=torch.complex64),
    "NaNs": torch.full((2, 4, 5, 8), float("nan")), "other rank": torch.randn(4, 5, 8), "rank five": torch.randn(1, 2, 4, 5, 8),
    "no rows": torch.randn(2, 4, 0, 8), "no columns": torch.randn(2, 4, 5, 0), "no batch": torch.randn(0, 4, 5, 8),
    "another batch": torch.randn(3, 4, 5, 8), "integers": torch.ones(2, 4, 5, 8, dtype=torch.int64),
    "meta": torch.empty(2, 4, 5, 8, device="meta"), "sparse": torch.randn(2, 4, 5, 8).to_sparse(),
    "half sparse": torch.eye(5).to_sparse_csr(), "jagged": _jagged(), "strided nested": _strided(),
    "quantized": torch.quantize_per_tensor(torch.randn(2, 4, 5, 8), 0.1, 0, torch.qint8),
    "opaque": torch.randn(2, 4, 5, 8).to_mkldnn(), "huge by strides": torch.ones(()).expand(1 << 20, 1 << 20, 1 << 10, 1 << 10),
}  # fmt: skip


def masks_of(options):
    """Returns a valid value for each mask option of the function."""
    right = {
        "causal": False, "window_size": (3, 0), "dilation": 0, "chunk_size": 0, "prefix_keys": None,
        "key_begin": torch.tensor([0, 1]), "key_end": torch.tensor([7, 6]), "attn_mask": torch.ones(5, 7, dtype=torch.bool),
        "query_offset": 0, "key_offset": 0, "sequence_keys": 0, "dropout_p": 0.1, "dropout_seed": 3, "bias": torch.zeros(5, 7),
        "soft_cap": 5.0, "sinks": torch.zeros(4), "rule": "logn(3)", "scale": 0.3, "is_causal": False, "enable_gqa": True,
    }  # fmt: skip
    return {name: right[name] for name in options.__annotations__} | {"return_stats": ("lse", "entropy")}


CALLS = {
    "attention": (isentrope.attention, {"q": Q, "k": K, "v": K} | masks_of(Options)),
    "attention_rows": (isentrope.attention_rows, {"q": Q, "k": K, "v": K, "lambda_": torch.ones(2, 4, 5)} | masks_of(RowOptions)),
    "varlen_attention": (
        isentrope.varlen_attention,
        {"q": PACKED[0], "k": PACKED[1], "v": PACKED[1], "cu_seq_q": CU_Q, "cu_seq_k": CU_K} | masks_of(DocumentOptions),
    ),
    "decode": (
        isentrope.decode,
        {"q": Q, "k_cache": K, "v_cache": K, "block_table": torch.tensor([[0], [1]]), "seqused_k": torch.tensor([5, 7])}
        | masks_of(SequenceOptions),
    ),
    "write_cache": (isentrope.write_cache, dict.fromkeys("kv", PACKED[1]) | {"k_cache": K.clone(), "v_cache": K.clone(), "slot_mapping": torch.arange(7)}),
    "quantize": (isentrope.quantize, {"rows": K, "group_size": 4}),
    "decode of codes": (
        isentrope.decode, {"q": Q, "k_cache": CODES[0], "v_cache": CODES[0], "k_scale": CODES[1], "v_scale": CODES[1]},
    ),
    "row_lengths": (isentrope.row_lengths, {"q": Q, "k": K} | {k: v for k, v in masks_of(MaskOptions).items() if k != "return_stats"}),
    "scaled_dot_product_attention": (
        isentrope.scaled_dot_product_attention,
        {"query": Q, "key": K, "value": K, "attn_mask": torch.ones(5, 7).bool(), "dropout_p": 0.1, "is_causal": False,
         "scale": 0.3, "enable_gqa": True},
    ),
    "sdpa.activate": (lambda rule: isentrope.sdpa.activate(rule).remove(), {"rule": "logn(3)"}),
    "merge": (isentrope.merge, {"a": STATE, "b": STATE}),
    "merge of outputs": (lambda a: isentrope.merge(AttentionState(a, STATE.statistics), STATE), {"a": STATE.output}),
    "merge of lse": (lambda b: isentrope.merge(STATE, AttentionState(STATE.output, Statistics(lse=b))), {"b": STATE.statistics.lse}),
    "SSMax": (isentrope.SSMax, {"heads": 4, "s": 0.4, "b": 0.1, "learn_b": True}),
    "SSMax.forward": (isentrope.SSMax(4), {"q": Q, "k": K, "v": K} | masks_of(RowOptions)),
    "ScaleRule": (ScaleRule, {"text": "logn(3)"}),
    "ScaleRule.from_json": (ScaleRule.from_json, {"text": '{"rule": "logn"}'}),
    "ScaleRule.lambda_": (ScaleRule("logn(3)").lambda_, {"n": 5, "d": 8, "head": 0}),
    "Monitor": (isentrope.Monitor, {"model": torch.nn.Linear(2, 2)}),
}  # fmt: skip
POLICY = {"length": 300, "n_min": 2, "n_max": 1000, "offset": 0.5, "where": "pre_cap", "scale_bias": False}
RIGHT = {"table": {"n": [1, 10], "factor": [1.0, 2.0]}, "per_row": {"lambda_": [0.1, 0.2]}, "closed_form": {"growth": "log", "unit": 3}}
for name in ScaleRule.names():
    constructor = getattr(ScaleRule, name)
    parameters = inspect.signature(constructor).parameters
    defaults = {p: x.default for p, x in parameters.items() if x.default is not inspect.Parameter.empty and p != "policy"}
    CALLS[f"ScaleRule.{name}"] = constructor, defaults | RIGHT.get(name, {}) | POLICY

ALSO = {  # other names of these arguments in errors: parts of the option, or the library's name
    "cu_seq_q": "cu_seqlens_q|documents", "cu_seq_k": "cu_seqlens_k|documents", "lambda_": "lambda", "text": "rule|text|JSON",
    "window_size": "window_left|window_right", "rule": "rules?", "d": "dim",
    "n_min": "n_max",
}  # fmt: skip
# Arguments that must match each other: either may be named.
ALSO |= dict.fromkeys(("q", "k", "v", "k_cache", "v_cache", "query", "key", "value"), "q|k|v|attn_mask|bias|lambda_?|seqused_k|block_table|k_scale")


def refusal(call, arguments):
    """Returns the error of the call; None if it works. Errors other than ValueError and TypeError fail the test."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**arguments)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def wrong_answers(call, argument, also, arguments, values=TERRIBLE):
    """Returns wrong responses to invalid values of one argument: other errors, or errors without its name."""
    named = re.compile(rf"\b({argument}|{argument.rstrip('_')}|{also.get(argument, argument)})\b")
    for label, value in values.items():
        try:
            said = refusal(call, arguments() | {argument: value})
        except Exception as error:
            yield f"{label}: {type(error).__name__}: {error}"[:300]
            continue
        if said is not None and not named.search(said):
            yield f"{label}: {said}"[:300]
        if said is not None and len(said) > 5000:
            yield f"{label}: a message of {len(said)} characters"


def two_tests_of(calls, also, more=lambda right: {}, callbacks=()):
    """Returns two tests: that the arguments of the calls work, and that no argument has a wrong answer.

    more: makes further arguments for each call. callbacks: arguments whose errors inside are their own."""

    @pytest.mark.parametrize("function", calls)
    def works(function):
        call, right = calls[function]
        assert refusal(call, right | more(right)) is None

    @pytest.mark.parametrize("function, argument", [(name, argument) for name in calls for argument in calls[name][1]])
    def refuses(function, argument):
        call, right = calls[function]
        values = {label: x for label, x in TERRIBLE.items() if not (callable(x) and argument in callbacks)}
        assert not list(wrong_answers(call, argument, also, lambda: right | more(right), values))

    return works, refuses


test_what_is_right_works, test_what_is_terrible_is_refused_by_name_or_works = two_tests_of(CALLS, ALSO)
