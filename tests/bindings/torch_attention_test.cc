// The torch operator against torch's own float64 arithmetic.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "isentrope/error.h"
#include "isentrope/libtorch/attention.h"
#include "tests/support/message_of.h"

namespace isentrope {
namespace {

struct Dense {
  at::Tensor output, lse, entropy, collision, variance;
};

// Attention by definition, in the type of the arguments.
Dense dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const ScaleRule& rule, const Mask& mask) {
  const std::int64_t queries = q.size(2), keys = k.size(2);
  at::Tensor lambda = at::empty({queries, 1}, q.options());
  at::Tensor hidden = at::zeros({queries, keys}, at::kBool);
  for (std::int64_t i = 0; i < queries; ++i) {
    const RowView row = row_view(mask, 0, i, queries, keys);
    lambda[i][0] = rule.lambda(row.length, q.size(3));
    const KeyRange range = row.keys;
    if (range.end < keys) hidden[i].slice(0, range.end, keys).fill_(true);
  }
  const at::Tensor z = (q.matmul(k.transpose(-2, -1)) * lambda).masked_fill(hidden, -1e300);
  const at::Tensor log_p = z.log_softmax(-1), p = log_p.exp();
  const at::Tensor mean = (p * z.masked_fill(hidden, 0)).sum(-1, true);
  return {p.matmul(v), z.logsumexp(-1), -(p * log_p.masked_fill(hidden, 0)).sum(-1),
          p.square().sum(-1), (p * (z.masked_fill(hidden, 0) - mean).square()).sum(-1)};
}

struct Case {
  std::int64_t queries, keys, dim, value_dim;
  ScaleRule rule;
  Causal causal;
};

std::vector<Case> cases() {
  return {{64, 64, 64, 64, ScaleRule::standard(), Causal::none},
          {64, 64, 64, 64, ScaleRule::entropy_invariant(), Causal::bottom_right},
          {37, 150, 24, 40, ScaleRule::log_length(), Causal::bottom_right},
          {150, 150, 33, 17, ScaleRule::constant(0.3), Causal::top_left}};
}

void expect_close(const at::Tensor& got, const at::Tensor& want, const char* what) {
  const double error = (got.to(at::kDouble) - want).abs().max().item<double>();
  const double size = want.abs().max().item<double>();
  EXPECT_LE(error, 1e-5 * (1 + size)) << what;
}

at::Tensor twin(const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(); }

TEST(TorchAttention, ResultsAndGradientsEqualTorchInFloat64) {
  torch::manual_seed(1);
  for (const Case& c : cases()) {
    const auto leaf = [](std::int64_t rows, std::int64_t columns) {
      return torch::randn({2, 3, rows, columns}).requires_grad_();
    };
    const at::Tensor q = leaf(c.queries, c.dim), k = leaf(c.keys, c.dim),
                     v = leaf(c.keys, c.value_dim);
    const at::Tensor q64 = twin(q), k64 = twin(k), v64 = twin(v);
    const Mask mask{.causal = c.causal};
    const TorchAttention got = torch_attention(q, k, v, c.rule, {.causal = c.causal});
    const Dense want = dense_attention(q64, k64, v64, c.rule, mask);
    expect_close(got.output, want.output, "output");
    expect_close(got.lse, want.lse, "lse");
    expect_close(got.entropy, want.entropy, "entropy");
    expect_close(got.collision, want.collision, "collision");
    expect_close(got.variance, want.variance, "variance");

    // A scalar that depends on every differentiable result, and on one each.
    const auto compare = [&](const auto& loss) {
      for (const at::Tensor* each : {&q, &k, &v, &q64, &k64, &v64}) each->mutable_grad().reset();
      loss(got).backward({}, true);
      loss(want).backward({}, true);
      expect_close(q.grad(), q64.grad(), "dq");
      expect_close(k.grad(), k64.grad(), "dk");
      expect_close(v.grad(), v64.grad().defined() ? v64.grad() : at::zeros_like(v64), "dv");
    };
    compare([](const auto& r) {
      return r.output.sin().sum() + (r.lse * 0.3).sin().sum() + r.entropy.square().sum() +
             r.collision.sin().sum() + (0.1 * r.variance).sin().sum();
    });
    compare([](const auto& r) { return r.output.sin().sum(); });
    compare([](const auto& r) { return r.lse.sum(); });
    compare([](const auto& r) { return r.entropy.sum(); });
  }
}

TEST(TorchAttention, DoubleBackwardEqualsTorchInFloat64) {
  torch::manual_seed(3);
  // A gradient penalty of a loss that depends on every differentiable argument and on statistics.
  const at::Tensor shapes[] = {torch::randn({2, 3, 9, 8}), torch::randn({2, 3, 11, 8}),
                               torch::randn({2, 3, 11, 5}), torch::rand({2, 3, 9})};
  const auto penalty = [](const std::vector<at::Tensor>& leaves, const at::Tensor& output,
                          const at::Tensor& lse, const at::Tensor& entropy) {
    const at::Tensor loss = output.sin().sum() + lse.square().sum() + entropy.square().sum();
    at::Tensor sum = at::zeros({}, loss.options());
    for (const at::Tensor& gradient : torch::autograd::grad({loss}, leaves, {}, true, true))
      sum = sum + gradient.square().sum();
    return sum;
  };
  std::vector<at::Tensor> leaves, twins;
  for (const at::Tensor& values : shapes) {
    leaves.push_back(values.clone().requires_grad_());
    twins.push_back(values.to(at::kDouble).requires_grad_());
  }
  const TorchAttention got = torch_attention(leaves[0], leaves[1], leaves[2], ScaleRule::standard(),
                                             {.lambda = leaves[3]});
  const at::Tensor z = twins[0].matmul(twins[1].mT()) * twins[3].unsqueeze(-1);
  const at::Tensor log_p = z.log_softmax(-1), p = log_p.exp();
  const at::Tensor ours = penalty(leaves, got.output, got.lse, got.entropy);
  penalty(twins, p.matmul(twins[2]), z.logsumexp(-1), -(p * log_p).sum(-1)).backward();
  EXPECT_THROW(torch::autograd::grad({ours}, leaves, {}, true, true), Error);
  ours.backward();
  for (std::size_t i = 0; i < leaves.size(); ++i)
    expect_close(leaves[i].grad(), twins[i].grad(), "second derivative");
}

// Broadcast bias and a scale for each head, under a window and a rule that scales the bias,
// compared with a mask of -inf and dense algebra.
TEST(TorchAttention, BiasScaleAndWindowHaveGradients) {
  torch::manual_seed(5);
  const at::Tensor q = torch::randn({2, 3, 12, 8}), k = torch::randn({2, 3, 12, 8}),
                   v = torch::randn({2, 3, 12, 4});
  const at::Tensor distance = (at::arange(12).unsqueeze(1) - at::arange(12)).abs();
  const at::Tensor hidden = distance.gt(5);
  const at::Tensor bias = torch::randn({1, 3, 12, 12}).requires_grad_(),
                   scale = torch::rand({1, 3, 12}).requires_grad_();
  const at::Tensor bias64 = twin(bias), scale64 = twin(scale);
  const auto dense = [&](const at::Tensor& lambda, const at::Tensor& on_bias) {
    const at::Tensor z =
        at::matmul(q.to(at::kDouble), k.to(at::kDouble).mT()) * lambda + bias64 * on_bias;
    return at::matmul(z.masked_fill(hidden, -INFINITY).softmax(-1), v.to(at::kDouble));
  };
  const auto compare = [&](const at::Tensor& got, const at::Tensor& want) {
    expect_close(got, want, "output");
    got.sin().sum().backward();
    want.sin().sum().backward();
    expect_close(bias.grad(), bias64.grad(), "d_bias");
    for (const at::Tensor* leaf : {&bias, &bias64}) leaf->mutable_grad().reset();
  };
  compare(torch_attention(q, k, v, ScaleRule::standard(),
                          {.window_left = 5, .window_right = 5, .bias = bias, .lambda = scale})
              .output,
          dense(scale64.unsqueeze(-1), torch::ones({}, at::kDouble)));
  expect_close(scale.grad(), scale64.grad(), "d_lambda");

  const ScaleRule rule = ScaleRule::entropy_invariant(3).with_scaled_bias(true);
  const at::Tensor n = hidden.logical_not().sum(-1, true).to(at::kDouble);
  const at::Tensor factor = n.log() / std::log(3.0);
  compare(
      torch_attention(q, k, v, rule, {.window_left = 5, .window_right = 5, .bias = bias}).output,
      dense(factor / std::sqrt(8.0), factor));
}

TEST(TorchAttention, TakesStridedViewsAndReturnsTheirLayout) {
  torch::manual_seed(3);
  // Layout of a fused projection: [batch, rows, 3, heads, dim].
  const at::Tensor projection = torch::randn({2, 20, 3, 4, 16});
  const auto part = [&](int index) { return projection.select(2, index).transpose(1, 2); };
  const TorchAttention strided = torch_attention(part(0), part(1), part(2), ScaleRule::standard());
  const TorchAttention packed = torch_attention(part(0).contiguous(), part(1).contiguous(),
                                                part(2).contiguous(), ScaleRule::standard());
  EXPECT_TRUE(at::equal(strided.output, packed.output));
  EXPECT_TRUE(at::equal(strided.entropy, packed.entropy));
  EXPECT_TRUE(strided.output.transpose(1, 2).is_contiguous());
}

TEST(TorchAttention, BitsDoNotDependOnThreads) {
  torch::manual_seed(4);
  const int threads = at::get_num_threads();
  const at::Tensor q = torch::randn({1, 2, 1500, 16}), k = torch::randn({1, 2, 1500, 16}),
                   v = torch::randn({1, 2, 1500, 16});
  const auto run = [&](int count) {
    at::set_num_threads(count);
    const at::Tensor leaf = q.clone().requires_grad_();
    const TorchAttention result =
        torch_attention(leaf, k, v, ScaleRule::log_length(), {.causal = Causal::top_left});
    (result.output.sum() + result.entropy.sum()).backward();
    return std::pair{result.output.detach(), leaf.grad()};
  };
  const auto one = run(1), two = run(2);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.first, two.first));
  EXPECT_TRUE(at::equal(one.second, two.second));
}

double cpu_seconds(int who) {
  rusage used{};
  getrusage(who, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(TorchAttention, HalfTheWorkIsDoneByTorchsOtherThread) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const at::Tensor x = torch::randn({1, 8, 1024, 64}).requires_grad_();
  const double all = cpu_seconds(RUSAGE_SELF), own = cpu_seconds(RUSAGE_THREAD);
  torch_attention(x, x, x, ScaleRule::standard()).output.sum().backward();
  const double share = 1 - (cpu_seconds(RUSAGE_THREAD) - own) / (cpu_seconds(RUSAGE_SELF) - all);
  at::set_num_threads(threads);
  EXPECT_GT(share, 0.3);
}

TEST(TorchAttention, WrongArgumentsAreNamed) {
  const at::Tensor good = torch::randn({1, 2, 4, 8});
  const auto call = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return message_of([&] { torch_attention(q, k, v, ScaleRule::standard()); });
  };
  EXPECT_EQ(call(good, good.to(at::kDouble), good),
            "[torch_attention] k must be float32; got Double");
  EXPECT_EQ(call(good[0], good, good), "[torch_attention] q must have 4 dimensions; got 3");
  EXPECT_EQ(call(good, good, torch::randn({1, 2, 5, 8})),
            "[attention] v must have shape [1, 2, 4, 8]; got [1, 2, 5, 8]");
  EXPECT_EQ(
      message_of([&] { torch_attention(good, good, good, ScaleRule::standard(), {.bias = good}); }),
      "[torch_attention] bias must broadcast to [1, 2, 4, 4]; got [1, 2, 4, 8]");
}

}  // namespace
}  // namespace isentrope
