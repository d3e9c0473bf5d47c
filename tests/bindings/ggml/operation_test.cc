// Flash attention of the backend against the definition, and which operations it takes.

#include <gtest/gtest.h>

#include "tests/bindings/ggml/definition.h"

namespace isentrope {
namespace {

float causal(std::int64_t, std::int64_t query, std::int64_t key) {
  return key <= query + 30 ? 0 : -INFINITY;
}

// Bound of ggml's own test, test-backend-ops, for the squared error over the squared result. bf16
// queries and weights round at 2^-9: their square is 4e-6.
constexpr double kMost = 5e-6;

void expect_defined(const Problem& problem, const Gain& gain = no_gain,
                    const char* rule = "standard") {
  const Variable set("ISENTROPE_RULE", rule);  // without, the CPU computes the small problems
  const Library library;
  const Node node(problem);
  ASSERT_TRUE(ggml_backend_dev_supports_op(library.device(), node.get()));
  ASSERT_EQ(node.compute(library), GGML_STATUS_SUCCESS);
  double error = 0, size = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    for (std::int64_t query = 0; query < problem.queries; ++query) {
      for (std::int64_t head = 0; head < problem.heads; ++head) {
        const DefinedRow row = row_by_definition(problem, node.get(), query, head, batch, gain);
        for (std::int64_t i = 0; i < problem.value_dim; ++i) {
          const double want = row.output[static_cast<std::size_t>(i)];
          const double got = element(node.get(), i, head, query, batch);
          error += (got - want) * (got - want), size += want * want;
        }
      }
    }
  }
  EXPECT_LE(error, kMost * size);
}

class EveryType : public testing::TestWithParam<ggml_type> {};
INSTANTIATE_TEST_SUITE_P(Ggml, EveryType,
                         testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16),
                         [](const auto& type) { return ggml_type_name(type.param); });

TEST_P(EveryType, DecodesWithoutAMask) { expect_defined({.keys_type = GetParam()}); }

TEST_P(EveryType, ComputesAPromptUnderACausalMask) {
  expect_defined({.queries = 75, .keys_type = GetParam(), .mask = causal});
}

TEST_P(EveryType, ReadsHeadsOutsideOfRows) {
  expect_defined(
      {.queries = 33, .batch = 3, .keys_type = GetParam(), .heads_in_rows = false, .mask = causal});
}

TEST_P(EveryType, AddsFiniteNumbersOfAMask) {
  expect_defined({.queries = 40,
                  .keys_type = GetParam(),
                  .mask = [](std::int64_t, std::int64_t query, std::int64_t key) {
                    return (query + key) % 7 == 0 ? -INFINITY : 0.01f * float((query * key) % 101);
                  }});
}

TEST_P(EveryType, TakesSinksSoftCapAndAlibi) {
  expect_defined({.queries = 5,
                  .keys_type = GetParam(),
                  .mask = [](std::int64_t, std::int64_t query,
                             std::int64_t key) { return -std::abs(float(key - query - 30)); },
                  .sinks = true,
                  .max_bias = 8,
                  .soft_cap = 10});
}

TEST_P(EveryType, TakesOddAndUnequalHeadSizes) {
  expect_defined(
      {.dim = 72, .value_dim = 40, .queries = 3, .keys_type = GetParam(), .mask = causal});
  expect_defined(
      {.dim = 576, .value_dim = 512, .kv_heads = 1, .keys_type = GetParam(), .scale = 1.0f / 24});
}

TEST_P(EveryType, ReadsMasksOfEveryHeadAndRowsWithoutKeys) {
  expect_defined({.queries = 4,
                  .batch = 2,
                  .keys_type = GetParam(),
                  .mask =
                      [](std::int64_t head, std::int64_t query, std::int64_t key) {
                        return query == 2 || key % (head + 1) != 0 ? -INFINITY : 0.0f;
                      },
                  .mask_per_head = true});
}

TEST(GgmlRule, MultipliesTheModelsScaleByItsGrowth) {
  expect_defined(
      {.queries = 75, .mask = causal, .scale = 0.3f},
      [](std::int64_t n) { return std::max(1.0, std::log(double(n)) / std::log(40.0)); },
      "logn(train_len=40)");
}

TEST(GgmlRule, IsRefusedIfItCountsWhatACacheDoesNotTell) {
  for (const char* text :
       {"log_length(length=total)", "llama_4_scaling", "no_rule", "inverse_dim"}) {
    const Variable rule("ISENTROPE_RULE", text);
    EXPECT_EQ(Library().registry(), nullptr) << text;
  }
}

TEST(GgmlRule, WithNumbersForOtherHeadsFailsTheGraph) {
  const Variable rule("ISENTROPE_RULE", "scaled(gain=[1, 2, 3])");
  const Library library;
  EXPECT_EQ(Node({}).compute(library), GGML_STATUS_FAILED);
}

TEST(GgmlDevice, LeavesOtherOperationsToTheCpu) {
  const Library library;
  const auto takes = [&](const Problem& problem) {
    return ggml_backend_dev_supports_op(library.device(), Node(problem).get());
  };
  EXPECT_TRUE(takes({.keys = 2048}));
  EXPECT_FALSE(takes({.keys = 2047})) << "too small";
  EXPECT_FALSE(takes({.keys = 4096, .keys_type = GGML_TYPE_Q8_0}));
  EXPECT_FALSE(takes({.keys = 4096, .values_type = GGML_TYPE_F32}));
  EXPECT_FALSE(takes({.keys = 4096, .soft_cap = INFINITY}));
  EXPECT_FALSE(takes({.keys = 4096, .scale = NAN}));
  const Node node({.mask = causal});
  ggml_tensor product = *node.get();
  product.op = GGML_OP_MUL_MAT;
  EXPECT_FALSE(ggml_backend_dev_supports_op(library.device(), &product));
}

}  // namespace
}  // namespace isentrope
