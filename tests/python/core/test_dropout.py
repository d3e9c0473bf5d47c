"""Dropout of weights: its mask, values and gradients, repeated by every way of running a call."""

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from dense import dense, dropout_factors
from families import GQA, SIZES
from test_attention import assert_output_and_gradients_are_dense, masks, tensors
from torch.utils.checkpoint import checkpoint

import isentrope
import isentrope.hf

P, SEED = 0.3, -7_000_000_011
OPTIONS = {"dropout_p": P, "dropout_seed": SEED}


def flat(batch=2, heads=3, queries=5, keys=40):
    """Returns queries of 0, for equal weights in a row, and unit vectors as values, which show each weight."""
    q, k = torch.zeros(batch, heads, queries, 8), torch.randn(batch, heads, keys, 8)
    return q.requires_grad_(), k, torch.eye(keys).repeat(batch, heads, 1, 1).requires_grad_()


def seeded(seed, call, *arguments, **options):
    """Returns the result of a call that draws by torch's generator with this seed."""
    torch.manual_seed(seed)
    return call(*arguments, **options)


def test_the_mask_is_the_documented_function():
    q, k, v = flat()
    for seed in (SEED, 0, 1 << 62, torch.tensor(-1)):
        for place in ({}, {"query_offset": 11, "key_offset": 6}):
            got = isentrope.attention(q, k, v, dropout_p=P, dropout_seed=seed, **place) * 40
            want = dropout_factors(2, 3, 5, 40, P, int(seed), **place)
            torch.testing.assert_close(got, want.float(), rtol=1e-5, atol=0)
    assert want.eq(0).any() and want.ne(0).any()


@pytest.mark.parametrize("name", masks())
def test_values_and_gradients_equal_dense_float64(name):
    assert_output_and_gradients_are_dense(masks()[name] | OPTIONS, ["entropy"])


def test_the_statistics_are_those_without():
    q, k, v = tensors()
    with_, s = isentrope.attention(q, k, v, causal=True, return_stats=True, **OPTIONS)
    without, t = isentrope.attention(q, k, v, causal=True, return_stats=True)
    assert all(torch.equal(a, b) for a, b in zip(s, t)) and not torch.equal(with_, without)
    assert torch.equal(without, isentrope.attention(q, k, v, causal=True, dropout_p=0.0, dropout_seed=3))


def test_torchs_generator_says_which_weights():
    q, k, v = tensors()
    draw = lambda: isentrope.attention(q, k, v, dropout_p=P)  # noqa: E731
    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    assert torch.equal(draw(), first) and not torch.equal(first, second)


def test_in_distribution_it_is_torchs():
    q, k, v = (torch.randn(1, 2, 6, 8).expand(2000, -1, -1, -1) for _ in range(3))  # every sample is drawn for itself
    ours, theirs = (attention(q, k, v, dropout_p=P) for attention in (isentrope.attention, F.scaled_dot_product_attention))
    sigma = (ours.var(0) / 2000).sqrt()
    want = F.scaled_dot_product_attention(q[0], k[0], v[0])
    assert ((ours.mean(0) - want) / sigma).abs().max() < 5
    assert ((ours.mean(0) - theirs.mean(0)) / sigma).abs().max() < 5 * 2**0.5
    # 2000 draws estimate each standard deviation with an error of 1/sqrt(4000).
    torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0.14, atol=0)


def gradient_follows(run):
    """Returns whether dv equals the weights that the output shows, so that both passes have one mask."""
    q, k, v = flat()
    output = run(lambda q, k, v: isentrope.attention(q, k, v, dropout_p=P), q, k, v)
    output.sum().backward()
    torch.testing.assert_close(v.grad, output.detach().sum(2)[..., None].expand(v.shape))
    assert output.eq(0).any()
    return output


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_repeat_the_mask(reentrant):
    gradient_follows(lambda f, *x: checkpoint(f, *x, use_reentrant=reentrant))


@pytest.mark.parametrize("backend", ["aot_eager", *(pytest.param(name, marks=pytest.mark.long) for name in ("eager", "inductor"))])
def test_compiled_calls_draw_and_repeat_the_mask(backend):
    torch._dynamo.reset()
    masks = []

    def run(f, *x):
        masks.append(torch.compile(f, fullgraph=True, backend=backend))
        return masks[0](*x)

    first = gradient_follows(run)
    assert not torch.equal(masks[0](*flat()), first)
    torch._dynamo.reset()
    if backend != "eager":  # eager mode does not repeat torch's own mask either
        gradient_follows(lambda f, *x: torch.compile(lambda *y: checkpoint(f, *y, use_reentrant=False), backend=backend)(*x))
    q, k, v = flat()
    seeded = torch.compile(lambda seed: isentrope.attention(q, k, v, dropout_p=P, dropout_seed=seed), backend=backend)
    for seed in (SEED, 5, 6):
        assert torch.equal(seeded(seed), isentrope.attention(q, k, v, dropout_p=P, dropout_seed=seed))


def test_vmap_draws_for_each_sample_or_for_all():
    q, k, v = (x.detach().expand(4, *x.shape) for x in flat())
    f = lambda q, k, v: isentrope.attention(q, k, v, dropout_p=P)  # noqa: E731
    apart, alike = (torch.vmap(f, randomness=how)(q, k, v) for how in ("different", "same"))
    assert not torch.equal(apart[0], apart[1]) and torch.equal(alike[0], alike[1])


def test_every_function_of_the_package_takes_it():
    q, k, v = tensors()
    want = isentrope.attention(q, k, v, rule="constant(scale=0.2)", **OPTIONS)
    assert torch.equal(isentrope.attention_rows(q, k, v, torch.full((1,), 0.2), **OPTIONS), want)
    starts = torch.tensor([0, 7, 19]), torch.tensor([0, 12, 31])
    packed = isentrope.varlen_attention(*(x[0].transpose(0, 1) for x in (q, k, v)), *starts, **OPTIONS)
    expected, _ = dense(*(x[:1].double() for x in (q, k, v)), attn_mask=_same_document(*starts), **OPTIONS)
    torch.testing.assert_close(packed.transpose(0, 1).double(), expected[0], rtol=1e-5, atol=1e-5)
    got = seeded(4, isentrope.scaled_dot_product_attention, q, k, v, dropout_p=P, enable_gqa=True)
    assert torch.equal(got, seeded(4, isentrope.attention, q, k, v, dropout_p=P))
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout_p'"):
        isentrope.decode(q, k, v, torch.zeros(2, 1).int(), torch.tensor([31, 31]), dropout_p=P)


def _same_document(starts_q, starts_k):
    document = lambda starts: torch.repeat_interleave(starts.diff())  # noqa: E731
    return document(starts_q)[:, None] == document(starts_k)[None]


@pytest.mark.parametrize("kind, config", [
    (hf.AutoModelForCausalLM, hf.LlamaConfig(**GQA, attention_dropout=0.1)),
    (hf.AutoModelForMaskedLM, hf.BertConfig(**SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.1)),
])  # fmt: skip
def test_models_of_transformers_train(kind, config):
    model = kind.from_config(config, attn_implementation="isentrope").train()
    ids = torch.randint(3, 61, (2, 12))

    def loss():
        torch.manual_seed(1)
        return model(input_ids=ids, labels=ids).loss

    with isentrope.hf.record("entropy") as records:
        before = loss()
    assert len(records) == 2 and torch.equal(loss(), before)
    assert not torch.equal(model(input_ids=ids, labels=ids).loss, before)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(5):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    assert loss() < before
    model.eval()
    assert torch.equal(model(input_ids=ids).logits, model(input_ids=ids).logits)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.rand(6, 6) > 0.3}])
def test_behind_torchs_own_function(options):
    q, k, v = (torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(3))
    ours = {name.replace("is_causal", "causal"): value for name, value in options.items()}
    with isentrope.sdpa.activate("logn(8)"):
        got = seeded(3, F.scaled_dot_product_attention, q, k, v, dropout_p=P, **options)
        want = seeded(3, isentrope.attention, q, k, v, rule="logn(8)", dropout_p=P, **ours)
        torch.testing.assert_close(*((x, *torch.autograd.grad(x.square().sum(), (q, k, v))) for x in (got, want)))
        assert got.is_contiguous()
        with torch.inference_mode():
            assert torch.equal(seeded(3, F.scaled_dot_product_attention, q, k, v, dropout_p=P, **options), got)


def test_modules_that_train_behind_torchs_own_function():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    x = torch.randn(2, 9, 32)
    compiled = torch.compile(layer, backend="aot_eager")
    with isentrope.sdpa.activate("constant(scale=0)"):
        for module in (layer, compiled):
            torch.manual_seed(1)
            out = module(x)
            # With a scale of 0, queries and keys have no gradient.
            gradient = torch.autograd.grad(out.square().sum(), layer.self_attn.in_proj_weight)[0]
            assert gradient[:64].abs().max() == 0 and gradient[64:].abs().max() > 0


def test_calls_of_other_shapes_have_our_dropout_and_those_of_other_types_torchs():
    ours, theirs = isentrope.scaled_dot_product_attention, F.scaled_dot_product_attention
    double = torch.randn(1, 2, 6, 8, dtype=torch.float64)
    for x, call in ((torch.randn(1, 3, 2, 6, 8), ours), (torch.randn(3, 6, 8), ours), (double, theirs)):
        want = seeded(1, call, x, x, x, dropout_p=P)
        with isentrope.sdpa.activate():
            assert torch.equal(seeded(1, F.scaled_dot_product_attention, x, x, x, dropout_p=P), want)
