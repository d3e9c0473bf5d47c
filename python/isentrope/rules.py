"""ScaleRule: the softmax scale lambda of a row, as a function of the number of keys that the row sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

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


def _make(name: str, arguments: dict[str, Any], policy: dict[str, Any]) -> ScaleRule:
    listed = ", ".join(f"{key}={_argument(key, value)}" for key, value in (arguments | policy).items())
    return ScaleRule(f"{name}({listed})" if listed else name)


class ScaleRule:
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
        return list(json.loads(OPS.rule_catalogue()))

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

    # <!-- begin rule-constructors -->
    @staticmethod
    def standard(**policy: Any) -> ScaleRule:
        """1/sqrt(d)

        Vaswani et al. 2017.
        """
        return _make("standard", {}, policy)

    @staticmethod
    def constant(scale: float = 1, **policy: Any) -> ScaleRule:
        """scale

        T5 and Gemma 4 (1), Granite attention_multiplier.
        """
        return _make("constant", {"scale": scale}, policy)

    @staticmethod
    def query_pre_attn_scalar(scalar: float = 256, **policy: Any) -> ScaleRule:
        """1/sqrt(scalar)

        Gemma 2, Gemma 3.
        """
        return _make("query_pre_attn_scalar", {"scalar": scalar}, policy)

    @staticmethod
    def inverse_dim(**policy: Any) -> ScaleRule:
        """1/d

        Inkling, Dragon, maximal-update parametrisation.
        """
        return _make("inverse_dim", {}, policy)

    @staticmethod
    def scaled(gain: PerHead = 2.5, **policy: Any) -> ScaleRule:
        """gain_h/sqrt(d)

        gain 2.5: Su 2023, gradient maximisation; per head: HeadScale (Wang et al. 2024), DroPE.
        """
        return _make("scaled", {"gain": gain}, policy)

    @staticmethod
    def cosine(tau: PerHead = 10, tau_max: float = 100, **policy: Any) -> ScaleRule:
        """min(tau_h, tau_max)

        Swin v2, CLIP, x-transformers.
        """
        return _make("cosine", {"tau": tau, "tau_max": tau_max}, policy)

    @staticmethod
    def entropy_invariant(base: float = 512, **policy: Any) -> ScaleRule:
        """ln n/(ln base sqrt(d))

        Su 2021; bert4keras and GAU-alpha with n_min = 16.
        length=visible: bert4keras and GAU-alpha sum the row's mask.
        """
        return _make("entropy_invariant", {"base": base}, policy)

    @staticmethod
    def entropy_invariant_kappa(kappa: float = 4.166666666666667, **policy: Any) -> ScaleRule:
        """kappa ln n/d

        Su 2021, before kappa is set to sqrt(d)/ln 512; the default is its estimate 1/0.24.
        length=visible: n is the number of keys that a row sees.
        """
        return _make("entropy_invariant_kappa", {"kappa": kappa}, policy)

    @staticmethod
    def log_length(**policy: Any) -> ScaleRule:
        """ln n/sqrt(d)

        Chiang and Cholak 2022.
        length=visible: the paper's encoders read one text at a time, and each row sees all of it.
        """
        return _make("log_length", {}, policy)

    @staticmethod
    def logn(train_len: float = 8192, **policy: Any) -> ScaleRule:
        """max(1, ln n/ln train_len)/sqrt(d)

        Qwen use_logn_attn, ReRoPE (4096); lmdeploy TurboMind with length=position.
        length=visible: Qwen and ReRoPE use position + 1, the keys that a causal row sees.
        """
        return _make("logn", {"train_len": train_len}, policy)

    @staticmethod
    def ssmax(s: PerHead = 0.43, b: PerHead = 0, **policy: Any) -> ScaleRule:
        """(s_h ln n + b_h)/sqrt(d)

        Scalable-Softmax, Nakanishi 2025; OLMo, Dragon, TabICL.
        length=visible: OLMo counts within the packed document, Dragon within the window.
        """
        return _make("ssmax", {"s": s, "b": b}, policy)

    @staticmethod
    def asentmax(delta: PerHead = 0, beta: PerHead = 1, gamma: PerHead = 1, **policy: Any) -> ScaleRule:
        """(delta_h + beta_h ln(n + 1)^gamma_h)/sqrt(d)

        ASEntmax 2025, arXiv 2506.16640.
        length=visible: position + 2 in its decoders, one more than a row sees.
        """
        return _make("asentmax", {"delta": delta, "beta": beta, "gamma": gamma}, policy)

    @staticmethod
    def attn_temperature_tuning(floor_scale: float = 8192, attn_scale: float = 0.1, **policy: Any) -> ScaleRule:
        """(1 + attn_scale ln(1 + floor((position + 1)/floor_scale)))/sqrt(d)

        Llama 4, layers without rotary embedding; offset=0 counts the position from 0.
        length=position: Llama 4 uses the query's position, counted from 1.
        """
        return _make("attn_temperature_tuning", {"floor_scale": floor_scale, "attn_scale": attn_scale}, policy)

    @staticmethod
    def llama_4_scaling(beta: float = 0.1, train_len: float = 8192, **policy: Any) -> ScaleRule:
        """(1 + beta ln(1 + floor(position/train_len)))/sqrt(d)

        Ministral 3, Mistral 4, Devstral 2: llama_4_scaling_beta.
        length=position: Ministral 3 uses the query's position, counted from 0.
        """
        return _make("llama_4_scaling", {"beta": beta, "train_len": train_len}, policy)

    @staticmethod
    def log_scaling(n_floor: float = 128000, alpha: float = 0.1, **policy: Any) -> ScaleRule:
        """(1 + alpha ln max(1, n/n_floor))/d

        Inkling, global layers; multiplies the position bias too.
        length=visible: Inkling uses position + 1, on layers whose rows see all earlier keys.
        """
        return _make("log_scaling", {"n_floor": n_floor, "alpha": alpha}, policy)

    @staticmethod
    def dual_chunk(train_len: float = 262144, alpha: float = 0.1, **policy: Any) -> ScaleRule:
        """(1 + alpha ln max(1, n/train_len))/sqrt(d)

        Qwen2.5-1M dual-chunk attention in vLLM, where n is the length of the sequence.
        length=total: vLLM multiplies the keys by it, the same for all rows.
        """
        return _make("dual_chunk", {"train_len": train_len, "alpha": alpha}, policy)

    @staticmethod
    def xai_temperature(len: float = 1024, **policy: Any) -> ScaleRule:
        """max(1, ln position/ln len)/sqrt(d)

        Grok-2 attn_temperature_len, after the soft-cap of 30.
        length=position: sglang's kernel uses the query's position, counted from 0.
        """
        return _make("xai_temperature", {"len": len}, policy)

    @staticmethod
    def yarn_mscale(factor: float = 4, mscale: float = 1, **policy: Any) -> ScaleRule:
        """(1 + 0.1 mscale ln max(1, factor))^2/sqrt(d)

        YaRN (Peng et al. 2023): its factor enters q and k, so its square enters the logit; DeepSeek.
        """
        return _make("yarn_mscale", {"factor": factor, "mscale": mscale}, policy)

    @staticmethod
    def dynamic_yarn(train_len: float = 4096, mscale: float = 1, **policy: Any) -> ScaleRule:
        """(1 + 0.1 mscale ln max(1, n/train_len))^2/sqrt(d)

        dynamic YaRN, where n is the number of keys of the call.
        length=total: all angles of a call are stretched equally.
        """
        return _make("dynamic_yarn", {"train_len": train_len, "mscale": mscale}, policy)

    @staticmethod
    def longrope(train_len: float = 4096, target_len: float = 131072, **policy: Any) -> ScaleRule:
        """max(1, ln target_len/ln train_len)/sqrt(d)

        LongRoPE, Phi-3: sqrt(1 + ln(target_len/train_len)/ln train_len) on q and on k.
        """
        return _make("longrope", {"train_len": train_len, "target_len": target_len}, policy)

    @staticmethod
    def proportional(base_len: float = 4096, **policy: Any) -> ScaleRule:
        """sqrt(ln n/ln base_len)/sqrt(d)

        Lumina-Next, Lumina 2 in diffusers; Jin et al. 2023.
        length=total: diffusers uses the tokens of the image, whatever a mask hides.
        """
        return _make("proportional", {"base_len": base_len}, policy)

    @staticmethod
    def infoscale(train_len: float = 512, **policy: Any) -> ScaleRule:
        """sqrt((1 - n^(-2/d))/(1 - train_len^(-2/d)))/sqrt(d)

        InfoScale, arXiv 2501.08570.
        length=visible: its code sums the row's mask.
        """
        return _make("infoscale", {"train_len": train_len}, policy)

    @staticmethod
    def power(exponent: float = 0, gain: float = 1, **policy: Any) -> ScaleRule:
        """gain n^exponent/sqrt(d), exponent 2/(d - 1) when 0 is given

        scaling limits, arXiv 2605.08505: the critical scale of uniform keys on a sphere.
        length=visible: n is the number of keys that a row sees.
        """
        return _make("power", {"exponent": exponent, "gain": gain}, policy)

    @staticmethod
    def grad_max_normal(coef: float = 0.84, **policy: Any) -> ScaleRule:
        """coef sqrt(ln n)/sqrt(d)

        Su 2023: largest gradient through the softmax for normal scores; a decoder uses length=L_max/2.
        length=visible: a decoder's n is position + 1.
        """
        return _make("grad_max_normal", {"coef": coef}, policy)

    @staticmethod
    def grad_max_cosine(dim: float = 128, **policy: Any) -> ScaleRule:
        """c(dim) ln n, c = 3.4877 at dim = 128

        Su 2023: largest gradient through the softmax for cosine scores; c solved for dim.
        length=visible: a decoder's n is position + 1.
        """
        return _make("grad_max_cosine", {"dim": dim}, policy)

    @staticmethod
    def table(n: Sequence[float], factor: Sequence[float], **policy: Any) -> ScaleRule:
        """factor(n)/sqrt(d), linear in ln n between the nodes

        laws that need special functions, measured laws.
        length=visible: n is the number of keys that a row sees.
        """
        return _make("table", {"n": n, "factor": factor}, policy)

    @staticmethod
    def per_row(lambda_: Sequence[float], heads: float = 1, **policy: Any) -> ScaleRule:
        """lambda[h][position]

        data-dependent rules: SSA, QASSMax, adaptive temperature.
        length=position: there is a number for each row.
        """
        return _make("per_row", {"lambda": lambda_, "heads": heads}, policy)

    @staticmethod
    def closed_form(
        c: PerHead = 1,
        p: float = -0.5,
        a: PerHead = 0,
        b: PerHead = 1,
        growth: str = "one",
        unit: float = 1,
        gamma: PerHead = 1,
        lo: float = float("-inf"),
        hi: float = float("inf"),
        rho: float = 1,
        **policy: Any,
    ) -> ScaleRule:
        """c_h d^p clamp(a_h + b_h G(n, d)^gamma_h, lo, hi)^rho

        the form of all rules; G: one, log, log_floor, log_ratio, sphere_gap, power.
        length=visible: n is the number of keys that a row sees.
        """
        arguments = {"c": c, "p": p, "a": a, "b": b, "growth": growth, "unit": unit, "gamma": gamma, "lo": lo, "hi": hi, "rho": rho}
        return _make("closed_form", arguments, policy)

    # <!-- end rule-constructors -->


Rule = str | ScaleRule


def rule_text(rule: str | ScaleRule, scale: float | None) -> str:
    """Returns the rule as text for the operators, with `scale`, if given, instead of the rule's 1/sqrt(d)."""
    if not isinstance(rule, (str, ScaleRule)):
        raise TypeError(f"[attention] rule must be a str or a ScaleRule; got {type(rule).__name__}")
    text = str(rule)  # not inside the f-string, where compilers cannot trace it
    if scale is None:
        return text
    return f"constant(scale={checked_number('attention', 'scale', scale)!r}) * {text}"
