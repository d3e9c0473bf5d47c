"""The function for JAX computes what the definition says, with JAX's layouts and names."""

import inspect
import sys

import inputs
import jax
import numpy as np
import pytest
from inputs import dense, normal, qkv, seen
from jax import numpy as jnp

import isentrope.jax
from isentrope.jax import attention

# In bfloat16 and float16 weights and results are rounded: twice half a unit in the last place of numbers up to 4.
TOLERANCES = {"float64": 1e-12, "float32": 3e-6, "bfloat16": 8 * 2**-9, "float16": 8 * 2**-12}
every_type = pytest.mark.parametrize("dtype", TOLERANCES)


def close(found, expected, tolerance=1e-12):
    found, expected = (np.asarray(x, np.float64) for x in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def in_float64(*arrays):
    return tuple(x.astype(jnp.float64) for x in arrays)


def test_it_needs_no_torch():
    assert "torch" not in sys.modules


@every_type
def test_output_and_statistics(dtype):
    x = qkv(dtype=dtype, queries=5, keys=9)
    output, found = attention(*x, causal=True, rule="entropy_invariant(base=64)", return_stats=True)
    expected, statistics = dense(*in_float64(*x), mask=seen(5, 9, True), base=64)
    assert output.dtype == x[0].dtype and output.shape == (2, 5, 4, 5)
    close(output, expected, TOLERANCES[dtype])
    for name, numbers in statistics.items():
        mine = getattr(found, name)
        assert mine.dtype == ("int32" if name == "support" else "float64" if dtype == "float64" else "float32")
        close(mine, numbers, 1e-12 if dtype == "float64" else 1e-5)
    assert found.distance.shape == found.lse.shape == (2, 5, 4)


OPTIONS = {
    "plain": ({}, {}),
    "top left": ({"causal": "top_left"}, {"mask": seen(5, 9, "top_left")}),
    "window": ({"window_size": (2, 1)}, {"mask": seen(5, 9, False, (2, 1))}),
    "soft-cap": ({"soft_cap": 0.5}, {"soft_cap": 0.5}),
    "scale": ({"scale": 2 / np.sqrt(8), "rule": "standard"}, {"factor": 2}),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_options(name, dtype):
    ours, expected = OPTIONS[name]
    q, k, v = qkv(dtype=dtype, queries=5, keys=9)
    factor = expected.get("factor", 1)
    rest = {key: value for key, value in expected.items() if key != "factor"}
    close(attention(q, k, v, **ours), dense(*in_float64(q * factor, k, v), **rest)[0], TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(2, 4, 5, 9), (1, 4, 5, 9), (2, 1, 1, 9), (5, 9)])
def test_masks_biases_and_sinks(dtype, shape):
    q, k, v = qkv(dtype=dtype, queries=5, keys=9)
    bias, sinks = normal(*shape, dtype=dtype), normal(4, dtype=dtype)
    mask = (normal(*shape) > -0.5).at[..., 0].set(True)
    found, statistics = attention(q, k, v, bias, mask, sinks=sinks, return_stats=["entropy", "support"])
    expected, numbers = dense(*in_float64(q, k, v), *in_float64(bias), mask=mask, sinks=in_float64(sinks)[0])
    close(found, expected, TOLERANCES[dtype])
    close(statistics.entropy, numbers["entropy"], 1e-5)
    close(statistics.support, numbers["support"])
    assert statistics.lse is None


def test_lengths_are_those_of_jax():
    q, k, v = qkv(queries=5, keys=9)
    keys, queries = jnp.asarray([9, 4], jnp.int32), jnp.asarray([5, 3], jnp.int32)
    found, statistics = attention(q, k, v, key_value_seq_lengths=keys, query_seq_lengths=queries, is_causal=True, return_stats=True)
    theirs = jax.nn.dot_product_attention(q, k, k, key_value_seq_lengths=keys, is_causal=True)
    close(attention(q, k, k, key_value_seq_lengths=keys, is_causal=True), theirs, 1e-6)  # its softmax is float32
    assert (found[1, 3:] == 0).all() and (statistics.support[1, 3:] == 0).all() and (statistics.lse[1, 3:] == -jnp.inf).all()
    close(found[1, :3], attention(q, k, v, key_value_seq_lengths=keys, is_causal=True)[1, :3])
    assert statistics.support[1, :3, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"local_window_size": (2, 1)}, {"local_window_size": 1, "is_causal": True}])
@pytest.mark.parametrize("queries", [5, 9, 12])
def test_names_of_jax_mean_what_they_mean_there(options, queries):
    q, k, _ = qkv(queries=queries, keys=9)
    mine = attention(q, k, k, **options, return_residual=True)
    residual = {"return_residual": True} if "return_residual" in inspect.signature(jax.nn.dot_product_attention).parameters else {}
    every = jnp.ones((1, 1, queries, 9), bool)  # JAX 0.7 ignores a window without another mask, and returns the output alone
    theirs = jax.nn.dot_product_attention(q, k, k, mask=every, **options, **residual)
    theirs = theirs if residual else (theirs, mine[1])
    sees = slice(0, 10 if "local_window_size" in options else None)  # later rows see no key: 0 here, a mean there
    for ours, other in zip(mine, theirs):
        close(ours[:, sees], other[:, sees], 1e-6)


def test_without_batch():
    q, k, v = (x[0] for x in qkv())
    output, statistics = attention(q, k, v, return_stats=("entropy",))
    whole, numbers = attention(q[None], k[None], v[None], return_stats=("entropy",))
    assert (output == whole[0]).all() and (statistics.entropy == numbers.entropy[0]).all()


@every_type
@pytest.mark.parametrize("empty", ["batch", "queries", "keys"])
def test_empty_sizes(dtype, empty):
    x = qkv(**{empty: 0}, dtype=dtype)
    output, statistics = attention(*x, return_stats=True)
    assert output.shape == (*x[0].shape[:3], 5) and (output == 0).all() and (statistics.support == 0).all()
    gradients = jax.grad(lambda *x: attention(*x).astype(jnp.float32).sum(), (0, 1, 2))(*x)
    assert all((g == 0).all() and g.shape == y.shape for g, y in zip(gradients, x))


def test_donated_and_aliased_buffers():
    x = qkv(value_dim=8, dtype=np.float32)
    expected = attention(*x)
    q = x[0] + 0
    found = jax.jit(attention, donate_argnums=0)(q, *x[1:])
    assert (found == expected).all() and q.is_deleted()
    same = normal(2, 6, 4, 8, dtype=np.float32)
    assert (attention(same, same, same) == attention(same, same + 0, same * 1)).all()


def test_results_without_64_bits():
    jax.config.update("jax_enable_x64", False)
    try:
        output, statistics = jax.jit(lambda *x: attention(*x, return_stats=True))(*qkv(dtype=np.float32))
        assert output.dtype == "float32" and statistics.support.dtype == "int32"
    finally:
        jax.config.update("jax_enable_x64", True)


BAD = {
    "k must have shape": lambda q, k, v: attention(q, k[..., :3], v),
    "k must have a number of heads that divides": lambda q, k, v: attention(q[:, :, :3], k, v),
    "v must be bf16, as k is": lambda q, k, v: attention(q.astype(jnp.float32), k.astype(jnp.bfloat16), v.astype(jnp.float32)),
    "q must be float32, bfloat16, float16 or float64; got int32": lambda q, k, v: attention(*(x.astype(jnp.int32) for x in (q, k, v))),
    "q must have 4 dimensions, or 3 as q and k and v; got 2": lambda q, k, v: attention(q[0, 0], k, v),
    "a rule must be one of": lambda q, k, v: attention(q, k, v, rule="logm"),
    "rule must be a str": lambda q, k, v: attention(q, k, v, rule=3),
    "scale must be a number and no traced": lambda q, k, v: jax.jit(lambda s: attention(q, k, v, scale=s))(1.0),
    "scale must be finite": lambda q, k, v: attention(q, k, v, scale=float("nan")),
    "scale must be a number; got np.True_": lambda q, k, v: attention(q, k, v, scale=np.True_),
    "soft_cap must be finite and not negative": lambda q, k, v: attention(q, k, v, soft_cap=-1),
    "mask must be bool": lambda q, k, v: attention(q, k, v, mask=jnp.ones((6, 6))),
    "bias must be floating": lambda q, k, v: attention(q, k, v, bias=jnp.ones((6, 6), bool)),
    "bias must have shape": lambda q, k, v: attention(q, k, v, bias=jnp.ones((6, 7))),
    "sinks must have shape": lambda q, k, v: attention(q, k, v, sinks=jnp.ones(3)),
    "key_value_seq_lengths must be integers": lambda q, k, v: attention(q, k, v, key_value_seq_lengths=jnp.ones(2)),
    "query_seq_lengths must be integers": lambda q, k, v: attention(q, k, v, query_seq_lengths=jnp.ones(3, jnp.int32)),
    "local_window_size must be absent": lambda q, k, v: attention(q, k, v, window_size=(2, 2), local_window_size=0),
    'causal must be False, True, "top_left"': lambda q, k, v: attention(q, k, v, causal="left"),
    "is_causal must be absent": lambda q, k, v: attention(q, k, v, causal=True, is_causal=True),
    "window_size must be two integers": lambda q, k, v: attention(q, k, v, window_size=3),
    "window_size must be at least -1": lambda q, k, v: attention(q, k, v, window_size=(-2, 0)),
    "local_window_size must be at least 0": lambda q, k, v: attention(q, k, v, local_window_size=-1, is_causal=True),
    "return_stats must be True, False or some of lse": lambda q, k, v: attention(q, k, v, return_stats=["entropie"]),
    "implementation must be None": lambda q, k, v: attention(q, k, v, implementation="cudnn"),
    "return_stats must be absent": lambda q, k, v: attention(q, k, v, return_stats=True, return_residual=True),
}


@pytest.mark.parametrize("message", BAD)
@pytest.mark.parametrize("transform", ["eager", "jit", "vmap"])
def test_bad_arguments_are_refused_while_tracing(message, transform):
    x = qkv()
    call = BAD[message]
    if transform == "jit":
        call = jax.jit(call)
    if transform == "vmap":
        call, x = jax.vmap(call), tuple(y[None] for y in x)
    with pytest.raises((TypeError, ValueError), match=message.replace("(", r"\(")):
        call(*x)


def lowered(function, platform):
    return jax.jit(function).trace(*qkv(dtype=np.float32)).lower(lowering_platforms=(platform,)).as_text()


def test_other_platforms_are_refused(monkeypatch):
    with pytest.raises(NotImplementedError, match="computes the forward pass on CPUs; got a call for tpu"):
        lowered(attention, "tpu")
    with pytest.raises(NotImplementedError, match="ISENTROPE_CUDA_KERNELS must name a folder"):
        lowered(attention, "cuda")
    monkeypatch.setenv("ISENTROPE_CUDA_KERNELS", "somewhere")
    with pytest.raises(NotImplementedError, match="computes the tangent pass on CPUs; got a call for cuda"):
        lowered(lambda *x: jax.jvp(attention, x, x), "cuda")


def test_a_program_for_a_device_has_the_layouts_of_its_kernels(monkeypatch):
    monkeypatch.setenv("ISENTROPE_CUDA_KERNELS", "somewhere")
    program = lowered(jax.grad(lambda *x: attention(*x, return_stats="entropy")[1].entropy.sum()), "cuda")
    calls = [line for line in program.splitlines() if "custom_call @isentrope" in line]
    assert [line.partition("@")[2].partition("(")[0] for line in calls] == [
        "isentrope_forward_on_device", "isentrope_backward_on_device",
    ]  # fmt: skip
    # output, entropy and lse are results, and operands with the gradient of the entropy.
    assert [line.count("dense<[1, 2, 0]>") for line in calls] == [2, 3]
    assert all("somewhere" in line for line in calls)


def test_it_is_one_call_in_the_program():
    text = jax.jit(lambda *x: attention(*x, return_stats=True)).lower(*qkv(dtype=np.float32)).as_text()
    assert text.count("custom_call") == 1 and "isentrope_forward" in text


def test_many_tasks_at_once():
    """Calls that wait for each other's threads end: more of them than the pool has threads."""
    x = [qkv(queries=64, keys=64, dtype=np.float32) for _ in range(16)]
    found = jax.jit(lambda x: [attention(*each).sum() for each in x])(x)
    assert all(np.isfinite(found))
    assert isentrope.jax.attention is attention and inputs.restart is not None
