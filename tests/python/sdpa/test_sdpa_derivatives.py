"""Second derivatives and forward mode of torch's own function and of modules that call it."""

import pytest
import torch
from compositions import COMPOSITIONS, assert_same, by_definition
from torch.nn.functional import scaled_dot_product_attention as theirs

import isentrope

B, H, S, K, D = 2, 2, 9, 11, 8
MASK = torch.rand(B, 1, S, K) > 0.3


def tensors():
    return tuple(torch.randn(B, H, rows, D) for rows in (S, K, K))


CALLS = {"causal": {"is_causal": True}, "mask": {"attn_mask": MASK}}


def by_math(options):
    """Returns torch's definition of its function."""
    mask = options.get("attn_mask", torch.ones(S, K, dtype=torch.bool).tril())
    return lambda *x: by_definition(*x, mask)[:1]


@pytest.mark.parametrize("composition", ["jvp", "dual numbers", "create_graph", "jvp of grad", "grad of jvp", "grad of grad"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("door", ["activate", "drop-in"])
def test_torchs_function(door, name, composition):
    x, t = tensors(), tensors()
    derive, options = COMPOSITIONS[composition], CALLS[name]
    want = derive(by_math(options), x, t)
    if door == "drop-in":
        got = derive(lambda *x: (isentrope.scaled_dot_product_attention(*x, **options),), x, t)
    else:
        with isentrope.sdpa.activate():
            got = derive(lambda *x: (theirs(*x, **options),), x, t)
    assert_same(got, want, 1e-4)


def test_under_a_rule():
    x, t = tensors(), tensors()
    rule = "entropy_invariant(base=7)"
    for derive in (COMPOSITIONS["grad of jvp"], COMPOSITIONS["create_graph"]):
        want = derive(lambda *x: (isentrope.attention(*x, rule=rule, causal="top_left"),), x, t)
        with isentrope.sdpa.activate(rule):
            assert_same(derive(lambda *x: (theirs(*x, is_causal=True),), x, t), want, 1e-4)


def test_multihead_attention():
    """A Hessian-vector product over the parameters, and a jvp over the input, equal those of torch's math."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    module = torch.nn.MultiheadAttention(16, 2, batch_first=True)
    x, t = torch.randn(B, S, 16), torch.randn(B, S, 16)
    parameters = dict(module.named_parameters())
    direction = {name: torch.randn_like(p) for name, p in parameters.items()}

    def loss(parameters):
        return torch.func.functional_call(module, parameters, (x, x, x), {"need_weights": False})[0].square().sum()

    def both():
        gradient = torch.func.grad(loss)
        tangent = torch.func.jvp(lambda x: module(x, x, x, need_weights=False)[0], (x,), (t,))[1]
        product = torch.autograd.functional.hvp(
            lambda *p: loss(dict(zip(parameters, p))), tuple(parameters.values()), tuple(direction.values())
        )[1]
        return torch.func.jvp(gradient, (parameters,), (direction,))[1], tangent, product

    with sdpa_kernel(SDPBackend.MATH):
        want = both()
    with isentrope.sdpa.activate():
        assert_same(both(), want, 1e-4)


def test_after_the_activation_torch_has_its_own_errors():
    x = tensors()
    isentrope.sdpa.activate().remove()
    with pytest.raises(NotImplementedError, match="forward AD"):
        torch.func.jvp(theirs, x, x)
