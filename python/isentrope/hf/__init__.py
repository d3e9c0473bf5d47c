"""isentrope as an attention implementation of transformers.

    import isentrope.hf
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="isentrope")
    isentrope.hf.set_rule(model, "logn(2048)")

Importing this module registers the attention and its masks under that name. transformers does not save the choice
with a model: pass it to every `from_pretrained`. The rule is saved in the configuration, and `from_pretrained` restores
it. docs/transformers.md says how masks affect n.
"""

from __future__ import annotations

from typing import Any

from torch import nn

try:
    from transformers import AttentionInterface  # noqa: F401
    from transformers.masking_utils import AttentionMaskInterface  # noqa: F401
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "isentrope.hf needs transformers 5.18 or later: pip install transformers", name="transformers"
    ) from _error

from isentrope.hf.calibrated import apply
from isentrope.hf.masks import RowMask, row_mask
from isentrope.hf.recording import Record, record
from isentrope.hf.register import attention_forward, reading
from isentrope.hf.rules import CONTEXT_PARALLEL, NAME, ModelRule, attentions, model_rule, set_rule


def context_parallel(model: nn.Module, mesh: Any, method: str = "ring", layout: str = "zigzag") -> None:
    """Splits every input sequence of the model over the ranks of `mesh`: a process group, or one dimension of a mesh.

    All ranks call the model with the same whole inputs. Each computes and returns its own rows
    (`isentrope.distributed.gather` joins them) and the loss of the whole sequence. Averaged over the ranks, as FSDP and
    DDP do, the gradients of the weights are those of one process. attention_mask must leave one range of keys in each
    row; position_ids that restart at 0 mark packed documents.

    method, layout: as in `isentrope.distributed.attention`. Makes one call at a time, without a cache. Raises ValueError
    if an attention has a mask or a position bias of its own, which the methods do not support. So it does if tokens see each
    other elsewhere, as in convolutions and encoders. Labels are those of the next token.
    """
    from isentrope.hf.parallel import spread

    spread(model, mesh, method, layout)


__all__ = [
    "CONTEXT_PARALLEL", "NAME", "ModelRule", "Record", "RowMask", "apply", "attention_forward", "attentions", "context_parallel",
    "model_rule", "reading", "record", "row_mask", "set_rule",
]  # fmt: skip
