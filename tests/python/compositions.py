"""Compositions of derivatives, each a function of a function f of q, k, v that returns a tuple, its inputs x and tangents t."""

import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

ALL = (0, 1, 2)


def by_definition(q, k, v, seen):
    """Returns output and entropy by operators of torch that have all derivatives.

    Its softmax and logsumexp have no backward pass of their forward mode."""
    z = q @ k.mT / q.shape[-1] ** 0.5
    weights = torch.where(seen, z.exp(), 0)
    total = weights.sum(-1, keepdim=True)
    p = weights / total
    return p @ v, total.log().squeeze(-1) - (p * z).sum(-1)


def square(f):
    return lambda *x: sum(part.square().sum() for part in f(*x))


def _dual(f, x, t):
    with forward_ad.dual_level():
        results = f(*(forward_ad.make_dual(*pair) for pair in zip(x, t)))
        return [forward_ad.unpack_dual(result).tangent for result in results]


def _leaves(x):
    return [part.detach().requires_grad_() for part in x]


def _backward_of_dual(f, x, t):
    leaves = _leaves(x)
    return torch.autograd.grad(sum(part.square().sum() for part in _dual(f, leaves, t)), leaves)


def _dual_of_backward(f, x, t):
    return _dual(lambda *duals: torch.autograd.grad(square(f)(*duals), duals), _leaves(x), t)


def create_graph(f, x, t):
    leaves = _leaves(x)
    gradients = torch.autograd.grad(square(f)(*leaves), leaves, create_graph=True)
    return torch.autograd.grad(sum((a * b).sum() for a, b in zip(gradients, t)), leaves)


COMPOSITIONS = {
    "jvp": lambda f, x, t: torch.func.jvp(f, x, t)[1],
    "linearize": lambda f, x, t: torch.func.linearize(f, *x)[1](*t),
    "dual numbers": _dual,
    "jacfwd": lambda f, x, t: torch.func.jacfwd(f, ALL)(*x),
    "jacrev": lambda f, x, t: torch.func.jacrev(f, ALL)(*x),
    "hessian": lambda f, x, t: torch.func.hessian(square(f), ALL)(*x),
    "jacrev of jacrev": lambda f, x, t: torch.func.jacrev(torch.func.jacrev(square(f), ALL), ALL)(*x),
    "jacfwd of jacfwd": lambda f, x, t: torch.func.jacfwd(torch.func.jacfwd(f, ALL), ALL)(*x),
    "jvp of jvp": lambda f, x, t: torch.func.jvp(lambda *x: torch.func.jvp(f, x, t)[1], x, x)[1],
    "jacrev of jacfwd": lambda f, x, t: torch.func.jacrev(torch.func.jacfwd(square(f), ALL), ALL)(*x),
    "grad of jvp": lambda f, x, t: torch.func.grad(square(lambda *x: torch.func.jvp(f, x, t)[1]), ALL)(*x),
    "jvp of grad": lambda f, x, t: torch.func.jvp(torch.func.grad(square(f), ALL), x, t)[1],
    "vmap of hessian": lambda f, x, t: torch.vmap(torch.func.hessian(lambda q: square(f)(q, *x[1:])))(torch.stack([x[0], t[0]])),
    "grad of grad": lambda f, x, t: torch.func.grad(square(torch.func.grad(square(f), ALL)), ALL)(*x),
    "create_graph": create_graph,
    "backward of dual numbers": _backward_of_dual,
    "dual numbers of backward": _dual_of_backward,
    "checkpoint": lambda f, x, t: create_graph(lambda *x: checkpoint(f, *x, use_reentrant=False), x, t),
}  # fmt: skip


def assert_same(got, want, tolerance=1e-9):
    leaves = torch.utils._pytree.tree_leaves
    torch.testing.assert_close(leaves(got), leaves(want), rtol=tolerance, atol=tolerance)
