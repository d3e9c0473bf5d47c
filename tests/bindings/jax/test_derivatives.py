"""Derivatives of first and second order are those of the definition, in both modes."""

import jax
import numpy as np
import pytest
from inputs import dense, normal, qkv, seen
from jax import numpy as jnp
from test_attention import close

from isentrope.jax import attention

DIFFERENTIABLE = ("lse", "entropy", "collision", "variance", "max_probability")


def functions(names=(), causal=True, queries=5, keys=7, **options):
    """Returns a scalar function by this package and by definition: of the output and of statistics, weighted."""
    weights = normal(2, queries, 4, 5), [normal(2, queries, 4) for _ in names]
    translated = {"base": 64} if options.get("rule") else {}

    def scalar(output, statistics):
        total = (weights[0] * jnp.sin(output)).sum()
        return total + sum((w * jnp.cos(statistics[name])).sum() for name, w in zip(names, weights[1]))

    def ours(q, k, v, bias=None, sinks=None):
        output, statistics = attention(q, k, v, bias, sinks=sinks, causal=causal, return_stats=names, **options)
        return scalar(output, statistics._asdict())

    def expected(q, k, v, bias=None, sinks=None):
        rest = {key: value for key, value in options.items() if key != "rule"}
        return scalar(*dense(q, k, v, bias, seen(queries, keys, causal), sinks=sinks, **translated, **rest))

    return ours, expected


def arguments(extra=True):
    x = qkv(queries=5, keys=7)
    return (*x, normal(1, 4, 5, 7), normal(4)) if extra else x


def all_close(found, expected, tolerance=1e-9):
    jax.tree.map(lambda a, b: close(a, b, tolerance), found, expected)


CASES = {
    "output": {},
    "statistics": {"names": DIFFERENTIABLE},
    "a rule": {"names": ("entropy",), "rule": "entropy_invariant(base=64)"},
    "soft-cap": {"names": ("lse", "collision"), "soft_cap": 1.5},
}
every_case = pytest.mark.parametrize("case", CASES)


@every_case
def test_first_order(case):
    ours, expected = functions(**CASES[case])
    x, which = arguments(), tuple(range(5))
    all_close(jax.grad(ours, which)(*x), jax.grad(expected, which)(*x))
    tangents = tuple(normal(*a.shape) for a in x)
    all_close(jax.jvp(ours, x, tangents), jax.jvp(expected, x, tangents))
    one = lambda f: jax.jvp(lambda k: f(x[0], k, *x[2:]), x[1:2], tangents[1:2])  # noqa: E731
    all_close(one(ours), one(expected))


@every_case
def test_second_order(case):
    ours, expected = functions(**CASES[case])
    x = arguments()
    tangents = tuple(normal(*a.shape) for a in x)
    which = tuple(range(5))

    def forward_over_reverse(f):
        return jax.jvp(jax.grad(f, which), x, tangents)[1]

    def reverse_over_forward(f):
        return jax.grad(lambda *x: jax.jvp(f, x, tangents)[1], which)(*x)

    def reverse_over_reverse(f):
        return jax.grad(lambda *x: sum((g * t).sum() for g, t in zip(jax.grad(f, which)(*x), tangents)), which)(*x)

    first = forward_over_reverse(expected)
    for order in (forward_over_reverse, reverse_over_forward, reverse_over_reverse):
        all_close(jax.jit(lambda order=order: order(ours))(), first, 1e-8)


def test_gradients_with_respect_to_tangents():
    ours, expected = functions(("entropy",))
    x = arguments(extra=False)
    tangents = tuple(normal(*a.shape) for a in x)
    f = lambda f: jax.grad(lambda t, x: jnp.sin(jax.jvp(f, x, t)[1]), (0, 1))(tangents, x)  # noqa: E731
    all_close(f(ours), f(expected))
    partly = lambda f: jax.grad(lambda t: jnp.sin(jax.jvp(f, x, (*tangents[:2], t))[1]))(tangents[2])  # noqa: E731
    all_close(partly(ours), partly(expected))


def test_hessian():
    q, k, v = qkv(batch=1, queries=2, keys=3, heads=1, kv_heads=1, dim=2, value_dim=2)
    ours = lambda q, k: (attention(q, k, v, causal=True) ** 3).sum()  # noqa: E731
    expected = lambda q, k: (dense(q, k, v, mask=seen(2, 3, True))[0] ** 3).sum()  # noqa: E731
    found = jax.hessian(ours, (0, 1))(q, k)
    all_close(found, jax.hessian(expected, (0, 1))(q, k))
    all_close(jax.jacrev(jax.jacfwd(ours, (0, 1)), (0, 1))(q, k), found)
    all_close(jax.jacrev(jax.jacrev(ours, (0, 1)), (0, 1))(q, k), found)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 0.06), ("float16", 8e-3)])
def test_types(dtype, tolerance):
    x = qkv(dtype=dtype)
    wide = tuple(a.astype(jnp.float64) for a in x)
    tangents = tuple(normal(*a.shape, dtype=dtype) for a in x)
    ours = lambda *x: attention(*x, causal=True, return_stats=("entropy",))  # noqa: E731
    expected = lambda *x: (lambda o, s: (o, s["entropy"]))(*dense(*x, mask=seen(6, 6, True)))  # noqa: E731

    def results(f, x, tangents):
        total = lambda *x: sum(a.astype(jnp.float32).sum() for a in jax.tree.leaves(f(*x)))  # noqa: E731
        gradients = jax.grad(total, (0, 1, 2))(*x)
        return gradients, jax.tree.leaves(jax.jvp(f, x, tangents)), jax.jvp(jax.grad(total, (0, 1, 2)), x, tangents)[1]

    found = results(ours, x, tangents)
    assert all(g.dtype == dtype for g in found[0] + found[2])
    all_close(found, results(expected, wide, tuple(t.astype(jnp.float64) for t in tangents)), tolerance)


def test_constants_have_no_derivative():
    x = qkv()
    for name in ("max_logit", "lambda_", "support"):
        total = lambda q: getattr(attention(q, *x[1:], return_stats=True)[1], name).astype(jnp.float64).sum()  # noqa: E731
        assert (jax.grad(total)(x[0]) == 0).all()


def test_padding_has_no_derivative():
    q, k, v = qkv()
    lengths = jnp.asarray([6, 0], jnp.int32)
    f = lambda q, k, v: (attention(q, k, v, key_value_seq_lengths=lengths, return_stats=("entropy",))[0] ** 2).sum()  # noqa: E731
    for g in (*jax.grad(f, (0, 1, 2))(q, k, v), *jax.jvp(jax.grad(f, (0, 1, 2)), (q, k, v), (q, k, v))[1]):
        assert np.isfinite(g).all() and (g[1] == 0).all() and (g[0] != 0).any()


def test_what_is_not_there_is_refused():
    x = qkv(queries=5, keys=7)
    ours, _ = functions()
    twice = lambda *x: jax.jvp(lambda *y: jax.jvp(ours, y, x)[1], x, x)[1]  # noqa: E731
    with pytest.raises(NotImplementedError, match="must have reverse mode in it"):
        twice(*x)
    with pytest.raises(NotImplementedError, match="of first or second order"):
        jax.make_jaxpr(lambda *x: jax.jvp(lambda *y: jax.jvp(jax.grad(ours), y, x)[1], x, x))(*x)
