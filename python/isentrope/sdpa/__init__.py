"""isentrope behind `torch.nn.functional.scaled_dot_product_attention`, on request.

    with isentrope.sdpa.activate("entropy_invariant(base=512)"):
        model(tokens)

    torch.nn.attention.activate_flash_attention_impl("ISENTROPE")       # on GPUs, under the rule of set_flash_rule
"""

from isentrope.sdpa.activation import Activation, activate
from isentrope.sdpa.flash import register as _register
from isentrope.sdpa.flash import set_flash_rule

_register()

__all__ = ["Activation", "activate", "set_flash_rule"]
