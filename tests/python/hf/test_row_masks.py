"""Masks of transformers reach the operator as numbers that describe the dense mask, without writing it."""

import pytest
import torch
import transformers as hf
from dense import visible
from dispatched import Dispatched
from families import GQA, OTHERS, model_of, twins
from torch.utils._pytree import tree_leaves
from transformers import masking_utils

import isentrope.hf
from isentrope import ScaleRule
from isentrope._core.masks import Masks
from isentrope.hf.masks import RowMask, row_mask
from isentrope.hf.register import attention_forward

NOTHING = torch.zeros(2, dtype=torch.long)
LEFT = torch.tensor([5, 0])


def ids_of(*lengths):
    return torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])[None].expand(2, -1)


def blocks(*counts):
    return torch.where(torch.arange(12) < torch.tensor(counts)[:, None], 0, -1)


def prefix_of(ids):
    return masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.blockwise_overlay(ids))


FUNCTIONS = {
    "causal": masking_utils.causal_mask_function,
    "bidirectional": masking_utils.bidirectional_mask_function,
    "window": masking_utils.sliding_window_causal_mask_function(4),
    "window both ways": masking_utils.sliding_window_bidirectional_mask_function(3),
    "chunks": masking_utils.chunked_causal_mask_function(4, NOTHING),
    "chunks behind padding": masking_utils.chunked_causal_mask_function(4, LEFT),
    "prefix": prefix_of(blocks(7, 3)),
    "prefix behind padding": prefix_of(blocks(7, 3)),
    "no blocks": prefix_of(blocks(0, 0)),
}
PADDING = {
    "none": None,
    "left": torch.arange(12) >= LEFT[:, None],
    "right": torch.arange(12) < torch.tensor([12, 6])[:, None],
    "all of one": torch.arange(12) >= torch.tensor([12, 0])[:, None],
}
# q_length, kv_length, q_offset, kv_offset
PLACES = {"whole": (12, 12, 0, 0), "chunk": (4, 12, 8, 0), "window's cache": (3, 7, 9, 5), "static cache": (8, 12, 0, 0)}


def dense_of(mask):
    return torch.ops.aten.alias(mask)


def expect_parts(mask, want):
    arguments = {name: x for name, x in mask.masks._asdict().items() if x is not None}
    window_size = (arguments.pop("window_left"), arguments.pop("window_right"))
    arguments |= {"causal": ("top_left" if arguments["causal"] else False), "window_size": window_size}
    batch, _, queries, keys = mask.shape
    seen, _ = visible(torch.empty(batch, 1, queries, 1), torch.empty(batch, 1, keys, 1), **arguments)
    rows = want.any(-1)  # padded rows see a prefix in one mask and nothing in the other
    assert torch.equal(seen[rows], want.expand_as(seen)[rows])
    assert torch.equal(dense_of(mask), want)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("side", PADDING)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_say_what_the_dense_mask_says(name, side, place):
    queries, keys, *offsets = PLACES[place]
    passed = dict(mask_function=FUNCTIONS[name], attention_mask=PADDING[side])
    want = masking_utils.sdpa_mask(2, queries, keys, *offsets, allow_is_causal_skip=False, **passed)
    got = row_mask(2, queries, keys, *offsets, allow_is_causal_skip=False, **passed)
    if name == "chunks behind padding" and side != "left" or name == "chunks" and side == "left":
        assert type(got) is torch.Tensor, "chunks that are not counted from the first key"
        assert torch.equal(got, want)
    else:
        expect_parts(got, want)


def test_there_is_no_mask_for_the_last_token_alone():
    for function, skip in (("causal", "allow_is_causal_skip"), ("bidirectional", "allow_is_bidirectional_skip")):
        allow = {"allow_is_causal_skip": False} | {skip: True, "mask_function": FUNCTIONS[function]}
        want = masking_utils.sdpa_mask(2, 12, 12, allow_is_causal_skip=False, mask_function=FUNCTIONS[function])
        for padding in (None, PADDING["left"] | True):
            expect_parts(row_mask(2, 12, 12, attention_mask=padding, **allow), want)
    assert row_mask(2, 1, 12, 11) is None


def test_documents_of_one_row_are_packed():
    function = masking_utils.and_masks(
        masking_utils.causal_mask_function, masking_utils.packed_sequence_mask_function(ids_of(5, 1, 6))
    )
    got = row_mask(1, 12, 12, mask_function=function, allow_is_causal_skip=False)
    assert got.masks.cu_seqlens_q.tolist() == got.masks.cu_seqlens_k.tolist() == [0, 5, 6, 12]
    assert got.masks._replace(cu_seqlens_q=None, cu_seqlens_k=None) == Masks(causal=1)
    within_chunks = masking_utils.and_masks(masking_utils.chunked_causal_mask_function(4, torch.zeros(1)), function)
    passed = dict(mask_function=within_chunks, allow_is_causal_skip=False)
    dense = row_mask(1, 12, 12, **passed)
    assert not isinstance(dense, RowMask), "chunks that do not begin with the documents"
    assert torch.equal(dense, masking_utils.sdpa_mask(1, 12, 12, **passed))
    several = row_mask(2, 12, 12, mask_function=function, allow_is_causal_skip=False)
    assert not isinstance(several, RowMask) and torch.equal(several[1, 0], dense_of(got)[0, 0])


@pytest.mark.parametrize(
    "function, padding",
    [
        (masking_utils.and_masks(masking_utils.causal_mask_function, lambda b, h, q, k: k != 3), None),
        (masking_utils.or_masks(*[masking_utils.causal_mask_function] * 2), None),
        (prefix_of(blocks(7, 3).flip(1)), None),
        (prefix_of(torch.arange(12).expand(2, -1) // 4), None),
        (masking_utils.or_masks(FUNCTIONS["window"], masking_utils.blockwise_overlay(blocks(7, 3))), None),
        (masking_utils.causal_mask_function, torch.arange(12).expand(2, -1) != 4),
    ],
    ids=["another function", "another union", "blocks at the end", "several blocks", "blocks in a window", "a hole"],
)
def test_what_is_not_one_interval_stays_dense(function, padding):
    passed = dict(mask_function=function, attention_mask=padding, allow_is_causal_skip=False)
    got, want = row_mask(2, 12, 12, **passed), masking_utils.sdpa_mask(2, 12, 12, **passed)
    assert type(got) is torch.Tensor
    assert torch.equal(got, want)


def test_an_operation_sees_the_dense_mask():
    mask = row_mask(2, 12, 12, mask_function=FUNCTIONS["window"])
    want = masking_utils.sdpa_mask(2, 12, 12, mask_function=FUNCTIONS["window"], allow_is_causal_skip=False)
    assert isinstance(mask, RowMask) and mask.shape == (2, 1, 12, 12) and mask.dtype == torch.bool and mask.ndim == 4
    assert repr(mask).startswith("RowMask([2, 1, 12, 12], Masks(") and "causal=1, window_left=3" in repr(mask)
    for operation in (lambda m: m[:, :, :, :7], lambda m: m.to(torch.float32), lambda m: ~m, lambda m: m.sum(-1),
                      lambda m: torch.where(m, 1.0, 2.0), lambda m: torch.cat([m, m]), lambda m: m.clone()):  # fmt: skip
        got = operation(mask)
        assert type(got) is torch.Tensor and torch.equal(got, operation(want))


MODELS = ["mistral", "gemma2", "gpt_oss", *OTHERS]


def inputs_of(name, length, side="none", prefix=7):
    padding = torch.ones(2, length, dtype=torch.long)
    if side != "none":
        padding[1, slice(None, 4) if side == "left" else slice(-4, None)] = 0
    inputs = {"input_ids": torch.randint(3, 60, (2, length)), "attention_mask": padding}
    if name == "paligemma":
        begin = 1 - padding[:, :1] if side == "left" else 0
        types = (padding.cumsum(1) > prefix).long()
        inputs["token_type_ids"] = types * (padding | (begin == 0)) if side == "left" else types
    return inputs


@pytest.mark.parametrize("side", ["none", "left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_models_give_what_eager_gives(name, side):
    theirs, ours = twins(name)
    inputs = inputs_of(name, 17, side)
    with torch.no_grad():
        want, got = (model(**inputs).logits[inputs["attention_mask"].bool()] for model in (theirs, ours))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def sharp(kind, config, attention):
    torch.manual_seed(3)
    model = kind._from_config(config, attn_implementation=attention).eval()
    for name, weight in model.named_parameters():
        if weight.dim() > 1 and "norm" not in name:
            torch.nn.init.normal_(weight, 0, 0.3)
    return model


@pytest.mark.parametrize("kind, config", [
    (hf.Aimv2TextModel, lambda: hf.Aimv2TextConfig(**GQA)),  # a causal mask, in modules that say is_causal = False
    (hf.PaliGemmaModel, lambda: OTHERS["paligemma"]()[0]),  # a full mask, in modules that say is_causal = True
])  # fmt: skip
def test_the_mask_decides_and_not_is_causal_of_the_module(kind, config):
    inputs = inputs_of("any", 12)
    with torch.no_grad():
        want, got = (sharp(kind, config(), x)(**inputs).last_hidden_state for x in ("eager", "isentrope"))
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5 * want.abs().max().item())


def bytes_made(call):
    """Returns the result of the call, and the bytes of each tensor that an operation makes in it."""
    sizes = []

    def note(function, args, kwargs, result):
        tensors = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and not isinstance(x, RowMask)]
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and type(x) is not RowMask}
        sizes.extend(x.untyped_storage().nbytes() for x in tensors if x.untyped_storage().data_ptr() not in given)

    with torch.no_grad(), Dispatched(note):
        return call(), sizes


def largest_bytes(name, implementation, length):
    # Only the last token's logits, because those of all tokens grow with the length.
    inputs = inputs_of(name, length, "left") | {"logits_to_keep": 1}
    return max(bytes_made(lambda: model_of(name, implementation)(**inputs))[1])


@pytest.mark.parametrize("name", MODELS)
def test_nothing_of_queries_times_keys_is_allocated(name):
    """Doubling the tokens of a prefill doubles its largest tensor, for every model and kind of mask."""
    assert largest_bytes(name, "isentrope", 1024) <= 2.01 * largest_bytes(name, "isentrope", 512)


def test_under_sdpa_something_of_queries_times_keys_is_allocated():
    assert largest_bytes("mistral", "sdpa", 1024) >= 3.9 * largest_bytes("mistral", "sdpa", 512)


@pytest.mark.parametrize("passed, options", [
    ({"sliding_window": 128, "s_aux": torch.randn(4)}, {"window_size": (127, -1)}), ({"softcap": 2.0}, {"soft_cap": 2.0}),
])  # fmt: skip
def test_a_layer_makes_little_beside_the_call_of_the_operator(passed, options):
    """A few numbers for each token: neither masks nor copies of queries, keys or values."""
    q, k, v = (torch.randn(1, 1024, heads, 16).transpose(1, 2) for heads in (4, 2, 2))
    function = masking_utils.sliding_window_causal_mask_function(128) if "sliding_window" in passed else FUNCTIONS["causal"]

    def layer():
        mask = row_mask(1, 1024, 1024, mask_function=function, attention_mask=torch.ones(1, 1024, dtype=torch.bool))
        return attention_forward(torch.nn.Module(), q, k, v, mask, **passed)[0]

    got, sizes = bytes_made(layer)
    want, of_operator = bytes_made(lambda: isentrope.attention(q, k, v, causal=True, sinks=passed.get("s_aux"), **options))
    torch.testing.assert_close(got, want.transpose(1, 2))
    assert sum(sizes) <= sum(of_operator) + 64 * 1024


@pytest.mark.parametrize("name, n", [("llama4", 5), ("gpt_oss", 5), ("paligemma", 7)])
def test_rules_count_what_rows_see(name, n):
    """logn(2) in the first layer, whose rows see chunks, a window, a prefix."""
    _, ours = twins(name)
    isentrope.hf.set_rule(ours, "logn(2)", force=True)
    inputs = inputs_of(name, 12, "left")
    with torch.no_grad(), isentrope.hf.record("lambda_", "support") as records:
        ours(**inputs)
    recorded = next(r.statistics for r in records if r.statistics.support.shape[1:] == (4, 12))
    support = recorded.support[1, 0, 4:]
    at = torch.arange(1, 9)
    want = {"llama4": (at - 1) % n + 1, "gpt_oss": at.clamp(max=n), "paligemma": at.clamp(min=n)}[name]
    assert support.tolist() == want.tolist()
    growth = torch.tensor([ScaleRule("logn(2)").lambda_(int(x), 8) for x in want]) * 8**0.5
    base = recorded.lambda_[1, 0, 4] / growth[0]
    torch.testing.assert_close(recorded.lambda_[1, 0, 4:], base * growth)
