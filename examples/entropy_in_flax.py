import jax
import jax.numpy as jnp
import optax
from flax import nnx

import isentrope.jax


def attention(q, k, v, mask=None, module=None, is_causal=False, **_):
    out, stats = isentrope.jax.attention(
        q, k, v, mask=mask, is_causal=is_causal, return_stats=("entropy",)
    )
    if module is not None:  # sow_weights=True
        module.sow(nnx.Intermediate, "entropy", stats.entropy.mean((0, 1)))
    return out


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(256, 64, rngs=rngs)
        options = {"attention_fn": attention, "decode": False}
        self.attend = nnx.MultiHeadAttention(4, 64, rngs=rngs, **options)
        self.head = nnx.Linear(64, 256, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.attend(x, sow_weights=True, is_causal=True))


@nnx.jit
def step(model, optimizer, tokens):
    def loss(model):
        logits, sown = nnx.capture(model, nnx.Intermediate)(tokens[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels
        return losses(logits, tokens[:, 1:]).mean(), sown

    (value, sown), gradients = nnx.value_and_grad(loss, has_aux=True)(model)
    optimizer.update(model, gradients)
    return value, sown


text = jnp.array(list(open("README.md", "rb").read()))
model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(3e-3), wrt=nnx.Param)
for i in range(101):
    starts = jax.random.randint(jax.random.key(i), (16, 1), 0, len(text) - 64)
    value, sown = step(model, optimizer, text[starts + jnp.arange(64)])
    if i % 50 == 0:
        print(i, value, *jax.tree.leaves(sown))  # a number for each head
