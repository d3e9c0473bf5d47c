"""ScaleRule in Python has the library's catalogue."""

import inspect
import json
import math
import pickle
import re

import pytest

import isentrope
from isentrope import ScaleRule
from isentrope._core.library import OPS

REQUIRED = {"table": {"n": [1, 10], "factor": [1.0, 2.0]}, "per_row": {"lambda_": [0.1, 0.2]}}
CATALOGUE = json.loads(OPS.rule_catalogue())


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_rule_has_its_constructor(name):
    parameters = inspect.signature(getattr(ScaleRule, name)).parameters
    assert [p.rstrip("_") for p in parameters if p != "policy"] == CATALOGUE[name]
    made = getattr(ScaleRule, name)(**REQUIRED.get(name, {}))
    if name not in REQUIRED:
        assert made == ScaleRule(name), "the defaults are those of the library"
    assert ScaleRule(made.text) == made == ScaleRule.from_json(made.to_json())
    assert pickle.loads(pickle.dumps(made)) == made and hash(made) == hash(ScaleRule(made.text))
    if counted := json.loads(made.to_json()).get("length"):
        said = re.search(r"length=(\w+): \w+", getattr(ScaleRule, name).__doc__)
        assert said and said[1] == counted, "the docstring says what n is by default, and why"


def test_lambda():
    rule = ScaleRule.entropy_invariant(512)
    assert rule.lambda_(512, 64) == pytest.approx(1 / 8)
    assert rule.lambda_(32768, 64) == pytest.approx(math.log(32768) / math.log(512) / 8)
    assert ScaleRule.ssmax(s=[0.1, 0.5]).lambda_(100, 4, head=1) == pytest.approx(0.5 * math.log(100) / 2)


def test_products_and_policies():
    product = ScaleRule.query_pre_attn_scalar(144) * ScaleRule.logn(512)
    assert product.lambda_(1024, 64) == pytest.approx(math.log(1024) / math.log(512) / 12)
    late = ScaleRule.entropy_invariant(512, n_min=16)
    assert late.lambda_(2, 64) == late.lambda_(16, 64) > 0
    assert ScaleRule.log_length(length="total") != ScaleRule.log_length(length="visible") == ScaleRule.log_length()


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="did you mean logn"):
        ScaleRule("lognn")
    with pytest.raises(ValueError, match="base"):
        ScaleRule.entropy_invariant(0.5)
    with pytest.raises(ValueError, match="n must not be negative; got -1"):
        ScaleRule().lambda_(-1, 64)
    with pytest.raises(TypeError, match="text must be a str; got int"):
        ScaleRule(3)
    with pytest.raises(TypeError, match="text must be a str; got int"):
        ScaleRule.from_json(3)
    with pytest.raises(TypeError, match="n must be an integer; got 1.5"):
        ScaleRule().lambda_(1.5, 64)
    assert isentrope.ScaleRule() == ScaleRule.standard()
