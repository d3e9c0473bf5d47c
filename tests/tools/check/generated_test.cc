// Two thousand generated problems, each on the best instruction set and, in turn, on one other.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "isentrope/target.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

constexpr std::int64_t kShards = 8,
                       kProblems = 250;  // one CTest test for each, so that they run in parallel

class GeneratedProblems : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void TearDown() override { use_target(supported_targets().front()); }
};
INSTANTIATE_TEST_SUITE_P(Set1, GeneratedProblems, ::testing::Range<std::int64_t>(0, kShards));

TEST_P(GeneratedProblems, AreWithinBudget) {
  const std::vector<std::string> targets = supported_targets();
  const std::int64_t others = static_cast<std::int64_t>(targets.size()) - 1;
  std::int64_t verdicts = 0, mistrusted = 0;
  double worst = 0;
  const std::int64_t first = GetParam() * kProblems;
  for (std::int64_t index = first; index < first + kProblems; ++index) {
    const Problem problem = generated_problem(1, index);
    const Judge judge(problem);
    std::set<std::string> chosen{targets.front()};
    if (others > 0) chosen.insert(targets[static_cast<std::size_t>(1 + index % others)]);
    for (const std::string& target : chosen) {
      use_target(target);
      const Verdict verdict = judge.judge();
      EXPECT_NE(verdict.outcome, Outcome::failed)
          << target << " " << text_of(problem) << ": " << verdict.worst().worst << " "
          << verdict.worst().where;
      ++verdicts;
      mistrusted += verdict.outcome != Outcome::passed;
      worst = std::max(worst, verdict.worst().worst);
    }
  }
  // Uninformative problems are part of the set, but must be few.
  EXPECT_LT(mistrusted, verdicts / 8);
  std::printf("largest error over budget: %.3f\n", worst);
}

TEST(Judge, AProblemMayAskForOneStatistic) {
  for (const char* line : {"shape=1x2x9x9x8 bwd=1 stats=entropy", "shape=1x2x9x9x8 stats=lse"})
    EXPECT_EQ(Judge(parse_problem(line)).judge().outcome, Outcome::passed) << line;
}

// Weights that no float holds, denormal tangents of half outputs, a row whose logits are all -inf.
// Then a logit that is 0 only without rounding, beside one that always is. Short distances in a
// block of 193 keys are rounded as long ones are.
TEST(Judge, GradientsAreWithinBudgetAtTheEdges) {
  for (const char* line :
       {"shape=4x8x1x5x1 bwd=1 scale=30000 seed=3699",
        "dt=bf16 shape=1x3x32x23x24 mask=causal:bottom_right rule=log_length bwd=1 second=1 "
        "scale=100 seed=3479",
        "dt=f16 shape=3x16:2x1x71x15:72 mask=causal:top_left,window=56:6 sink=1 bwd=1 second=1 "
        "scale=10 seed=3993",
        "dt=bf16 shape=1x6:3x3x3x12 mask=dilation=3,chunk=3 rule=query_pre_attn_scalar(scalar=2) "
        "sink=1 special=1 bwd=1 second=1 scale=1e-06 seed=11375",
        "dt=f16 shape=1x16:1x9x2x2:1 special=1 bwd=1 scale=10 seed=25455",
        "shape=1x24:3x7x193x4 mask=causal:top_left,window=9:182,chunk=6,documents=4 sink=1 bwd=1 "
        "second=1 seed=21388"})
    EXPECT_LE(Judge(parse_problem(line)).judge().worst().worst, 1) << line;
}

TEST(Generator, LambdaTimesQueriesIsAFloat) {
  for (std::int64_t i = 0; i < 2000; ++i) {
    const Problem p = generated_problem(5, i);
    EXPECT_LT(std::abs(p.rule.lambda({p.keys, p.keys, p.keys}, p.dim)), 1e20) << text_of(p);
  }
}

TEST(Generator, TheSameSeedNamesTheSameProblemsAndTheirLinesParse) {
  for (std::int64_t i = 0; i < 2000; ++i) {
    const Problem problem = generated_problem(1, i);
    EXPECT_EQ(problem, generated_problem(1, i));
    EXPECT_EQ(problem, parse_problem(text_of(problem)));
  }
  EXPECT_NE(generated_problem(1, 5), generated_problem(2, 5));
}

TEST(Generator, EveryOptionOccurs) {
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < kShards * kProblems; ++i) {
    const Problem p = generated_problem(1, i);
    const auto note = [&](const std::string& what, bool occurs) {
      if (occurs) seen.insert(what);
    };
    note(name_of(p.type), true);
    note("grouped", p.heads > p.kv_heads && p.kv_heads > 1);
    note("multi-query", p.heads > 1 && p.kv_heads == 1);
    note("no batch", p.batch == 0);
    note("no queries", p.queries == 0);
    note("no keys", p.keys == 0);
    note("one key", p.keys == 1);
    note("value dimension", p.dim != p.value_dim);
    note("top left", p.causal == Causal::top_left);
    note("bottom right", p.causal == Causal::bottom_right);
    note("window", p.window_left >= 0 && p.window_right >= 0);
    note("offset", p.query_offset > 0 && p.key_offset > 0);
    note("padding", p.left_padding && p.right_padding);
    note("documents", p.documents > 1);
    note("per head", p.rule.heads() > 1);
    note("lambda", p.lambda_table);
    note("cap", p.soft_cap > 0);
    note("bias", p.bias);
    note("keys of 16 bits", p.key_type.has_value());
    note("bias of 16 bits", p.bias_type != DType::f32);
    note("additive mask", p.additive_mask);
    note("slopes", p.slopes);
    note("bias hides", p.bias_hides);
    note("admitted", p.admitted);
    note("sink", p.sink);
    note("dropout", p.dropout > 0);
    note("special", p.special);
    note("pages", p.page_size > 0);
    note("split pages",
         p.page_size > 0 && p.keys >= 4096 && p.queries * p.heads / p.kv_heads <= 96);
    note("split", p.page_size == 0 && p.keys >= 4096 && p.queries * p.heads / p.kv_heads <= 96);
    note("runs of keys", p.keys > 512 && p.backward);
    for (const MaskWord& word : kMaskWords) note(word.name, p.*word.number > 0);
    note("small scale", p.magnitude == 1e-6);
    note("large scale", p.magnitude == 1e6);
    note("f16 logits overflow", p.type == DType::f16 && p.magnitude == 1e4 && p.dim > 10);
  }
  EXPECT_EQ(seen.size(), 36 + kMaskWords.size());
}

}  // namespace
}  // namespace isentrope::check
