"""NaN and Inf that no mask hides; problems and mutants have hidden ones."""

import pytest
import torch

import isentrope


@pytest.mark.parametrize("causal", [False, True])
def test_a_key_whose_score_is_minus_infinity_counts_nothing(causal):
    """Its weight is 0, and 0 times its logit is NaN without the repair launch."""
    q, k, v = torch.rand(1, 1, 40, 16) + 0.5, torch.randn(1, 1, 70, 16), torch.randn(1, 1, 70, 16)
    k[0, 0, 3, 2] = -float("inf")
    others = [i for i in range(70) if i != 3]
    got = isentrope.attention(q, k, v, scale=0.3, causal=causal, return_stats=True)
    without = isentrope.attention(q, k[:, :, others], v[:, :, others], scale=0.3, causal=causal, return_stats=True)
    torch.testing.assert_close(got[0], without[0])
    for name in ("lse", "entropy", "collision", "variance"):
        torch.testing.assert_close(getattr(got[1], name), getattr(without[1], name), msg=lambda text: f"{name}: {text}")


def test_rows_that_a_repair_took_again_have_the_same_bits():
    """Rows of a causal call that do not see the last key, whose value is NaN."""
    q, k, v = (torch.randn(1, 2, 70, 16) for _ in range(3))
    before, its = isentrope.attention(q, k, v, causal=True, return_stats=True)
    v[:, :, -1] = float("nan")
    after, their = isentrope.attention(q, k, v, causal=True, return_stats=True)
    assert torch.equal(before[:, :, :-1], after[:, :, :-1]) and not after[:, :, -1].isfinite().any()
    assert torch.equal(its.entropy, their.entropy)


@pytest.mark.parametrize("entry", [float("inf"), 1e7])
@pytest.mark.parametrize("return_stats", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_of_large_logits_hides_no_value_from_the_others(entry, return_stats, causal):
    """Such a row makes its program start anew with every tile masked, where values that are not finite count 0."""
    q, k, v = torch.randn(1, 1, 40, 16), torch.randn(1, 1, 100, 16), torch.randn(1, 1, 100, 16)
    q[0, 0, 8, 2] = entry
    v[0, 0, 29, 3] = float("inf")
    got = isentrope.attention(q, k, v, causal=causal, return_stats=return_stats)
    output = got[0] if return_stats else got
    others = [i for i in range(40) if i != 8]
    assert not output[0, 0, others, 3].isfinite().any()
    assert output[0, 0, others][:, [*range(3), *range(4, 16)]].isfinite().all()
