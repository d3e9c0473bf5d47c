"""Arguments of unusual attentions: what counts, and what is refused by name. test_architectures compares the numbers."""

import pytest
import torch
import transformers as hf
from families import SIZES
from sweep.cases import first_output, inputs_of, padding
from sweep.judge import TOLERANCE, build, error_of

import isentrope.hf
from isentrope.hf.architectures import check_arguments

SPARSE = SIZES | dict(
    moe_intermediate_size=16, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
    v_head_dim=16, head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, index_topk=4,
    index_head_dim=16, index_n_heads=2, mlp_layer_types=["dense", "sparse"], layer_types=["indexed_attention"] * 2,
)  # fmt: skip


def sparse_model():
    return hf.AutoModel.from_config(hf.DeepseekV32Config(**SPARSE), attn_implementation="isentrope").eval()


def outputs(model, mask, **inputs):
    torch.manual_seed(4)
    with torch.no_grad():
        return model(input_ids=torch.randint(3, 61, (2, 12)), attention_mask=mask, **inputs).last_hidden_state


def test_support_counts_the_chosen_keys():
    ours = sparse_model()
    with isentrope.hf.record("support") as records:
        outputs(ours, torch.ones(2, 12, dtype=torch.long))
    assert [r.statistics.support.max().item() for r in records] == [4, 4]


@pytest.mark.parametrize("side", ["no", "left", "right"])
def test_a_rule_counts_the_chosen_keys_wherever_positions_begin(side):
    ours = sparse_model()
    isentrope.hf.set_rule(ours, "log_length")
    mask = padding(side)
    with isentrope.hf.record("lambda_", "support") as records:
        outputs(ours, mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    for record in records:
        statistics = record.statistics
        shown = mask.bool()[:, None].expand_as(statistics.support)
        want = [isentrope.ScaleRule("log_length").lambda_(int(n), 16) for n in statistics.support[shown]]
        torch.testing.assert_close(statistics.lambda_[shown], torch.tensor(want), rtol=1e-5, atol=0)


def test_a_rule_of_the_position_is_refused_where_keys_are_chosen():
    ours = sparse_model()
    isentrope.hf.set_rule(ours, "log_length(length=position)")
    with pytest.raises(ValueError, match="DeepseekV32Attention.*got log_length.length=position.*: set a rule with length=visible"):
        outputs(ours, torch.ones(2, 12, dtype=torch.long))


# Modules of the first two contradict their masks by is_causal, those of the others do not say.
@pytest.mark.long
@pytest.mark.parametrize("name", ["aimv2", "paligemma", "nllb-moe", "splinter"])
def test_a_compiled_model_without_a_mask_is_the_eager_one(name):
    eager, ours = build(name, "eager"), build(name, "isentrope")
    inputs = inputs_of(eager)
    with torch.no_grad():
        want = first_output(eager(**inputs))
        found = first_output(torch.compile(ours, backend="aot_eager")(**inputs))
    assert error_of(found, want) < TOLERANCE


class Sparse(torch.nn.Module):
    def forward(self, attend, **kwargs):
        return attend(self, block_indices=kwargs.pop("chosen"), **kwargs)


def test_an_argument_that_the_module_names_is_refused():
    def attend(module, **arguments):
        check_arguments(module, arguments)

    Sparse()(attend, chosen=None, shift_labels=torch.zeros(1), output_attentions=False)
    with pytest.raises(ValueError, match='of Sparse .*block_indices=.*attn_implementation="eager"'):
        Sparse()(attend, chosen=torch.zeros(1))


def test_block_indices_of_minimax_m3_are_refused_by_name():
    from transformers.models.minimax_m3_vl.modeling_minimax_m3_vl import MiniMaxM3VLAttention as Attention

    with pytest.raises(ValueError, match="MiniMaxM3VLAttention .*block_indices="):
        check_arguments(Attention.__new__(Attention), {"block_indices": torch.zeros(1)})
