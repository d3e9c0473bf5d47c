"""The table of docs/pytorch.md that translates FlexAttention's functions into arguments, row by row."""

import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, flex_attention

import isentrope

BATCH, HEADS, ROWS = 2, 2, 12
PREFIX, LENGTH, DOCUMENT = torch.tensor([3, 5]), torch.tensor([9, 12]), torch.tensor([0] * 5 + [1] * 7)
BIAS = torch.randn(HEADS, ROWS, ROWS)


def causal(b, h, i, j):
    return i >= j


def scattered(b, h, i, j):
    return (i * 7 + j * 5 + h) % 3 != 0


MASKS = {
    "causal": (causal, {"causal": "top_left"}),
    "window": (lambda b, h, i, j: (i >= j) & (i - j <= 4), {"causal": "top_left", "window_size": (4, 0)}),
    "dilated": (
        lambda b, h, i, j: (i >= j) & (i - j <= 6) & ((i - j) % 3 == 0),
        {"causal": "top_left", "window_size": (6, 0), "dilation": 3},
    ),
    "prefix": (lambda b, h, i, j: (j < PREFIX[b]) | (i >= j), {"causal": "top_left", "prefix_keys": PREFIX}),
    "padding": (lambda b, h, i, j: j < LENGTH[b], {"key_end": LENGTH}),
    "chunks": (and_masks(causal, lambda b, h, i, j: i // 5 == j // 5), {"causal": "top_left", "chunk_size": 5}),
    "any other": (scattered, {"attn_mask": create_mask(scattered, BATCH, HEADS, ROWS, ROWS, device="cpu")}),
}
SCORES = {
    "bias": (lambda score, b, h, i, j: score + BIAS[h, i, j], {"bias": BIAS}),
    "soft-cap": (lambda score, b, h, i, j: 2 * torch.tanh(score / 2), {"soft_cap": 2.0}),
    "a scale for each row": (
        lambda score, b, h, i, j: score * torch.log(i + 2.0),
        {"lambda_": torch.log(torch.arange(ROWS) + 2.0) / 4},
    ),
}


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return [torch.randn(BATCH, HEADS, ROWS, 16) for _ in range(3)]


def rows(table, quick):
    return [row if row in quick else pytest.param(row, marks=pytest.mark.long) for row in table]


@pytest.mark.parametrize("row", rows(MASKS, ("prefix", "chunks")))
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_mask_mods(tensors, row):
    mask_mod, options = MASKS[row]
    block_mask = create_block_mask(mask_mod, BATCH, HEADS, ROWS, ROWS, device="cpu")
    torch.testing.assert_close(isentrope.attention(*tensors, **options), flex_attention(*tensors, block_mask=block_mask))


@pytest.mark.parametrize("row", rows(SCORES, ("soft-cap",)))
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_score_mods(tensors, row):
    score_mod, options = SCORES[row]
    call = isentrope.attention_rows if "lambda_" in options else isentrope.attention
    torch.testing.assert_close(call(*tensors, **options), flex_attention(*tensors, score_mod=score_mod))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_documents(tensors):
    q, k, v = (x[:1] for x in tensors)
    block_mask = create_block_mask(lambda b, h, i, j: DOCUMENT[i] == DOCUMENT[j], None, None, ROWS, ROWS, device="cpu")
    want = flex_attention(q, k, v, block_mask=block_mask)
    starts = torch.tensor([0, 5, 12])
    got = isentrope.varlen_attention(*(x[0].transpose(0, 1) for x in (q, k, v)), starts, starts)
    torch.testing.assert_close(got.transpose(0, 1)[None], want)
