#include "isentrope/scale_rule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "isentrope/error.h"

namespace isentrope {
namespace {

constexpr std::string_view kRules =
    "standard, constant(scale=S), entropy_invariant(base=512), log_length";

std::string number(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

std::string domain_error(std::string_view what, double got) {
  return "[scale_rule] " + std::string(what) + "; got " + number(got);
}

// "base=512" -> 512.
std::optional<double> argument(std::string_view text, std::string_view name) {
  if (!text.starts_with(name) || text.size() <= name.size() || text[name.size()] != '=') return {};
  text.remove_prefix(name.size() + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

ScaleRule ScaleRule::constant(double scale) {
  if (!(std::isfinite(scale) && scale >= 0)) {
    throw Error(domain_error("scale must be finite and at least 0", scale));
  }
  ScaleRule rule;
  rule.kind_ = Kind::constant;
  rule.parameter_ = scale;
  return rule;
}

ScaleRule ScaleRule::entropy_invariant(double base, double n_min) {
  if (!(std::isfinite(base) && base > 1)) {
    throw Error(domain_error("base must be finite and above 1", base));
  }
  if (!(std::isfinite(n_min) && n_min >= 1)) {
    throw Error(domain_error("n_min must be finite and at least 1", n_min));
  }
  ScaleRule rule;
  rule.kind_ = Kind::entropy_invariant;
  rule.parameter_ = base;
  rule.n_min_ = n_min;
  return rule;
}

ScaleRule ScaleRule::log_length() {
  ScaleRule rule;
  rule.kind_ = Kind::log_length;
  return rule;
}

std::string ScaleRule::text() const {
  switch (kind_) {
    case Kind::standard:
      return "standard";
    case Kind::constant:
      return "constant(scale=" + number(parameter_) + ")";
    case Kind::entropy_invariant:
      return "entropy_invariant(base=" + number(parameter_) +
             (n_min_ > 1 ? ",n_min=" + number(n_min_) : "") + ")";
    case Kind::log_length:
      return "log_length";
  }
  return {};
}

ScaleRule ScaleRule::parse(std::string_view text) {
  if (text == "standard") return standard();
  if (text == "log_length") return log_length();
  if (text == "entropy_invariant") return entropy_invariant();
  const auto open = text.find('(');
  if (open != std::string_view::npos && text.ends_with(')')) {
    const std::string_view name = text.substr(0, open);
    const std::string_view arguments = text.substr(open + 1, text.size() - open - 2);
    const auto comma = arguments.find(',');
    const auto first = arguments.substr(0, comma);
    if (name == "constant") {
      if (const auto scale = argument(first, "scale")) return constant(*scale);
    }
    if (name == "entropy_invariant") {
      const auto base = argument(first, "base");
      const auto n_min = comma == std::string_view::npos
                             ? 1
                             : argument(arguments.substr(comma + 1), "n_min");
      if (base && n_min) return entropy_invariant(*base, *n_min);
    }
  }
  throw Error("[scale_rule] a rule must be one of " + std::string(kRules) + "; got \"" +
              std::string(text) + "\"");
}

double ScaleRule::lambda(const RowLength& length, std::int64_t dim) const {
  const double visible = static_cast<double>(length.visible);
  const double unit = 1 / std::sqrt(static_cast<double>(dim));
  if (visible < 1) return 0;
  switch (kind_) {
    case Kind::standard:
      return unit;
    case Kind::constant:
      return parameter_;
    case Kind::entropy_invariant:
      return unit * (std::log(std::max(visible, n_min_)) / std::log(parameter_));
    case Kind::log_length:
      return unit * std::log(visible);
  }
  return 0;
}

}  // namespace isentrope
