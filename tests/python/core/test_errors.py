"""Errors name invalid arguments, with the requirement and the value."""

from types import SimpleNamespace

import pytest
import torch
from refusals import assert_refused

import isentrope
from isentrope._core.call import Call
from isentrope._core.library import CHECKED, below_autograd, checked
from isentrope._core.options import SequenceOptions

Q = torch.randn(2, 4, 5, 8)
K = V = torch.randn(2, 2, 7, 8)
CU_Q, CU_K = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7])
PACKED = torch.randn(5, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)

WRONG = {
    "no tensor": ({"k": [1.0]}, TypeError, "k must be a tensor; got list"),
    "rank": ({"q": Q[0]}, ValueError, "q must have 4 dimensions; got 3"),
    "layout": ({"q": Q.to_sparse()}, ValueError, "q must be a dense tensor; got one that is sparse_coo: use x.to_dense"),
    "float8": ({"q": Q.to(torch.float8_e4m3fn)}, ValueError, "q must be float32, bfloat16 or float16; got float8_e4m3fn"),
    "a large integer": ({"query_offset": 1 << 63}, ValueError, "query_offset must be an integer of 64 bits; got 9223372036854775808"),
    "a large prefix": ({"prefix_keys": 1 << 64}, ValueError, "prefix_keys must be an integer of 64 bits"),
    "a large window": ({"window_size": (1 << 63, 0)}, ValueError, "window_left must be an integer of 64 bits"),
    "a large number": ({"soft_cap": 10**400}, ValueError, r"soft_cap must be a number that a double holds; got 10+\.\.\."),
    "a dtype by name": ({"k": K.to(torch.complex64)}, ValueError, "complex64"),
    "dtype": ({"q": Q.int(), "k": K.int(), "v": V.int()}, ValueError, "q must be float32, bfloat16 or float16; got int32"),
    "double beside float": ({"k": K.double()}, ValueError, "k must be float32, bfloat16 or float16; got float64"),
    "float beside double": ({"q": Q.double()}, ValueError, "k must be float64; got float32"),
    "two dtypes": ({"q": Q.half()}, ValueError, "k must be f16, as q is; got f32"),
    "dtypes of keys and values": ({"k": K.half()}, ValueError, "v must be f16, as k is; got f32"),
    "device": ({"q": Q.to("meta")}, ValueError, "q must be on the CPU, a CUDA or an XPU device; got meta"),
    "dim": ({"k": K[..., :4]}, ValueError, r"k must have shape \[2, 2, 7, 8\]; got \[2, 2, 7, 4\]"),
    "heads": ({"k": torch.randn(2, 3, 7, 8)}, ValueError, "k must have a number of heads that divides that of q; got 3 for 4"),
    "rule": ({"rule": "lgn(512)"}, ValueError, r'a rule must be one of .* got "lgn\(512\)".*did you mean logn'),
    "rule's type": ({"rule": 512}, TypeError, "rule must be a str or a ScaleRule; got int"),
    "rule's heads": ({"rule": "ssmax(s=[1, 2])"}, ValueError, "rule must have a number for each of the 4 heads"),
    "rule's domain": ({"rule": "logn(0.5)"}, ValueError, "train_len"),
    "scale": ({"scale": float("nan")}, ValueError, "scale must be at least .* got scale = nan"),
    "scale's size": ({"scale": -2e9}, ValueError, "scale must be at least .* got scale = -2e"),
    "scale's type": ({"scale": "big"}, TypeError, "scale must be a number; got 'big'"),
    "causal": ({"causal": "lower_right"}, ValueError, "causal must be .* got 'lower_right'"),
    "causal as in C": ({"causal": 1}, ValueError, "causal must be .* got 1"),
    "window": ({"window_size": 4}, TypeError, "window_size must be two integers; got 4"),
    "prefix and window": ({"prefix_keys": 2, "window_size": (3, 0)}, ValueError,
                          "prefix_keys must be absent with window_left, which would leave a gap in a row's keys; got window_left = 3"),
    "prefix and chunks": ({"prefix_keys": torch.ones(2).long(), "chunk_size": 4}, ValueError,
                          "prefix_keys must be absent with chunk_size, .*; got chunk_size = 4"),
    "prefix's shape": ({"prefix_keys": torch.ones(3).long()}, ValueError, r"prefix_keys must have shape \[2\]; got \[3\]"),
    "a prefix of no sequence": ({"prefix_keys": torch.empty(0).long()}, ValueError, r"prefix_keys must have shape \[2\]; got \[0\]"),
    "prefix's type": ({"prefix_keys": 2.0}, TypeError, "prefix_keys must be an int32 or int64 tensor; got float"),
    "prefix and dilation": ({"prefix_keys": torch.ones(2).long(), "dilation": 2}, ValueError,
                            "prefix_keys must be absent with dilation, .*; got dilation = 2"),
    "dilation": ({"dilation": -1}, ValueError, "dilation must not be negative; got -1"),
    "chunks": ({"chunk_size": -4}, ValueError, "chunk_size must not be negative; got -4"),
    "mask's type": ({"attn_mask": torch.zeros(5, 7).int()}, TypeError,
                    r"attn_mask must be a bool tensor, or for `attention` a floating-point tensor.*got int32 \[5, 7\]"),
    "mask's shape": ({"attn_mask": torch.ones(5, 6).bool()}, ValueError,
                     r"attn_mask must be broadcastable to \[2, 4, 5, 7\]; got \[5, 6\]"),
    "bias": ({"bias": torch.ones(5, 7).bool()}, TypeError, "bias must be a floating-point tensor"),
    "soft-cap": ({"soft_cap": -1.0}, ValueError, "soft_cap must be finite and not negative; got -1"),
    "sinks": ({"sinks": torch.zeros(3)}, ValueError, r"sinks must have shape \[4\]; got \[3\]"),
    "padding": ({"key_end": torch.tensor([3])}, ValueError, r"key_end must have shape \[2\]; got \[1\]"),
    "padding's type": ({"key_end": torch.ones(2)}, TypeError, "key_end must be an int32 or int64 tensor"),
    "offset": ({"query_offset": -1}, ValueError, "query_offset must not be negative; got -1"),
    "offset's type": ({"query_offset": 1.5}, TypeError, "query_offset must be an integer; got 1.5"),
    "key offset's type": ({"key_offset": None}, TypeError, "key_offset must be an integer; got None"),
    "length's type": ({"sequence_keys": "7"}, TypeError, "sequence_keys must be an integer; got '7'"),
    "soft-cap's type": ({"soft_cap": "x"}, TypeError, "soft_cap must be a number; got 'x'"),
    "no soft-cap": ({"soft_cap": None}, TypeError, "soft_cap must be a number; got None"),
    "window's sides": ({"window_size": (None, 0)}, TypeError, r"window_size must be two integers; got \(None, 0\)"),
    "window's text": ({"window_size": ("a", 0)}, TypeError, "window_size must be two integers"),
    "window's limit": ({"window_size": (-7, -3)}, ValueError, r"window_size must be at least -1.*got \(-7, -3\)"),
    "dropout": ({"dropout_p": 1.5}, ValueError, "dropout_p must be at least 0 and below 1; got 1.5"),
    "dropout below 0": ({"dropout_p": -0.1}, ValueError, "dropout_p must be at least 0 and below 1; got -0.1"),
    "dropout's type": ({"dropout_p": "0.1"}, TypeError, "dropout_p must be a number; got '0.1'"),
    "seed's type": ({"dropout_p": 0.1, "dropout_seed": 0.5}, TypeError,
                    "dropout_seed must be an integer or a 0-dimensional int64 tensor; got float"),
    "seed's shape": ({"dropout_p": 0.1, "dropout_seed": torch.tensor([5])}, TypeError,
                     r"dropout_seed must be .* got int64 \[1\]"),
    "seed's size": ({"dropout_p": 0.1, "dropout_seed": 1 << 63}, ValueError,
                    "dropout_seed must be an integer of 64 bits; got 9223372036854775808"),
    "rule in a list": ({"rule": ["standard"]}, TypeError, "rule must be a str or a ScaleRule; got list"),
    "scale's truth": ({"scale": True}, TypeError, "scale must be a number; got True"),
    "no statistics": ({"return_stats": None}, TypeError, "return_stats must be a bool or names .* got None"),
    "statistics' number": ({"return_stats": 1}, TypeError, "return_stats must be a bool or names .* got 1"),
    "statistics": ({"return_stats": ("entropie",)}, ValueError, "return_stats must be .* got 'entropie'"),
}  # fmt: skip

DECODES = {"q", "k", "v", "return_stats", *SequenceOptions.__annotations__}

ELSEWHERE = {
    "attn_mask": torch.ones(5, 7, dtype=torch.bool), "bias": torch.zeros(5, 7), "sinks": torch.zeros(4),
    "prefix_keys": torch.ones(2).long(), "key_begin": torch.zeros(2).long(), "key_end": torch.ones(2).long(), "lambda_": torch.ones(5),
    "cu_seqlens_q": CU_Q, "cu_seqlens_k": CU_K, "block_table": torch.tensor([[0], [1]]), "seqused_k": torch.tensor([5, 7]),
    "dropout_seed": torch.tensor(3),
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_every_tensor_must_lie_where_q_does(name):
    """Without this check the result would be uninitialised memory."""
    passed = ELSEWHERE | {name: ELSEWHERE[name].to("meta")}
    with pytest.raises(ValueError, match=f"{name} must be on cpu, as q does; got meta"):
        if name.startswith("cu_"):
            isentrope.varlen_attention(*PACKED, passed["cu_seqlens_q"], passed["cu_seqlens_k"])
        elif name in ("block_table", "seqused_k"):
            isentrope.decode(Q, K, V, passed["block_table"], passed["seqused_k"])
        elif name == "lambda_":
            isentrope.attention_rows(Q, K, V, passed["lambda_"])
        else:
            isentrope.attention(Q, K, V, **{name: passed[name]})


@pytest.mark.parametrize("name", WRONG)
def test_attention_names_the_argument(name):
    changed, error, message = WRONG[name]
    arguments = {"q": Q, "k": K, "v": V} | changed
    assert_refused(message, isentrope.attention, error=error, **arguments)


RIGHT = {
    "varlen_attention": dict(zip("qkv", PACKED)) | {"cu_seq_q": CU_Q, "cu_seq_k": CU_K},
    "varlen_attention over a cache": {
        "q": PACKED[0], "k": K, "v": K, "cu_seq_q": CU_Q, "block_table": torch.tensor([[0], [1]]), "seqused_k": torch.tensor([5, 7])},
    "write_cache": {
        "k": torch.zeros(2, 2, 8), "v": torch.zeros(2, 2, 8), "k_cache": K.clone(), "v_cache": V.clone(), "slot_mapping": torch.tensor([0, 3])},
    "decode": {
        "q": Q, "k_cache": K, "v_cache": V, "block_table": torch.tensor([[0], [1]]), "seqused_k": torch.tensor([5, 7])},
}  # fmt: skip
REFUSED = [
    ("varlen_attention", {"q": PACKED[0][None]}, ValueError, "q must be a tensor of 3 dimensions"),
    ("varlen_attention", {"cu_seq_q": torch.tensor([0, 2, 6])}, ValueError, "cu_seqlens_q must begin with 0 and end with 5; got 0 ... 6"),
    ("varlen_attention", {"cu_seq_k": torch.tensor([0, 7])}, ValueError, "cu_seqlens_k must have as many documents as cu_seqlens_q"),
    ("varlen_attention", {"cu_seq_k": [0, 3, 7]}, TypeError, "cu_seqlens_k must be an int32 or int64 tensor; got list"),
    ("varlen_attention", {"seqused_k": torch.tensor([5, 7])}, ValueError, r"seqused_k must be None without block_table; got int64 \[2\]"),
    ("varlen_attention over a cache", {"cu_seq_k": CU_K}, ValueError, r"cu_seq_k must be None with block_table; got int64 \[3\]"),
    ("varlen_attention over a cache", {"cu_seq_q": torch.tensor([0, 6, 5])}, ValueError, "cu_seq_q must never decrease; got 6 before 5"),
    ("varlen_attention over a cache", {"cu_seq_q": torch.tensor([0, 5])}, ValueError, r"cu_seq_q must have shape \[3\]; got \[2\]"),
    ("varlen_attention over a cache", {"cu_seq_q": [0, 2, 5]}, TypeError, "cu_seq_q must be an int32 or int64 tensor; got list"),
    ("varlen_attention over a cache", {"dropout_p": 0.5}, ValueError, "dropout_p must be 0 with seqused_k and with cu_seq_q; got 0.5"),
    ("varlen_attention over a cache", {"q": PACKED[0].clone().requires_grad_()}, ValueError, "must not require gradients"),
    ("write_cache", {"k": K}, ValueError, "k must be a tensor of 3 dimensions; got float32"),
    ("write_cache", {"k_cache": PACKED[0]}, ValueError, "k_cache must be a tensor of 4 dimensions; got float32"),
    ("write_cache", {"slot_mapping": [0]}, TypeError, "slot_mapping must be an int32 or int64 tensor; got list"),
    ("write_cache", {"slot_mapping": torch.tensor([0, 14])}, ValueError, "slot_mapping must hold slots of the 2 pages of 7 keys; got 14"),
    ("write_cache", {"slot_mapping": torch.tensor([0])}, ValueError, r"slot_mapping must have shape \[2\]; got \[1\]"),
    ("write_cache", {"v_cache": K.half()}, ValueError, "v_cache must be f32, as k is; got f16"),
    ("decode", {"block_table": torch.tensor([[0]])}, ValueError, "must have a row for each of the 2 sequences; got 1 and 2"),
    ("decode", {"block_table": torch.tensor([0, 1]), "seqused_k": None}, ValueError, "block_table must have 2 dimensions; got 1"),
    ("decode", {"block_table": torch.tensor([[1 << 32], [1]])}, ValueError, "block_table must hold page numbers below 2; got 4294967296"),
    ("decode", {"block_table": torch.tensor([[-(1 << 32)], [1]])}, ValueError, "block_table must hold page numbers below 2; got -4294967296"),
    ("decode", {"seqused_k": torch.tensor([5, -1])}, ValueError, "seqused_k must be .*; got -1"),
    ("decode", {"seqused_k": torch.tensor([1 << 62, 3])}, ValueError, "seqused_k must be .*; got 4611686018427387904"),
    ("decode", {"prefix_keys": torch.tensor([1, 2, 3])}, ValueError, r"prefix_keys must have shape \[2\]; got \[3\]"),
    ("decode", {"sinks": torch.zeros(3)}, ValueError, "sinks must have shape"),
    ("decode", {"soft_cap": -1.0}, ValueError, "soft_cap must be finite and not negative"),
    ("decode", {"q": Q.clone().requires_grad_()}, ValueError, "must not require gradients"),
    *((function, {name: value}, ValueError, message) for function in ("varlen_attention over a cache", "decode") for name, value, message in (
        ("seqused_k", torch.tensor([8, 3]), "seqused_k must be at least 0 and at most 7, the keys that a sequence has pages for; got 8"),
        ("block_table", torch.tensor([[0], [9]]), "block_table must hold page numbers below 2; got 9"),
        ("prefix_keys", torch.tensor([1]), r"prefix_keys must have shape \[2\]; got \[1\]"),
    )),
]  # fmt: skip


@pytest.mark.parametrize("function, changed, error, message", REFUSED)
def test_other_functions_name_the_argument_and_themselves(function, changed, error, message):
    name = function.partition(" ")[0]
    said = "attention" if message.startswith("cu_seqlens") else name  # as the library names it
    assert_refused(rf"\[{said}\] .*{message}", getattr(isentrope, name), error=error, **RIGHT[function] | changed)


@pytest.mark.parametrize("name", [name for name in WRONG if DECODES.issuperset(WRONG[name][0])])
def test_decode_says_of_attentions_arguments_that_they_are_its_own(name):
    changed, error, _ = WRONG[name]
    arguments = {"q": Q, "k": K, "v": V, "seqused_k": torch.tensor([5, 7])} | changed
    caches = {"k_cache": arguments.pop("k"), "v_cache": arguments.pop("v")}
    with pytest.raises(error) as raised:
        isentrope.decode(**arguments, **caches, block_table=torch.tensor([[0], [1]]))
    assert str(raised.value).startswith(("[decode] ", "[scale_rule] ")), raised.value


def test_a_number_that_compares_equal_is_still_no_number():
    isentrope.attention(Q, K, V, scale=1)
    assert_refused("scale must be a number; got True", isentrope.attention, Q, K, V, error=TypeError, scale=True)


def test_names_may_come_from_a_generator():
    _, s = isentrope.attention(Q, K, V, return_stats=(name for name in ("lse", "entropy")))
    assert s.lse is not None and s.entropy is not None and s.collision is None


class Attend(torch.nn.Module):
    def forward(self, q, k, v):
        return isentrope.attention(q, k, v)


def test_backward_says_that_the_forward_pass_had_no_gradients():
    with torch.no_grad():
        exported = torch.export.export(Attend(), (Q, K, V)).module()
    with pytest.raises(ValueError, match="backward needs a forward pass .* with gradients enabled"):
        exported(Q.clone().requires_grad_(), K, V).sum().backward()


@pytest.mark.parametrize("way", [checked, lambda f: below_autograd(SimpleNamespace(_op=f))])
@pytest.mark.parametrize(
    "error, kind",
    [
        (RuntimeError("[attention] k must be float32; got float64"), ValueError),
        (RuntimeError("[isentrope] torch could not make a tensor"), RuntimeError),
        (RuntimeError("not ours"), RuntimeError),
        (NotImplementedError("[mode] not here"), NotImplementedError),
    ],
)
def test_what_the_library_refuses_is_a_value_error_under_every_torch(way, error, kind):
    def refuses(*_):
        raise error from KeyError("why")  # form of the error from torch 2.15 on

    with pytest.raises(kind) as raised:
        way(refuses)(1, 2)
    assert str(raised.value) == str(error) and type(raised.value) is kind
    assert kind is ValueError or isinstance(raised.value.__cause__, KeyError)


def _wrong():
    return torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 5)


def _under_sdpa():
    q = torch.randn(1, 2, 3, 4)
    with isentrope.sdpa.activate("ssmax(s=[1,2,3])"):
        torch.nn.functional.scaled_dot_product_attention(q, q, q)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.func.grad(lambda q, k: isentrope.attention(q, k, q).sum())(*_wrong()),
        lambda: torch.vmap(lambda q, k: isentrope.attention(q, k, q))(*(x[None] for x in _wrong())),
        lambda: torch.vmap(lambda q, k: isentrope.row_lengths(q, k))(*(x[None] for x in _wrong())),
        _under_sdpa,
    ],
)
def test_so_it_is_in_transforms_and_behind_torchs_own_function(call):
    assert_refused(r"\[attention\] \w+ must", call)


def test_backward_reads_no_statistics_of_other_strides():
    call = Call(Q, K, V)
    output, statistics, _ = torch.ops.isentrope.attention(*call, 1)
    statistics = statistics.transpose(2, 3).contiguous().transpose(2, 3)
    with pytest.raises(ValueError, match="statistics must be contiguous"):
        CHECKED.attention_backward(*call, 1, output, statistics, output, None, False, False, False, False)
