// Rules, theory, configurations and states with invalid values in C++: an Error with the name, or
// success.

#include <cstring>
#include <functional>
#include <span>

#include "isentrope/attention_state.h"
#include "isentrope/config/scale_rule_json.h"
#include "isentrope/rule_catalogue.h"
#include "isentrope/scale_rule.h"
#include "isentrope/target.h"
#include "isentrope/theory/dimension.h"
#include "isentrope/theory/entropy.h"
#include "isentrope/theory/gradient.h"
#include "isentrope/theory/row_expectation.h"
#include "isentrope/theory/sampled_gradient.h"
#include "isentrope/theory/variance.h"
#include "tests/support/terrible.h"

namespace isentrope {
namespace {

// A call, and the argument that an Error of it names.
template <typename Number>
struct OfNumbers {
  const char* names;
  std::function<void(Number)> call;
};

template <typename Number, typename Values>
void expect_answers(const std::vector<OfNumbers<Number>>& table, const Values& values) {
  for (std::size_t row = 0; row < table.size(); ++row) {
    for (const Number value : values) {
      SCOPED_TRACE("row " + std::to_string(row) + ": " + std::to_string(value));
      expect_an_answer(table[row].names, [&] { table[row].call(value); });
    }
  }
}

TEST(TerribleValues, OfTheory) {
  namespace t = theory;
  const std::vector<double> two = {64, 512};
  const auto lengths = [](double n) { return std::vector<double>{n, 512}; };
  const std::vector<OfNumbers<double>> table = {
      {"n", [](double x) { (void)t::jl_dimension(x); }},
      {"factor", [](double x) { (void)t::jl_dimension(64, x); }},
      {"dim|dimensions|dimension", [](double x) { (void)t::jl_capacity(x); }},
      {"factor", [](double x) { (void)t::jl_capacity(64, x); }},
      {"n", [](double x) { (void)t::matched_dimension(x, 64); }},
      {"dim|dimensions|dimension", [](double x) { (void)t::matched_dimension(64, x); }},
      {"base", [](double x) { (void)t::matched_dimension(64, 64, x); }},
      {"dim|dimensions|dimension", [](double x) { (void)t::matched_factor(x); }},
      {"base", [](double x) { (void)t::matched_factor(64, x); }},
      {"n", [](double x) { (void)t::sphere_entropy(x, 64, 0.1); }},
      {"lambda", [](double x) { (void)t::sphere_entropy(64, 64, x); }},
      {"lambda", [](double x) { (void)t::laplace_coefficient(x); }},
      {"entropy", [](double x) { (void)t::lambda_of_entropy(x, 64, 64); }},
      {"n", [](double x) { (void)t::lambda_of_entropy(0, x, 64); }},
      {"lambda", [](double x) { (void)t::kappa_of_lambda(x, 64, 64); }},
      {"n", [](double x) { (void)t::kappa_of_lambda(0.1, x, 64); }},
      {"base", [](double x) { (void)t::kappa_of_base(x, 64); }},
      {"n|base|lengths", [](double x) { (void)t::entropy_base(x, 512, 64); }},
      {"n|other_n|base|lengths", [](double x) { (void)t::entropy_base(64, x, 64); }},
      {"entropy", [&](double x) { (void)t::constant_entropy_rule(x, two, 64); }},
      {"lengths|n|entropy", [&](double x) { (void)t::constant_entropy_rule(1, lengths(x), 64); }},
      {"n", [](double x) { (void)t::normal_gradient_mass(x, 1); }},
      {"alpha", [](double x) { (void)t::normal_gradient_mass(64, x); }},
      {"n", [](double x) { (void)t::cosine_gradient_mass(x, 64, 1); }},
      {"alpha", [](double x) { (void)t::cosine_gradient_mass(64, 64, x); }},
      {"n", [](double x) { (void)t::normal_optimum(x); }},
      {"n", [](double x) { (void)t::cosine_optimum(x, 64); }},
      {"alpha", [](double x) { (void)t::normal_optimum_length(x); }},
      {"alpha", [](double x) { (void)t::cosine_optimum_length(x, 64); }},
      {"n", [&](double x) { (void)t::fit_sqrt_log(lengths(x), two); }},
      {"alpha", [&](double x) { (void)t::fit_sqrt_log(two, lengths(x)); }},
      {"n", [&](double x) { (void)t::fit_log(lengths(x), two); }},
      {"alpha", [&](double x) { (void)t::fit_log(two, lengths(x)); }},
      {"lengths|n", [&](double x) { (void)t::normal_optimum_rule(lengths(x)); }},
      {"lengths|n", [&](double x) { (void)t::cosine_optimum_rule(lengths(x), 64); }},
      {"n", [](double x) { (void)t::normal_row(x, 1); }},
      {"alpha", [](double x) { (void)t::normal_row(64, x); }},
      {"n", [](double x) { (void)t::sphere_row(x, 64, 0.1); }},
      {"lambda", [](double x) { (void)t::sphere_row(64, 64, x); }},
      {"n", [](double x) { (void)t::sampled_gradient(x, std::array{1.0}, 10); }},
      {"alpha|alphas", [](double x) { (void)t::sampled_gradient(64, std::array{x}, 10); }},
      {"q|k|rows",
       [](double x) {
         (void)t::check_score_variance(std::vector<double>(9, x), std::vector<double>(9, 1), 3);
       }},
  };
  expect_answers(table, kTerribleNumbers);
}

TEST(TerribleValues, OfIntegersOfTheoryAndRules) {
  namespace t = theory;
  const std::vector<double> two = {64, 512};
  const ScaleRule rule = ScaleRule::parse("ssmax(s=[1,2])");
  const auto lambda = [&](RowLength length, std::int64_t dim, std::int64_t head) {
    (void)rule.lambda(length, dim, head);
  };
  const std::vector<OfNumbers<std::int64_t>> table = {
      {"dim", [](std::int64_t x) { (void)t::sphere_entropy(64, x, 0.1); }},
      {"dim", [](std::int64_t x) { (void)t::lambda_of_entropy(1, 64, x); }},
      {"dim", [](std::int64_t x) { (void)t::kappa_of_lambda(0.1, 64, x); }},
      {"dim", [](std::int64_t x) { (void)t::kappa_of_base(512, x); }},
      {"dim|n|base", [](std::int64_t x) { (void)t::entropy_base(64, 512, x); }},
      {"dim|entropy", [&](std::int64_t x) { (void)t::constant_entropy_rule(1, two, x); }},
      {"dim", [](std::int64_t x) { (void)t::cosine_gradient_mass(64, x, 1); }},
      {"dim", [](std::int64_t x) { (void)t::cosine_optimum(64, x); }},
      {"dim|alpha", [](std::int64_t x) { (void)t::cosine_optimum_length(1, x); }},
      {"dim", [](std::int64_t x) { (void)t::cosine_coefficient(x); }},
      {"dim", [&](std::int64_t x) { (void)t::cosine_optimum_rule(two, x); }},
      {"dim", [](std::int64_t x) { (void)t::rule_gradient_mass(ScaleRule(), 64, x); }},
      {"n", [](std::int64_t x) { (void)t::rule_gradient_mass(ScaleRule(), x, 64); }},
      {"dim|lambda", [](std::int64_t x) { (void)t::sphere_row(64, x, 0.1); }},
      {"rows",
       [](std::int64_t x) { (void)t::sampled_gradient(64, std::array{1.0}, static_cast<int>(x)); }},
      {"dim|rows|q|k",
       [](std::int64_t x) {
         (void)t::check_score_variance(std::vector<double>(9, 1), std::vector<double>(9, 1), x);
       }},
      {"n|visible|keys|length", [&](std::int64_t x) { lambda({.visible = x}, 64, 0); }},
      {"position|length", [&](std::int64_t x) { lambda({.visible = 1, .position = x}, 64, 0); }},
      {"total|length", [&](std::int64_t x) { lambda({.visible = 1, .total = x}, 64, 0); }},
      {"dim", [&](std::int64_t x) { lambda({.visible = 1}, x, 0); }},
      {"head", [&](std::int64_t x) { lambda({.visible = 1}, 64, x); }},
      {"heads|first|count", [&](std::int64_t x) { (void)rule.of_heads(x, 1); }},
      {"heads|first|count", [&](std::int64_t x) { (void)rule.of_heads(0, x); }},
  };
  expect_answers(table, kTerribleIntegers);
}

TEST(TerribleValues, OfRules) {
  for (const RuleInfo& rule : rule_catalogue()) {
    for (std::size_t at = 0; at < rule.parameters.size(); ++at) {
      for (const double value : kTerribleNumbers) {
        SCOPED_TRACE(std::string(rule.name) + " " + std::string(rule.parameters[at].name) + " " +
                     std::to_string(value));
        std::vector<PerHead> arguments(rule.parameters.size());
        arguments[at] = {value};
        expect_an_answer(std::string(rule.parameters[at].name) + "|factor|n|lambda|unit",
                         [&] { (void)ScaleRule::make(rule.name, arguments); });
      }
    }
  }
}

TEST(TerribleValues, OfTexts) {
  for (const std::string& text : kTerribleTexts) {
    SCOPED_TRACE(text.substr(0, 40));
    expect_an_answer("rule|rules|train_len|s", [&] { (void)ScaleRule::parse(text); });
    expect_an_answer("rule|rules|train_len|s|JSON|product",
                     [&] { (void)scale_rule_from_json(text); });
    expect_an_answer("config|JSON|head_dim|hidden_size|num_attention_heads|model_type",
                     [&] { (void)scale_of_config(text); });
    expect_an_answer("target|targets|name", [&] { use_target(text); });
  }
}

TEST(TerribleStates, AreRefusedByName) {
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    for (std::size_t axis = 0; axis < 4; ++axis) {
      std::array<std::int64_t, 4> shape{1, 1, 1, 1};
      shape[axis] = value;
      // In between, only memory is the limit.
      if (value < 0 || value > std::int64_t{1} << 48) {
        EXPECT_THROW(AttentionState{shape}, Error);
      } else if (value < 10) {
        expect_an_answer("shape|a|b",
                         [&] { (void)merge(AttentionState(shape), AttentionState({1, 1, 1, 1})); });
      }
    }
    const AttentionState state({2, 4, 5, 8});
    const std::array<float, 4> sinks{};
    auto view = contiguous_view<const float, 1>(sinks.data(), {4});
    view.extents[0] = value;
    expect_an_answer("sinks", [&] { (void)with_sinks(state, view); });
    std::vector<std::byte> bytes = to_bytes(state);
    for (std::size_t at = 0; at < 48; at += 8) {
      std::vector<std::byte> damaged = bytes;
      std::memcpy(damaged.data() + at, &value, sizeof value);
      expect_an_answer("bytes|state|version|extent|row|elements",
                       [&] { (void)state_from_bytes(damaged); });
    }
  }
}

}  // namespace
}  // namespace isentrope
