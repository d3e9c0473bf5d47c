"""Arguments of unusual attentions: what counts, and what is refused by name. test_architectures compares the numbers."""

import pytest
import torch
import transformers as hf
from families import SIZES
from sweep.cases import first_output
from sweep.inputs import inputs_of, padding
from sweep.judge import TOLERANCE, build, error_of
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import TransformersKwargs

import isentrope.hf
from isentrope.hf import architectures
from isentrope.hf.architectures import check_arguments, chosen_keys, keep_chosen_keys
from isentrope.hf.masks import row_mask
from isentrope.hf.register import attention_forward

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


def with_sinks(query, key, value, sinks, seen):
    scores = (query @ key.transpose(-2, -1) * 8**-0.5).masked_fill(~seen, -1e30)
    weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
    return (weights @ value).transpose(1, 2)


def test_a_sink_of_each_row_takes_weight_and_gradient():
    inputs = [torch.randn(2, 4, 5, dim, requires_grad=True) for dim in (8, 8, 6, 1)]
    seen = torch.ones(5, 5, dtype=torch.bool).tril().repeat(2, 1, 1, 1)
    seen[1, :, :, :2] = False  # the first two rows see no key
    with isentrope.hf.record("lse", "support") as records:
        output, _ = attention_forward(torch.nn.Module(), *inputs[:3], seen, sinks=inputs[3])
    want = with_sinks(*inputs, seen)
    torch.testing.assert_close(output, want)
    upstream = torch.randn_like(want)
    for got, wanted in zip(torch.autograd.grad(output, inputs, upstream), torch.autograd.grad(want, inputs, upstream)):
        torch.testing.assert_close(got, wanted)
    (record,) = records
    plain, _ = attention_forward(torch.nn.Module(), *inputs[:3], seen)
    torch.testing.assert_close(output, plain * torch.sigmoid(record.statistics.lse[..., None] - inputs[3]).transpose(1, 2))
    assert record.statistics.support.max() == 5 and record.statistics.entropy is None


def test_statistics_that_nobody_asked_for_stay_none_with_sinks():
    states = torch.zeros(1, 1, 2, 8)
    with isentrope.hf.record("entropy") as records:
        attention_forward(torch.nn.Module(), states, states, states, None, sinks=torch.zeros(1, 1, 2, 1))
    assert records[0].statistics.lse is None and records[0].statistics.entropy.allclose(torch.tensor(2.0).log())


def test_sinks_of_another_shape_are_refused():
    states = torch.zeros(1, 4, 2, 8)
    with pytest.raises(ValueError, match=r'sinks must be \[1, 4, 2, 1\].*got \[4\]: .*attn_implementation="eager"'):
        attention_forward(torch.nn.Module(), states, states, states, None, sinks=torch.zeros(4))


# is_causal of the first two contradicts their masks; the others have no is_causal.
@pytest.mark.long
@pytest.mark.parametrize("name", ["aimv2", "paligemma", "nllb-moe", "splinter", "minimax_m3_vl_text"])
def test_a_compiled_model_without_a_mask_is_the_eager_one(name):
    eager, ours = build(name, "eager"), build(name, "isentrope")
    inputs = inputs_of(eager)
    with torch.no_grad():
        want = first_output(eager(**inputs))
        output = first_output(torch.compile(ours, backend="aot_eager")(**inputs))
    assert error_of(output, want) < TOLERANCE


class Sparse(torch.nn.Module):
    def forward(self, attend, **kwargs):
        return attend(self, block_indices=kwargs.pop("chosen"), **kwargs)


def test_an_argument_that_the_module_names_is_refused():
    def attend(module, **arguments):
        check_arguments(module, arguments)

    Sparse()(attend, chosen=None, shift_labels=torch.zeros(1), output_attentions=False)
    with pytest.raises(ValueError, match='of Sparse .*block_indices=.*attn_implementation="eager"'):
        Sparse()(attend, chosen=torch.zeros(1))


def test_rows_see_only_the_blocks_that_minimax_m3_chooses():
    model = build("minimax_m3_vl_text", "isentrope")  # blocks of 3 keys, 2 of which a row sees
    with isentrope.hf.record("support") as records:
        model(**inputs_of(model))
    full, sparse = (record.statistics.support[0, 0].tolist() for record in records)
    assert full == list(range(1, 13)) and sparse[:6] == full[:6]
    assert sparse[6:] == [4, 5, 6] * 2, "a whole block, and the row's own up to the row"


def test_blocks_of_groups_of_heads_are_chosen_keys():
    module, query = torch.nn.Module(), torch.zeros(1, 4, 2, 8)
    module.indexer = torch.nn.Module()
    module.indexer.block_size = 2
    blocks = torch.tensor([[[[0, -1], [2, 0]], [[-1, -1], [1, 1]]]])
    chosen = chosen_keys(module, query, 5, None, blocks)
    first, second = [[1, 1, 0, 0, 0], [1, 1, 0, 0, 1]], [[0, 0, 0, 0, 0], [0, 0, 1, 1, 0]]
    assert chosen.int().tolist() == [[first, first, second, second]]
    assert keep_chosen_keys(None, chosen, causal=True).equal(chosen.tril())


def test_blocks_without_a_size_are_refused_by_name():
    states = torch.zeros(1, 4, 2, 8)
    with pytest.raises(ValueError, match='of Module .*block_indices=.*attn_implementation="eager"'):
        attention_forward(torch.nn.Module(), states, states, states, None, block_indices=torch.zeros(1, 2, 2, 1))


def test_every_argument_that_transformers_lists_was_read():
    """A failure means: read what the new argument does, and list it with the reason, or use it."""
    assert set(TransformersKwargs.__annotations__) <= architectures._HARMLESS


def test_a_mask_of_integers_is_refused_by_name():
    model, ids = build("llama", "isentrope"), torch.randint(3, 60, (2, 6))
    mask = torch.ones(2, 1, 6, 6, dtype=torch.long).tril()
    with pytest.raises(ValueError, match=r"attention_mask of LlamaAttention must be boolean, .*; got torch.int64: write mask.bool\(\)"):
        model(ids, attention_mask=mask)
    assert error_of(model(ids, attention_mask=mask.bool()).logits, model(ids).logits) < TOLERANCE


@pytest.mark.parametrize("name", ["mpt", "bloom", "xglm"])
def test_a_rule_is_refused_where_no_attention_would_read_it(name):
    model = build(name, "isentrope")
    with pytest.raises(ValueError, match=f"must have a replaceable attention; got {type(model).__name__}, whose .*Attention computes"):
        isentrope.hf.set_rule(model, "logn(4)")


def test_a_rule_is_set_in_the_parts_whose_attention_is_replaceable():
    model = build("got_ocr2", "isentrope")  # its images have an attention of their own
    isentrope.hf.set_rule(model, "logn(4)")
    ruled = {type(module).__name__ for module in model.modules() if hasattr(module, "isentrope_rule")}
    assert ruled == {"Qwen2Attention"}


def test_a_built_class_with_a_fixed_table_keeps_its_attention():
    model = build("git", "eager")
    with pytest.warns(UserWarning, match="attention of GitForCausalLM must be one of eager; got 'isentrope': it keeps 'eager'"):
        model.set_attn_implementation("isentrope")
    with pytest.raises(ValueError, match="must use attn_implementation=\"isentrope\"; got 'eager'"):
        isentrope.hf.set_rule(model, "logn(4)")


class OwnConfig(hf.PretrainedConfig):
    model_type = "not_registered"


class OwnAttention(torch.nn.Module):
    """Adds a bias to its mask, as classes without support for sdpa may."""

    def __init__(self, config):
        super().__init__()
        self.config, self.projection = config, torch.nn.Linear(16, 48)

    def forward(self, states, attention_mask):
        query, key, value = self.projection(states).view(*states.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        attention_mask = attention_mask + (0.1 * torch.arange(states.shape[1])).to(attention_mask.dtype)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        return attend(self, query, key, value, attention_mask)[0].flatten(2)


def eager_attention(module, query, key, value, attention_mask):
    weights = (query @ key.transpose(2, 3) * 8**-0.5 + attention_mask).softmax(-1)
    return (weights @ value).transpose(1, 2), weights


class OwnModel(hf.PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.attention = OwnAttention(config)
        self.post_init()

    def forward(self, states, mask=None):
        return self.attention(states, create_causal_mask(self.config, states, mask, None))


def test_a_class_that_transformers_does_not_list_gets_the_masks_of_the_eager_attention():
    states = 3 * torch.randn(2, 6, 16)
    model = OwnModel(OwnConfig()).eval()
    want = model(states)
    model.set_attn_implementation("isentrope")
    assert error_of(model(states), want) < TOLERANCE
    with pytest.raises(ValueError, match='attention_mask of OwnAttention must be additive.*attn_implementation="eager"'):
        model.attention(states, torch.ones(2, 1, 6, 6, dtype=torch.bool).tril())


class Wrapper(hf.PreTrainedModel):
    config_class = hf.LlamaConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = hf.LlamaModel(config)
        self.post_init()


def test_a_wrapper_of_a_listed_class_changes_no_mask():
    config = hf.LlamaConfig(vocab_size=61, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    Wrapper._from_config(config, attn_implementation="isentrope")
    assert row_mask(2, 1, 5, 4, config=config) is None and row_mask(2, 5, 5, config=config).dtype == torch.bool


def test_an_own_class_with_a_listed_configuration_is_refused():
    config = hf.LlamaConfig(hidden_size=16, num_attention_heads=2)
    model = OwnModel._from_config(config, attn_implementation="isentrope")
    with pytest.raises(ValueError, match='must be additive where a model adds to it.*attn_implementation="eager"'):
        model(torch.randn(2, 6, 16))


class OlderAttention(OwnAttention):
    def forward(self, states, attention_mask):
        query, key, value = self.projection(states).view(*states.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        return ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation](self, query, key, value, attention_mask)[0].flatten(2)


def test_a_class_that_indexes_the_table_of_attentions_may_have_a_rule(monkeypatch):
    monkeypatch.setattr(OwnModel, "_can_set_attn_implementation_cached_value", False, raising=False)
    model = OwnModel._from_config(OwnConfig(), attn_implementation="isentrope")
    model.attention = OlderAttention(model.config)
    isentrope.hf.set_rule(model, "logn(4)", force=True)
    assert model.attention.isentrope_rule == isentrope.ScaleRule("logn(4)")


def test_a_class_whose_source_cannot_be_read_may_have_a_rule(monkeypatch):
    monkeypatch.setattr(OwnModel, "__module__", "of_a_notebook")
    model = OwnModel._from_config(OwnConfig(), attn_implementation="isentrope")
    isentrope.hf.set_rule(model, "logn(4)", force=True)
    assert model.attention.isentrope_rule == isentrope.ScaleRule("logn(4)")
