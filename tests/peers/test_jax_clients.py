"""Layers of flax, equinox and keras train with the attention for JAX as with their own: 50 steps with the same losses.

Run by an environment with these and without torch: make test-peers.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import equinox
import jax
import keras
import numpy as np
import optax
from flax import nnx
from jax import numpy as jnp

from isentrope.jax import attention

BATCH, LENGTH, WIDTH, HEADS, STEPS = 4, 24, 32, 4, 50
_random = np.random.default_rng(0)
INPUTS = jnp.asarray(_random.standard_normal((BATCH, LENGTH, WIDTH)), jnp.float32)
TARGETS = jnp.asarray(_random.standard_normal((BATCH, LENGTH, WIDTH)), jnp.float32)
CAUSAL = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))


def trained(apply, parameters):
    """Returns the losses of 50 steps of Adam."""
    optimizer = optax.adam(3e-3)

    @jax.jit
    def step(parameters, state):
        loss, gradients = jax.value_and_grad(lambda p: jnp.mean((apply(p, INPUTS) - TARGETS) ** 2))(parameters)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(parameters, updates), state, loss

    state, losses = optimizer.init(parameters), []
    for _ in range(STEPS):
        parameters, state, loss = step(parameters, state)
        losses.append(float(loss))
    return losses, step.lower(parameters, state).as_text()


def flax_losses(attention_fn):
    options = {} if attention_fn is None else {"attention_fn": attention_fn}
    layer = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=nnx.Rngs(0), **options)
    graph, parameters = nnx.split(layer)
    return trained(lambda p, x: nnx.merge(graph, p)(x, mask=CAUSAL[None, None]), parameters)


class EquinoxAttention(equinox.nn.MultiheadAttention):
    def __call__(self, query, key_, value, mask=None):
        projections = (self.query_proj, query), (self.key_proj, key_), (self.value_proj, value)
        out = attention(*(self._project(projection, x) for projection, x in projections), mask=mask)
        return jax.vmap(self.output_proj)(out.reshape(len(query), -1))


def equinox_losses(layer):
    parameters, static = equinox.partition(layer(HEADS, WIDTH, key=jax.random.key(0)), equinox.is_array)
    return trained(lambda p, x: jax.vmap(lambda x: equinox.combine(p, static)(x, x, x, mask=CAUSAL))(x), parameters)


def keras_losses():
    keras.utils.set_random_seed(0)
    layer = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
    layer.build(INPUTS.shape, INPUTS.shape)
    parameters = [variable.value for variable in layer.trainable_variables]
    apply = lambda p, x: layer.stateless_call(p, [], x, x, use_causal_mask=True)[0]  # noqa: E731
    return trained(apply, parameters)


def same(ours, theirs):
    (losses, program), (expected, other) = ours, theirs
    assert "isentrope_forward" in program and "isentrope_backward" in program and "isentrope" not in other
    assert expected[-1] < 0.97 * expected[0], "it learns"
    np.testing.assert_allclose(losses, expected, rtol=2e-4)


def test_flax():
    same(flax_losses(lambda q, k, v, mask=None, **_: attention(q, k, v, mask=mask)), flax_losses(None))


def test_equinox():
    same(equinox_losses(EquinoxAttention), equinox_losses(equinox.nn.MultiheadAttention))


def test_keras(monkeypatch):
    expected = keras_losses()
    monkeypatch.setattr(jax.nn, "dot_product_attention", attention)  # which keras calls, and has no other switch
    same(keras_losses(), expected)
