"""Fake tensors: every operator and function returns the right shapes and types without reading data; and schemas."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import isentrope
from isentrope._core.call import Call
from isentrope._core.library import OPS, SUPPORT
from isentrope.statistics import ALL

Q, K = torch.randn(2, 5, 4, 8).transpose(1, 2), torch.randn(2, 2, 7, 8)
TABLE, USED = torch.tensor([[0], [1]]), torch.tensor([5, 7])
CALL = Call(Q, K, K, rule="logn(3)", causal=2, attn_mask=torch.rand(2, 4, 5, 7) > 0.5)
CODES, SCALES = OPS.quantize(K, 2)
RESULTS = OPS.attention(*CALL, ALL)
POINT = *CALL, ALL & (SUPPORT - 1), *RESULTS[:2]
TANGENTS = torch.ones_like(Q), torch.ones_like(K), None, None, None, None
MOVED = OPS.attention_tangent(*POINT, *TANGENTS)
CACHED, PAGES = CALL._replace(attn_mask=None), (TABLE, USED, None)
LSE, CHOSEN = torch.zeros(2, 4, 5), torch.zeros(2, 4, 5, 3, dtype=torch.int64)
PACKED = torch.randn(5, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)
TOKENS = PACKED[1][None].transpose(1, 2)
STARTS = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 7])

OPERATORS = {
    "attention": (OPS.attention, (*CALL, ALL)),
    "attention_backward": (
        OPS.attention_backward, (*CALL, ALL, *RESULTS[:2], RESULTS[0], torch.zeros_like(RESULTS[1]), True, True, True, False),
    ),
    "attention_tangent": (OPS.attention_tangent, (*POINT, *TANGENTS)),
    "attention_second_tangent": (OPS.attention_second_tangent, (*POINT, *TANGENTS, *TANGENTS)),
    "attention_second_order": (OPS.attention_second_order, (*POINT, *TANGENTS, *MOVED, RESULTS[0], None, False, False, False)),
    "received": (OPS.received, (*CALL, LSE, None)),
    "received_paged": (OPS.received_paged, (*CACHED, LSE, None, None, *PAGES)),
    "weights_at": (OPS.weights_at, (*CALL, LSE, CHOSEN)),
    "weights_at_paged": (OPS.weights_at_paged, (*CACHED, LSE, CHOSEN, None, *PAGES)),
    "decode": (OPS.decode, (*CACHED, *PAGES, ALL)),
    "decode_received": (OPS.decode_received, (*CACHED, None, None, *PAGES, ALL)),
    "decode_codes": (OPS.decode_codes, (*CACHED._replace(k=CODES, v=CODES), SCALES, SCALES, *PAGES, ALL)),
    "write_cache": (OPS.write_cache, (TOKENS, TOKENS, K.clone(), K.clone(), torch.arange(7))),
    "quantize": (OPS.quantize, (K, 2)),
    "row_lengths": (OPS.row_lengths, CALL),
    "keys_seen": (OPS.keys_seen, (*CALL._replace(attn_mask=None), torch.tensor([[0, 2], [2, 5]]))),
    "check_call": (OPS.check_call, (*CALL, None, None)),
}  # fmt: skip


def gradient(q, k):
    return torch.autograd.grad(isentrope.attention(q, k, k).sum(), q)


FUNCTIONS = {
    "attention": lambda x: isentrope.attention(x(Q), x(K), x(K), causal=True, prefix_keys=2, dropout_p=0.1, return_stats=True),
    "attention_rows": lambda x: isentrope.attention_rows(x(Q), x(K), x(K), x(torch.ones(2, 1, 5)), return_stats=True),
    "varlen_attention": lambda x: isentrope.varlen_attention(*map(x, PACKED), *map(x, STARTS), return_stats=True),
    "decode": lambda x: isentrope.decode(x(Q), x(K), x(K), x(TABLE), x(USED), return_stats=True),
    "decode of codes": lambda x: isentrope.decode(x(Q), x(CODES), x(CODES), k_scale=x(SCALES), v_scale=x(SCALES)),
    "quantize": lambda x: isentrope.quantize(x(K), 4),
    "row_lengths": lambda x: isentrope.row_lengths(x(Q), x(K), window_size=(3, 0), key_end=x(USED)),
    "scaled_dot_product_attention": lambda x: isentrope.scaled_dot_product_attention(x(Q), x(K), x(K), enable_gqa=True, scale=-0.3),
    "SSMax": lambda x: isentrope.SSMax(4)(x(Q), x(K), x(K)),
    "a gradient": lambda x: gradient(x(Q).requires_grad_(), x(K)),
}  # fmt: skip


def looks(results):
    """Returns shape, type and layout of each tensor."""
    flat = torch.utils._pytree.tree_leaves(results)
    return [(tuple(x.shape), x.dtype, x.stride() if x.numel() else None) for x in flat if isinstance(x, torch.Tensor)]


def test_the_operators_are_all():
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("isentrope::")]
    assert {s.name.removeprefix("isentrope::") for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)} == set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_read_no_data(name):
    operator, arguments = OPERATORS[name]
    want = looks(operator(*arguments))
    torch.library.opcheck(operator.default, arguments, test_utils="test_schema")
    with FakeTensorMode() as mode:
        fakes = (mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments)
        assert looks(operator(*fakes)) == want


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_read_no_data(name):
    call = FUNCTIONS[name]
    want = looks(call(lambda x: x.detach()))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert looks(call(lambda x: mode.from_tensor(x.detach()))) == want
    if name != "SSMax":  # its parameters are on the module's device
        assert looks(call(lambda x: x.detach().to("meta"))) == want
