"""ScaleRule in Python has the library's catalogue."""

import ast
import inspect
import json
import math
import pickle
import re
from pathlib import Path

import pytest
from refusals import assert_refused

import isentrope
from isentrope import ScaleRule
from isentrope.rules import CATALOGUE

REQUIRED = {"table": {"n": [1, 10], "factor": [1.0, 2.0]}, "per_row": {"lambda_": [0.1, 0.2]}}


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_rule_has_its_constructor(name):
    parameters = inspect.signature(getattr(ScaleRule, name)).parameters
    assert list(parameters) == [*(parameter["name"] for parameter in CATALOGUE[name]["parameters"]), "policy"]
    made = getattr(ScaleRule, name)(**REQUIRED.get(name, {}))
    if name not in REQUIRED:
        assert made == ScaleRule(name), "the defaults are those of the library"
    assert ScaleRule(made.text) == made == ScaleRule.from_json(made.to_json())
    assert pickle.loads(pickle.dumps(made)) == made and hash(made) == hash(ScaleRule(made.text))
    if counted := json.loads(made.to_json()).get("length"):
        said = re.search(r"length=(\w+): \w+", getattr(ScaleRule, name).__doc__)
        assert said and said[1] == counted, "the docstring says what n is by default, and why"


def test_type_checkers_and_editors_see_the_same_constructors():
    (stub,) = (file for folder in isentrope.__path__ for file in Path(folder).glob("rule_constructors.pyi"))
    (declared,) = (node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ClassDef))
    assert [function.name for function in declared.body] == ScaleRule.names()
    for function in declared.body:
        made, arguments = getattr(ScaleRule, function.name), function.args.args
        parameters = inspect.signature(made).parameters.values()
        assert [(x.arg, ast.unparse(x.annotation)) for x in arguments] == [(p.name, p.annotation) for p in parameters][:-1]
        assert len(function.args.defaults) == sum(p.default is not p.empty for p in parameters)
        assert ast.get_docstring(function) == inspect.getdoc(made)


def test_a_constructor_takes_what_it_declares():
    assert ScaleRule.cosine(5, tau_max=7) == ScaleRule("cosine(tau=5,tau_max=7)")
    assert str(inspect.signature(ScaleRule.logn)) == "(train_len: 'float' = 8192.0, **policy: 'Any') -> 'ScaleRule'"
    for call, message in ((lambda: ScaleRule.table([1, 2]), "'factor'"), (lambda: ScaleRule.logn(1, 2), "too many positional")):
        assert_refused(message, call, error=TypeError)


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
    assert_refused("did you mean logn", ScaleRule, "lognn")
    assert_refused("base", ScaleRule.entropy_invariant, 0.5)
    assert_refused("n must not be negative; got -1", ScaleRule().lambda_, -1, 64)
    assert_refused("text must be a str; got int", ScaleRule, 3, error=TypeError)
    assert_refused("text must be a str; got int", ScaleRule.from_json, 3, error=TypeError)
    assert_refused("n must be an integer; got 1.5", ScaleRule().lambda_, 1.5, 64, error=TypeError)
    assert isentrope.ScaleRule() == ScaleRule.standard()
