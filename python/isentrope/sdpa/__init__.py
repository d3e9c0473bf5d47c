"""isentrope behind `torch.nn.functional.scaled_dot_product_attention`, on request.

    with isentrope.sdpa.activate("entropy_invariant(base=512)"):
        model(tokens)
"""

from isentrope.sdpa.activation import Activation, activate

__all__ = ["Activation", "activate"]
