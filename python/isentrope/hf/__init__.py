"""isentrope as an attention of transformers.

    import isentrope.hf
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="isentrope")
    isentrope.hf.set_rule(model, "logn(2048)")

Importing this module registers the attention and its masks under that name. transformers does not save the choice
with a model: name it again at every `from_pretrained`. The rule is saved, in the configuration, and taken up there.
docs/transformers.md has what a mask means for n.
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
    """Spreads every sequence the model is given over the ranks of `mesh`: a process group, or one dimension of a mesh.

    All ranks call the model with the same whole inputs. Each computes its own rows, which are what it returns
    (`isentrope.distributed.gather` puts them together), and the loss of the whole sequence. The gradients of the
    weights are those of one process once they are averaged over the ranks, as FSDP and DDP do. attention_mask may leave
    one range of keys in each row; position_ids that begin again are those of packed documents.

    method, layout: as in `isentrope.distributed.attention`. For one call at a time, without a cache. ValueError where
    an attention has what the ways of computing it know nothing of: a mask or a position bias of its own.
    """
    from isentrope.hf.parallel import spread

    spread(model, mesh, method, layout)


__all__ = [
    "CONTEXT_PARALLEL",
    "NAME",
    "ModelRule",
    "Record",
    "RowMask",
    "apply",
    "attention_forward",
    "attentions",
    "context_parallel",
    "model_rule",
    "reading",
    "record",
    "row_mask",
    "set_rule",
]
