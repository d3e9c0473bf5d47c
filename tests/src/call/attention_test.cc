// The kernels against the float64 reference, on every instruction set this machine has.

#include "isentrope/attention.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/on_target.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

Problem shaped(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
               std::int64_t dim, std::int64_t value_dim) {
  Problem p;
  p.batch = batch;
  p.heads = p.kv_heads = heads;
  p.queries = queries;
  p.keys = keys;
  p.dim = dim;
  p.value_dim = value_dim;
  return p;
}

constexpr const char* kOptionLines[] = {
    "shape=2x8:2x60x100x32 mask=causal:bottom_right rule=entropy_invariant(base=64)",
    "shape=2x6:2x60x333x32 mask=window=100:40,offset=2:3 dropout=0.1 dropout_seed=8589934595",
    "dt=bf16 shape=1x4x70x600x64 cap=5 bias=1 sink=1 dropout=0.5 dropout_seed=1",
    "shape=2x2x3x5000x16 dropout=0.3", "shape=1x6:3x20x333x17:9 mask=window=40:3",
    "shape=1x2x150x150x16 mask=causal:top_left,window=30:0 rule=logn(train_len=16)",
    "shape=2x4:2x70x130x16 mask=causal:bottom_right,chunk=48,left_padding "
    "rule=logn(train_len=16)",
    "dt=bf16 shape=1x4:2x300x300x32 mask=chunk=128",
    "shape=2x4:2x70x130x16 mask=causal:bottom_right,window=40:0,dilation=3,left_padding "
    "rule=logn(train_len=16)",
    "dt=bf16 shape=1x4:2x300x300x32 mask=window=128:128,dilation=7",
    "shape=1x2x3x1100x24 mask=dilation=300,causal:bottom_right bias=1 admitted=1 cap=5 sink=1",
    "shape=1x2x200x200x16 mask=documents=4,dilation=2,chunk=48 rule=entropy_invariant(base=32)",
    "shape=1x2x40x90x16 mask=window=60:9,dilation=3,offset=4:7 dropout=0.3",
    "shape=2x8:2x1x9000x32 mask=dilation=5,right_padding cap=9",
    "shape=2x4:2x130x200x16 mask=causal:bottom_right,prefix=150,left_padding "
    "rule=logn(train_len=16)",
    "dt=bf16 shape=2x4:2x70x70x32 mask=window=-1:3,prefix=30,right_padding",
    "shape=3x2x70x130x16 mask=left_padding rule=entropy_invariant(base=32)",
    "shape=3x2x70x130x16 mask=right_padding,causal:bottom_right",
    "shape=3x1x70x130x16 mask=left_padding,right_padding",
    "shape=1x2x200x300x16 mask=documents=5 rule=entropy_invariant(base=32)",
    "shape=1x2x200x200x16 mask=documents=4,causal:top_left",
    "shape=1x2x64x90x16 mask=causal:top_left,offset=40:10 rule=entropy_invariant(base=64)",
    "shape=2x2x50x77x16 admitted=1 rule=entropy_invariant(base=16)",
    "shape=2x2x50x77x16 admitted=1 mask=causal:bottom_right", "shape=2x2x50x77x16 bias=1",
    "shape=2x4:2x50x300x16 bias=1 admitted=1 mask=window=60:60 cap=5 sink=1",
    "shape=1x2x50x77x16 cap=2 scale=4",
    "shape=1x2x50x77x16 cap=30 rule=xai_temperature(len=8) scale=8 mask=causal:bottom_right",
    "shape=1x1x131x29x8 cap=0.5 scale=100",
    "shape=1x1x53x53x24 mask=causal:top_left rule=xai_temperature(len=8)",
    "shape=1x3x50x77x16 bias=1 rule=log_scaling(n_floor=16,alpha=0.5)",
    "shape=2x3x40x50x16 sink=1 mask=causal:bottom_right",
    "shape=2x3x40x50x16 lambda=1 mask=causal:bottom_right",
    "shape=1x3x40x50x16 rule=ssmax(s=[0.2,0.4,0.6],b=[0,0.1,-0.3])",
    "dt=bf16 shape=2x4:2x65x140x64 mask=causal:bottom_right",
    "dt=f16 shape=2x4:2x65x140x64 rule=entropy_invariant(base=64)",
    "dt=bf16 shape=1x2x33x70x20 bias=1 admitted=1 cap=9 sink=1 mask=window=20:9",
    "dt=f16 shape=1x1x30x40x128 scale=30", "shape=1x8:2x1x5000x32 rule=entropy_invariant(base=512)",
    "shape=2x4:1x3x4500x16 mask=causal:bottom_right,right_padding sink=1",
    "dt=bf16 shape=1x4:2x2x4200x24 mask=window=3000:0,causal:bottom_right",
    "kv=bf16 shape=2x4:2x65x140x64 mask=causal:bottom_right", "kv=f16 shape=1x6:2x70x300x32 sink=1",
    "kv=bf16 shape=1x8:2x1x5000x64 mask=right_padding", "kv=f16 shape=2x4:2x2x700x24:40 cap=9",
    "kv=bf16 shape=1x4:2x97x300x64 bias=1 bias_dt=f16 slopes=1 scale=20",
    "shape=2x3x50x77x16 bias=1 bias_dt=bf16 slopes=1 rule=log_scaling(n_floor=16,alpha=0.5)",
    "kv=f16 shape=2x4:2x97x600x32 bias=1 bias_dt=f16 additive_mask=1 bias_hides=1 "
    "rule=entropy_invariant(base=64)",
    "shape=1x4:1x40x700x17 bias=1 additive_mask=1 admitted=1 mask=causal:bottom_right,dilation=3",
    "kv=bf16 shape=2x8:2x1x4500x32 bias=1 bias_dt=f16 additive_mask=1 slopes=1 lambda=1",
    // Scores overflow float although logits are small.
    "dt=bf16 shape=1x2x97x97x64 rule=constant(scale=3e-38) scale=3e+37"};

constexpr const char* kCacheLines[] = {
    "shape=2x4:2x1x300x32 pages=16 mask=right_padding",
    "shape=2x4:2x1x900x32 pages=16 mask=right_padding,dilation=3",
    "shape=1x2x5x300x16 pages=7 mask=window=90:0,dilation=4",
    "shape=2x8:2x2x5000x16 pages=64 mask=causal:bottom_right",
    "dt=f16 shape=1x2x7x100x8 pages=7 mask=window=30:30",
    "shape=1x4:2x9x300x32 pages=16 sequences=4 mask=causal:bottom_right "
    "rule=entropy_invariant(base=64)",
    "shape=1x4:2x130x200x16 pages=7 sequences=5 mask=causal:bottom_right,window=60:0 sink=1",
    "dt=bf16 shape=1x8:2x70x5000x16 pages=64 sequences=3 mask=causal:bottom_right",
    "shape=1x4:2x1x4500x16 pages=64 sequences=1 mask=causal:bottom_right",
    "dt=f16 shape=1x2x90x77x8:24 pages=9 sequences=6 bias=1 admitted=1 cap=5 "
    "rule=logn(train_len=16)",
    "shape=1x2x40x90x16 pages=5 sequences=3 lambda=1 mask=left_padding,right_padding,prefix=20",
    "shape=1x4:2x20x333x32 cache=16 pages=8 sequences=4 mask=chunk=48,dilation=3",
    "dt=bf16 shape=2x8:2x1x700x64 cache=32 mask=right_padding sink=1",
    "dt=bf16 shape=2x4:2x1x4500x32 cache=32 pages=16 mask=right_padding",
    "dt=f16 shape=1x2x3x90x24:40 cache=8 cap=20 bias=1 dropout=0.2",
    "kv=f16 shape=2x8:2x1x700x32 pages=16 mask=right_padding bias=1 additive_mask=1",
    "kv=bf16 shape=2x4:2x40x300x32 pages=16 mask=causal:bottom_right",
    "shape=1x4:2x40x70x48 cache=16 mask=causal:bottom_right"};

// Lengths around the edges of lanes, panels, row tiles and blocks, primes, and every option.
std::vector<Problem> problems() {
  std::vector<Problem> list;
  const auto add = [&list](Problem problem, Causal causal, const ScaleRule& rule,
                           double magnitude = 1) {
    problem.causal = causal;
    problem.rule = rule;
    problem.magnitude = magnitude;
    problem.seed = static_cast<std::uint32_t>(list.size() + 1);
    list.push_back(problem);
  };
  for (const std::int64_t n : {1,  2,  3,  7,  8,  11,  12,  13,  15,  16,  17,  31,  32,
                               33, 47, 48, 49, 64, 127, 128, 129, 255, 256, 257, 333, 521}) {
    for (const Causal causal : {Causal::none, Causal::bottom_right}) {
      add(shaped(1, 2, n, n, 16, 16), causal, ScaleRule::entropy_invariant());
    }
  }
  for (const std::int64_t d : {1, 2, 3, 5, 16, 31, 32, 33, 64, 80, 128, 129}) {
    add(shaped(1, 1, 37, 65, d, d), Causal::top_left, ScaleRule::standard());
    add(shaped(2, 1, 37, 65, d, 130 - d), Causal::none, ScaleRule::log_length());
  }
  for (const auto& [queries, keys] :
       {std::pair{1, 1000}, {5, 300}, {300, 5}, {1, 1}, {211, 600}, {600, 211}}) {
    for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right}) {
      add(shaped(1, 1, queries, keys, 24, 40), causal, ScaleRule::entropy_invariant(64));
    }
  }
  for (const double magnitude : {1e-6, 1e-3, 10.0, 1e3, 1e6}) {
    add(shaped(1, 2, 65, 129, 64, 64), Causal::none, ScaleRule::standard(), magnitude);
    add(shaped(1, 2, 65, 65, 64, 64), Causal::top_left, ScaleRule::entropy_invariant(), magnitude);
  }
  add(shaped(1, 1, 9, 70, 8, 8), Causal::none, ScaleRule::constant(0));
  add(shaped(1, 1, 1100, 1100, 8, 8), Causal::bottom_right, ScaleRule::standard());
  for (const char* line : kOptionLines) list.push_back(parse_problem(line));
  for (const char* line : kCacheLines) list.push_back(parse_problem(line));
  return list;
}

// A third of the shapes, and every option: caches have no derivatives.
std::vector<Problem> problems_of_derivatives() {
  std::vector<Problem> list;
  for (const Problem& problem : problems())
    if (list.empty() || problem.seed % 3 == 0) list.push_back(problem);
  for (const char* line : kOptionLines) list.push_back(parse_problem(line));
  for (Problem& problem : list) problem.backward = problem.second_order = true;
  return list;
}

class OnTarget : public TargetTest {};
ISENTROPE_ON_EVERY_TARGET(OnTarget);

// Expects the errors of a pass to be within budget. Every target is held to the same references,
// which cost more than the passes.
void expect_within_budget(const std::vector<Problem>& problems, Ratio Verdict::* pass) {
  static std::map<std::string, Judge> judges;
  double worst = 0;
  for (const Problem& problem : problems) {
    const std::string line = text_of(problem);
    const Verdict verdict = judges.try_emplace(line, problem).first->second.judge();
    const Ratio& ratio = verdict.*pass;
    EXPECT_LE(ratio.worst, 1) << line << ": " << ratio.where;
    worst = std::max(worst, ratio.worst);
  }
  std::printf("largest error over budget: %.3f\n", worst);
}

TEST_P(OnTarget, ForwardIsWithinBudget) { expect_within_budget(problems(), &Verdict::forward); }

TEST_P(OnTarget, BackwardIsWithinBudget) {
  std::vector<Problem> list = problems();
  std::erase_if(list, [](const Problem& p) { return p.page_size > 0 || p.cache_group > 0; });
  for (Problem& problem : list) problem.backward = true;
  expect_within_budget(list, &Verdict::backward);
}

TEST_P(OnTarget, TangentIsWithinBudget) {
  expect_within_budget(problems_of_derivatives(), &Verdict::tangent);
}

TEST_P(OnTarget, SecondOrderIsWithinBudget) {
  expect_within_budget(problems_of_derivatives(), &Verdict::second_order);
}

// The backward pass with `step_of_output` floats between output columns, and with an upstream
// gradient of the output in bf16.
std::int64_t step_of_output = 1;
void backward_from_bf16(const AttentionInput& in, const AttentionOptions& options,
                        const AttentionGradientInput& given, const AttentionGradients& result) {
  const auto& extents = given.output.extents;
  const std::int64_t count = extents[0] * given.output.strides[0];
  const auto *output = static_cast<const float*>(given.output.data),
             *d_output = static_cast<const float*>(given.d_output.data);
  std::vector<float> apart(static_cast<std::size_t>(count * step_of_output));
  std::vector<BFloat16> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    apart[static_cast<std::size_t>(i * step_of_output)] = output[i];
    numbers.push_back(from_float<BFloat16>(d_output[i]));
  }
  AttentionGradientInput other = given;
  other.output.data = apart.data();
  for (std::int64_t& stride : other.output.strides) stride *= step_of_output;
  other.d_output = contiguous_view<BFloat16, 4>(numbers.data(), extents);
  attention_backward(in, options, other, result);
}

TEST_P(OnTarget, AnOutputMayLieAnywhereAndItsGradientHaveATypeOfItsOwn) {
  const Data data(parse_problem("shape=1x2x30x70x24"));
  reference::GradientInput gradient = random_gradient(data.problem);
  for (double& x : gradient.d_output)
    x = static_cast<double>(rounded_to(DType::bf16, static_cast<float>(x)));
  for (const std::int64_t step : {1, 2}) {
    step_of_output = step;
    const Ratio ratio = backward_error_over_budget(
        data, gradient,
        run_backward(data, run_forward(data), gradient, {}, {.backward = backward_from_bf16}));
    EXPECT_LE(ratio.worst, 1) << ratio.where << ", step " << step;
  }
}

}  // namespace
}  // namespace isentrope::check
