"""The transformations of JAX: vmap is one call, and none changes a number."""

import functools

import jax
import numpy as np
import pytest
from inputs import normal, qkv
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, PartitionSpec
from test_attention import close
from test_derivatives import all_close

from isentrope.jax import attention


def calls(f, *x):
    """Returns the number of calls of the library in a compiled program."""
    return jax.jit(f).lower(*x).as_text().count("@isentrope_")


def looped(f, axes, *x):
    """Returns f of each sample, by a loop."""
    size = next(a.shape[axis] for a, axis in zip(x, axes) if axis is not None)
    take = lambda a, axis, i: a if axis is None else jnp.take(a, i, axis)  # noqa: E731
    results = [f(*(take(a, axis, i) for a, axis in zip(x, axes))) for i in range(size)]
    return jax.tree.map(lambda *each: jnp.stack(each), *results)


def both(q, k, v, bias, sinks):
    output, statistics = attention(q, k, v, bias, sinks=sinks, causal=True, return_stats=("entropy", "lse"))
    return output, statistics.entropy, statistics.lse


def gradients(*x):
    return jax.grad(lambda *x: sum(jnp.sin(a).sum() for a in both(*x)), range(5))(*x)


def second(*x):
    return jax.jvp(gradients, x, x)[1]


@pytest.mark.parametrize("f, expected", [(both, 1), (gradients, 2), (second, 6)])
@pytest.mark.parametrize("axes", [(0, 0, 0, 0, 0), (2, None, 1, None, None), (None, 0, None, 3, None), (None, None, None, None, 0)])
def test_vmap_is_one_call(f, expected, axes):
    shapes = [(2, 5, 4, 8), (2, 6, 2, 8), (2, 6, 2, 8), (1, 4, 5, 6), (4,)]
    x = [normal(*(shape if axis is None else (*shape[:axis], 3, *shape[axis:]))) for shape, axis in zip(shapes, axes)]
    mapped = jax.vmap(f, axes)
    all_close(jax.jit(mapped)(*x), looped(f, axes, *x), 1e-9)
    first = [a if axis is None else jnp.take(a, 0, axis) for a, axis in zip(x, axes)]
    assert calls(mapped, *x) == calls(f, *first) <= expected


def test_nested_vmap_is_one_call():
    q, k, v = normal(3, 2, 2, 5, 4, 8), normal(2, 2, 6, 2, 8), normal(3, 1, 6, 2, 8)
    f = functools.partial(attention, causal=True, return_stats=("entropy",))
    nested = jax.vmap(jax.vmap(lambda q, k, v: f(q, k, jnp.broadcast_to(v, k.shape)), (0, 0, None)), (0, None, 0))
    expected = [[f(q[i, j], k[j], jnp.broadcast_to(v[i], k[j].shape)) for j in range(2)] for i in range(3)]
    all_close(nested(q, k, v), jax.tree.map(lambda *x: jnp.stack(x).reshape(3, 2, *x[0].shape), *sum(expected, [])))
    assert calls(nested, q, k, v) == 1


def test_gradients_of_samples():
    q, k, v = normal(3, 1, 5, 4, 8), normal(1, 6, 2, 8), normal(1, 6, 2, 8)
    sinks = normal(4)
    loss = lambda k, sinks, q: (attention(q, k, v, sinks=sinks) ** 2).sum()  # noqa: E731
    found = jax.vmap(jax.grad(loss, (0, 1)), (None, None, 0))(k, sinks, q)
    all_close(found, looped(jax.grad(loss, (0, 1)), (None, None, 0), k, sinks, q))
    of_all = jax.grad(lambda *x: jax.vmap(loss, (None, None, 0))(*x).sum(), (0, 1))(k, sinks, q)
    all_close(of_all, jax.tree.map(lambda g: g.sum(0), found))


def test_lengths_and_masks_in_vmap():
    q, k, v = normal(3, 2, 5, 4, 8), normal(2, 5, 4, 8), normal(2, 5, 4, 8)
    lengths = jnp.asarray([[5, 3], [1, 2], [4, 0]], jnp.int32)
    mask = normal(3, 2, 1, 5, 5) > 0
    f = lambda q, lengths, mask: attention(q, k, v, mask=mask, key_value_seq_lengths=lengths, return_stats=True)  # noqa: E731
    all_close(jax.vmap(f)(q, lengths, mask), looped(f, (0, 0, 0), q, lengths, mask))


@pytest.mark.parametrize("axis", ["batch", "heads"])
@pytest.mark.parametrize("shared", [False, True])
def test_shard_map(axis, shared):
    mesh = Mesh(np.asarray(jax.devices()), ("x",))
    spec = PartitionSpec("x") if axis == "batch" else PartitionSpec(None, None, "x")
    q, k, v = qkv()
    k_spec = PartitionSpec() if shared else spec
    if shared:
        k, v = (k[:1], v[:1]) if axis == "batch" else (k[:, :, :1], v[:, :, :1])
    whole = lambda q, k, v: attention(  # noqa: E731
        q, *(jnp.broadcast_to(x, (q.shape[0], *x.shape[1:])) for x in (k, v)), causal=True
    )
    split = jax.shard_map(whole, mesh=mesh, in_specs=(spec, k_spec, k_spec), out_specs=spec)
    close(jax.jit(split)(q, k, v), whole(q, k, v))
    loss = lambda f: lambda *x: (f(*x) ** 2).sum()  # noqa: E731
    all_close(jax.jit(jax.grad(loss(split), (0, 1, 2)))(q, k, v), jax.grad(loss(whole), (0, 1, 2))(q, k, v))
    all_close(jax.jvp(jax.grad(loss(split)), (q, k, v), (q, k, v)), jax.jvp(jax.grad(loss(whole)), (q, k, v), (q, k, v)))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [("x",), (None, "x"), (None, None, "x")])
def test_sharded_arrays(kind, spec):
    x = qkv()
    with jax.set_mesh(jax.make_mesh((2,), ("x",), axis_types=(kind,))):
        sharded = [jax.device_put(a, PartitionSpec(*spec)) for a in x]
        one = functools.partial(attention, rule="ssmax(s=[1, 2, 3, 4])")
        gradient = lambda f: jax.grad(lambda *x: (f(*x) ** 2).sum(), (0, 1, 2))  # noqa: E731
        full = functools.partial(attention, bias=normal(4, 6, 6), sinks=normal(4), key_value_seq_lengths=jnp.asarray([6, 4]))
        for f, whole in ((one, one), (full, full), (jax.vmap(attention), attention)):
            found = jax.jit(gradient(f))(*sharded)
            all_close(found, gradient(whole)(*x))
            assert list(map(jax.typeof, found)) == list(map(jax.typeof, sharded))  # sharded alike


def test_checkpoint_and_scan():
    q, k, v = qkv(heads=2, value_dim=8)

    def loss(step, q, k, v):
        carry, entropies = jax.lax.scan(step, q, (jnp.stack([k, 2 * k]), jnp.stack([v, v])))
        return (carry**2).sum() + entropies.sum()

    def step(carry, kv):
        output, statistics = attention(carry, *kv, causal=True, return_stats=("entropy",))
        return output, statistics.entropy

    def unrolled(q, k, v):
        q, first = step(q, (k, v))
        q, second = step(q, (2 * k, v))
        return (q**2).sum() + first.sum() + second.sum()

    expected = jax.value_and_grad(unrolled, (0, 1, 2))(q, k, v)
    for each in (step, jax.checkpoint(step), jax.checkpoint(step, policy=jax.checkpoint_policies.everything_saveable)):
        all_close(jax.jit(jax.value_and_grad(functools.partial(loss, each), (0, 1, 2)))(q, k, v), expected)


def test_bits_do_not_depend_on_the_transformation():
    x = qkv(queries=70, keys=70, dtype=np.float32)
    f = functools.partial(attention, causal=True)
    found = f(*x)
    assert (jax.jit(f)(*x) == found).all()
    assert (jax.vmap(f)(*(a[:, None] for a in x))[:, 0] == found).all()
