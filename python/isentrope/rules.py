"""ScaleRule: the softmax scale lambda of a row, as a function of the number of keys that the row sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from isentrope._core.library import CHECKED, OPS
from isentrope._core.values import checked_integer, checked_number, shown

PerHead = float | Sequence[float]
"""One number for all heads, or one number for each."""


def _argument(name: str, value: Any) -> str:
    if isinstance(value, str):
        if value.encode(errors="ignore").decode() != value:
            raise ValueError(f"[ScaleRule] {name} must be text without surrogates; got {shown(value)}")
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(checked_number("ScaleRule", name, value))
    try:
        if isinstance(value, (bytes, set, dict)) or getattr(value, "ndim", 1) != 1:
            raise TypeError
        return f"[{', '.join(repr(float(x)) for x in value)}]"
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise TypeError(f"[ScaleRule] {name} must be a number, or numbers in order; got {shown(value)}") from None


# Every rule of the library: its parameters with their types, domains and defaults, and its description.
CATALOGUE: dict[str, Any] = json.loads(OPS.rule_catalogue())

if TYPE_CHECKING:
    # Written by the build from the catalogue, for type checkers and editors.
    from isentrope.rule_constructors import RuleConstructors as _Constructors
else:
    _Constructors = object


class ScaleRule(_Constructors):
    """Softmax scale of a row as a function of the number of keys it sees.

        ScaleRule("entropy_invariant(base=512)") == ScaleRule.entropy_invariant(512)

    A rule is a value: it compares, hashes, prints, pickles, and round-trips through text and JSON. Every function that
    takes a rule also takes its text. Multiply two rules that one model applies together: the product has the base of
    the first and the factors of both. For learned numbers per head, which are tensors, see
    `SSMax` and `attention_rows`.

    The constructors are those of the library's catalogue, with its defaults. Each also takes
    `length="visible"|"position"|"total"|N`, `n_min`, `n_max` and `offset`, which define the length that the rule uses.
    `where="pre_cap"|"post_cap"` and `scale_bias` define what it multiplies.

    Raises ValueError that names argument, domain and value. docs/scale-rules.md has formulas, sources and advice.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str = "standard") -> None:
        if not isinstance(text, str):
            raise TypeError(f"[ScaleRule] text must be a str; got {type(text).__name__}")
        self._text: str = CHECKED.rule_text(text)

    @property
    def text(self) -> str:
        """Text of the rule, such as "logn(train_len=4096)": `ScaleRule(rule.text) == rule`."""
        return self._text

    def lambda_(self, n: int, d: int, head: int = 0) -> float:
        """Returns the softmax scale of a row that sees n >= 0 keys, the last of them at its own position.

        d: head dimension, at least 1. head: index, for rules with numbers per head. 0 for n = 0. Raises ValueError or
        TypeError that names the argument.
        """
        n, d, head = (checked_integer("lambda_", name, x) for name, x in (("n", n), ("d", d), ("head", head)))
        return CHECKED.rule_lambda(self._text, n, d, head)

    def to_json(self) -> str:
        """Returns the rule as JSON, such as `{"rule": "entropy_invariant", "base": 512, "length": "visible"}`.

        A product is `{"product": [...]}`. The length that the rule counts, if any, is always written.
        """
        return CHECKED.rule_to_json(self._text)

    @staticmethod
    def from_json(text: str) -> ScaleRule:
        """Parses the output of to_json(). Defaults may be omitted, and a JSON string with the text form is accepted.

        Raises TypeError unless `text` is a str, and ValueError that names what is wrong in it.
        """
        if not isinstance(text, str):
            raise TypeError(f"[ScaleRule] text must be a str; got {type(text).__name__}")
        return ScaleRule(CHECKED.rule_from_json(text))

    @staticmethod
    def names() -> list[str]:
        """Returns the names of all rules."""
        return list(CATALOGUE)

    def __mul__(self, other: ScaleRule) -> ScaleRule:
        if not isinstance(other, ScaleRule):
            return NotImplemented
        return ScaleRule(f"{self._text} * {other._text}")

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, ScaleRule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ScaleRule({self._text!r})"

    def __reduce__(self) -> tuple:
        return ScaleRule, (self._text,)


def _default(parameter: dict[str, str]) -> Any:
    if "default" not in parameter:
        return Parameter.empty
    text = parameter["default"]
    return text if parameter["type"] == "str" else float(text)


def _constructor(name: str, rule: dict[str, Any]) -> Any:
    """Returns the constructor of a rule. The defaults of its signature are those that the library sets."""
    parameters = [
        Parameter(x["name"], Parameter.POSITIONAL_OR_KEYWORD, annotation=x["type"], default=_default(x)) for x in rule["parameters"]
    ]
    policy = Parameter("policy", Parameter.VAR_KEYWORD, annotation="Any")
    signature = Signature([*parameters, policy], return_annotation="ScaleRule")

    def make(*positional: Any, **named: Any) -> ScaleRule:
        arguments = signature.bind(*positional, **named).arguments
        values = arguments | arguments.pop("policy", {})
        listed = ", ".join(f"{key.rstrip('_')}={_argument(key, value)}" for key, value in values.items())
        return ScaleRule(f"{name}({listed})" if listed else name)

    make.__name__, make.__qualname__, make.__doc__ = name, f"ScaleRule.{name}", rule["description"]
    make.__signature__ = signature  # type: ignore[attr-defined]
    return staticmethod(make)


for _name, _rule in CATALOGUE.items():
    setattr(ScaleRule, _name, _constructor(_name, _rule))

Rule = str | ScaleRule


def rule_text(rule: str | ScaleRule, scale: float | None) -> str:
    """Returns the rule as text for the operators, with `scale`, if given, instead of the rule's 1/sqrt(d)."""
    if not isinstance(rule, (str, ScaleRule)):
        raise TypeError(f"[attention] rule must be a str or a ScaleRule; got {type(rule).__name__}")
    text = str(rule)  # not inside the f-string, where compilers cannot trace it
    if scale is None:
        return text
    return f"constant(scale={checked_number('attention', 'scale', scale)!r}) * {text}"
