// The scale table: what it reads, and independence of threads.

#include "src/call/scale_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "tools/check/data.h"

namespace isentrope {
namespace {

const std::vector<const char*> kRules = {"standard", "scaled(gain=[1,2,3,4])",
                                         "entropy_invariant(base=8)", "log_length",
                                         "attn_temperature_tuning(floor_scale=16,attn_scale=0.3)"};

TEST(ScaleTable, ReadsABooleanMaskOnlyForRulesThatCountKeys) {
  // An unreadable address.
  const View<const std::uint8_t, 4> nowhere{
      reinterpret_cast<const std::uint8_t*>(8), {2, 4, 30, 50}, {6000, 1500, 50, 1}};
  for (const char* rule : kRules) {
    const check::Data data(check::parse_problem("shape=2x4x30x50x8 mask=causal:bottom_right rule=" +
                                                std::string(rule)));
    AttentionOptions options = data.options();
    const ScaleTable plain(data.input(), options, run_serially);
    options.attn_mask = nowhere;
    if (options.rule.reads(LengthSource::visible)) continue;
    const ScaleTable table(data.input(), options, run_serially);
    for (std::int64_t head = 0; head < 4; ++head) {
      for (std::int64_t query = 0; query < 30; ++query) {
        ASSERT_EQ(table.of(1, head).before_cap[query], plain.of(1, head).before_cap[query]) << rule;
      }
    }
  }
}

TEST(ScaleTable, HasOneRowOfScalesWhereNothingTellsBatchesOrHeadsApart) {
  const auto table_of = [](const std::string& line) {
    const check::Data data(check::parse_problem(line));
    return ScaleTable(data.input(), data.options(), run_serially);
  };
  const ScaleTable constant = table_of("shape=2x4x30x50x8 admitted=1 mask=right_padding,prefix=9");
  EXPECT_EQ(constant.of(0, 0).before_cap, constant.of(1, 3).before_cap);
  const ScaleTable heads =
      table_of("shape=2x4x30x50x8 mask=right_padding rule=scaled(gain=[1,2,3,4])");
  EXPECT_EQ(heads.of(0, 3).before_cap, heads.of(1, 3).before_cap);
  EXPECT_NE(heads.of(0, 3).before_cap[29], heads.of(0, 2).before_cap[29]);
  const ScaleTable batches =
      table_of("shape=2x4x30x50x8 mask=causal:top_left,prefix=20 rule=ssmax");
  EXPECT_EQ(batches.of(0, 0).before_cap, batches.of(0, 3).before_cap);
  EXPECT_NE(batches.of(0, 0).before_cap[0], batches.of(1, 0).before_cap[0]);
  const ScaleTable pairs = table_of("shape=2x4x30x50x8 admitted=1 rule=ssmax");
  EXPECT_NE(pairs.of(1, 2).before_cap, pairs.of(1, 3).before_cap);
  const check::Data data(check::parse_problem("shape=2x4x30x50x8 admitted=1 rule=ssmax"));
  AttentionOptions options = data.options();
  options.attn_mask.strides[0] = 0;  // one mask for all batches
  const ScaleTable shared(data.input(), options, run_serially);
  EXPECT_EQ(shared.of(0, 2).before_cap, shared.of(1, 2).before_cap);
  EXPECT_NE(shared.of(0, 2).before_cap, shared.of(0, 3).before_cap);
}

TEST(ScaleTable, IsTheSameOnAnyThreads) {
  for (const char* rule : kRules) {
    for (const char* more : {"", " admitted=1", " lambda=1"}) {
      const check::Data data(check::parse_problem(
          "shape=2x4x1500x40x8 mask=window=7:3 rule=" + std::string(rule) + more));
      std::int64_t jobs = 0;
      const auto backwards = [&jobs](std::int64_t tasks, const auto& body) {
        jobs = std::max(jobs, tasks);
        for (std::int64_t task = tasks; task-- > 0;) body(task);
      };
      const ScaleTable want(data.input(), data.options(), run_serially);
      const ScaleTable got(data.input(), data.options(), backwards);
      for (std::int64_t at = 0; at < 2 * 4 * 1500; ++at) {
        const std::int64_t batch = at / 6000, head = at / 1500 % 4, query = at % 1500;
        ASSERT_EQ(got.of(batch, head).before_cap[query], want.of(batch, head).before_cap[query]);
      }
      const bool counts = *more != 0 && data.options().rule.reads(LengthSource::visible);
      EXPECT_TRUE(jobs > 1 || !counts) << rule;
    }
  }
}

}  // namespace
}  // namespace isentrope
