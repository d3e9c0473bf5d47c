// Calls from JAX, without JAX: layouts, axes that are broadcast, parts with sinks of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bindings/jax/call.h"
#include "bindings/jax/passes.h"
#include "isentrope/error.h"
#include "tests/support/message_of.h"

namespace isentrope::jax {
namespace {

constexpr std::int64_t kBatch = 4, kQueries = 3, kKeys = 5, kHeads = 2, kDim = 4;

template <typename T>
struct Numbers {
  std::vector<std::int64_t> extents;
  std::vector<T> data;

  explicit Numbers(std::vector<std::int64_t> shape, double first = 0) : extents(std::move(shape)) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    for (std::int64_t i = 0; i < count; ++i)
      data.push_back(static_cast<T>(std::sin(first + static_cast<double>(i))));
  }
  Array array() { return {std::is_same_v<T, float> ? "float32" : "float64", data.data(), extents}; }
};

// Returns the text of a forward pass that also computes entropy.
std::string text(std::int64_t parts) {
  return R"J({"names": ["q", "k", "v", "sinks", "key_end", "output", "entropy", "support"], "batch": 4, )J"
         R"J("parts": )J" +
         std::to_string(parts) +
         R"J(, "options": {"rule": "entropy_invariant(base=512)", "causal": 2, "soft_cap": 2.0}})J";
}

template <typename T>
void a_forward_pass_is_right(std::int64_t parts) {
  Numbers<T> q({kBatch, kQueries, kHeads, kDim}), k({1, kKeys, 1, kDim}, 5), v(k.extents, 9);
  Numbers<T> sinks({parts, kHeads}, 3), output(q.extents), entropy({kBatch, kQueries, kHeads});
  std::vector<std::int32_t> ends = {5, 4, 3, 0}, support(kBatch * kQueries * kHeads, -1);
  const std::vector<Array> arrays = {q.array(),
                                     k.array(),
                                     v.array(),
                                     sinks.array(),
                                     {"int32", ends.data(), {kBatch}},
                                     output.array(),
                                     entropy.array(),
                                     {"int32", support.data(), {kBatch, kQueries, kHeads}}};
  Call(text(parts), arrays).for_each_part([](Call& part) { forward(part, run_serially); });

  const double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-14;
  for (std::int64_t batch = 0; batch < kBatch; ++batch)
    for (std::int64_t query = 0; query < kQueries; ++query)
      for (std::int64_t head = 0; head < kHeads; ++head) {
        const std::int64_t row = (batch * kQueries + query) * kHeads + head;
        const std::int64_t seen = std::min<std::int64_t>(query + kKeys - kQueries + 1, ends[batch]);
        const double lambda =
            seen > 0 ? std::log(static_cast<double>(seen)) / std::log(512.0) / 2 : 0;
        double total = 0, mean = 0, expected[kDim] = {};
        for (std::int64_t key = 0; key < seen; ++key) {
          double score = 0;
          for (std::int64_t c = 0; c < kDim; ++c)
            score += double{q.data[row * kDim + c]} * double{k.data[key * kDim + c]};
          const double logit = 2 * std::tanh(lambda * score / 2), weight = std::exp(logit);
          total += weight;
          mean += weight * logit;
          for (std::int64_t c = 0; c < kDim; ++c) expected[c] += weight * v.data[key * kDim + c];
        }
        const double sink = std::exp(sinks.data[batch * parts / kBatch * kHeads + head]);
        EXPECT_EQ(support[row], seen);
        EXPECT_NEAR(entropy.data[row], seen > 0 ? std::log(total) - mean / total : 0, tolerance);
        for (std::int64_t c = 0; c < kDim; ++c) {
          EXPECT_NEAR(output.data[row * kDim + c], seen > 0 ? expected[c] / (total + sink) : 0,
                      tolerance);
        }
      }
}

TEST(JaxCall, AForwardPassIsRight) {
  for (const std::int64_t parts : {1, 2, 4}) {
    a_forward_pass_is_right<float>(parts);
    a_forward_pass_is_right<double>(parts);
  }
}

// The gradient of a broadcast key is written for each batch, because JAX sums it.
TEST(JaxCall, GradientsOfBroadcastKeysAreThoseOfEachBatch) {
  const std::string names =
      R"J({"names": ["q", "k", "v", "output", "lse", "d_output", "d_q", "d_k", "d_v"], "batch": 2, )J"
      R"J("parts": 1, "options": {}})J";
  const auto gradients = [&](std::int64_t keys_in_batch) {
    Numbers<float> q({2, kQueries, kHeads, kDim}), k({keys_in_batch, kKeys, 1, kDim}, 5);
    for (std::size_t i = 0; i < k.data.size(); ++i)  // the same keys in each batch
      k.data[i] = static_cast<float>(std::sin(i % (kKeys * kDim)));
    Numbers<float> v = k, output(q.extents), lse({2, kQueries, kHeads}), d_output(q.extents, 2);
    Numbers<float> dq(q.extents), dk({2, kKeys, 1, kDim}), dv(dk.extents);
    const std::string forward_names =
        R"J({"names": ["q", "k", "v", "output", "lse"], "batch": 2, "parts": 1, "options": {}})J";
    Call whole(forward_names, {q.array(), k.array(), v.array(), output.array(), lse.array()});
    whole.for_each_part([](Call& part) { forward(part, run_serially); });
    Call back(names, {q.array(), k.array(), v.array(), output.array(), lse.array(),
                      d_output.array(), dq.array(), dk.array(), dv.array()});
    back.for_each_part([](Call& part) { backward(part, run_serially); });
    return std::vector{dq.data, dk.data, dv.data};
  };
  EXPECT_EQ(gradients(1), gradients(2));
}

// Results of the tangent pass and of the second-order pass, with all their arrays.
template <typename T>
std::vector<std::vector<T>> derivatives() {
  const std::vector<std::int64_t> queries = {2, kQueries, kHeads, kDim}, keys = {2, kKeys, 1, kDim},
                                  rows = {2, kQueries, kHeads};
  Numbers<T> q(queries), k(keys, 5), v(keys, 9), output(queries), lse(rows), entropy(rows);
  Numbers<T> t_q(queries, 1), t_v({1, kKeys, 1, kDim}, 2), t_output(queries), t_lse(rows);
  Numbers<T> t_entropy(rows), d_output(queries, 3), d_entropy(rows, 4), d_q(queries), d_k(keys);
  Numbers<T> d_v(keys);
  const auto run = [&](const std::string& names, const std::vector<Array>& arrays,
                       const auto& pass) {
    Call call(R"({"names": [)" + names + R"(], "batch": 2, "parts": 1, "options": {"causal": 1}})",
              arrays);
    call.for_each_part([&](Call& part) { pass(part, run_serially); });
  };
  std::string names = R"("q", "k", "v", "output", "lse", "entropy")";
  std::vector<Array> arrays = {q.array(),      k.array(),   v.array(),
                               output.array(), lse.array(), entropy.array()};
  run(names, arrays, forward);
  names += R"(, "t_q", "t_v", "t_output", "t_lse", "t_entropy")";
  for (auto* each : {&t_q, &t_v, &t_output, &t_lse, &t_entropy}) arrays.push_back(each->array());
  run(names, arrays, tangent);
  names += R"(, "d_output", "d_entropy", "d_q", "d_k", "d_v")";
  for (auto* each : {&d_output, &d_entropy, &d_q, &d_k, &d_v}) arrays.push_back(each->array());
  run(names, arrays, second_order);
  return {t_output.data, t_lse.data, t_entropy.data, d_q.data, d_k.data, d_v.data};
}

TEST(JaxCall, DerivativesOfTheKernelsAreThoseOfTheReference) {
  const auto found = derivatives<float>();
  const auto expected = derivatives<double>();
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t at = 0; at < found[i].size(); ++at)
      EXPECT_NEAR(found[i][at], expected[i][at], 3e-6) << "result " << i;
}

TEST(JaxCall, WrongArraysAreNamed) {
  Numbers<float> q({1, 2, 3, 4}), flat({2, 3});
  const std::string names =
      R"J({"names": ["q", "k", "v", "bias"], "batch": 1, "parts": 1, "options": {}})J";
  const auto message = [&](const std::vector<Array>& arrays) {
    return message_of([&] {
      Call call(names, arrays);
      std::ignore = call.input();
      std::ignore = call.options();
    });
  };
  EXPECT_EQ(message({q.array(), flat.array(), q.array()}),
            "[attention] k must have 4 dimensions; got 2");
  EXPECT_EQ(message({q.array(), q.array(), {"int32", q.data.data(), q.extents}}),
            "[attention] v must be float32, bfloat16, float16 or float64; got int32");
  EXPECT_EQ(message({q.array(), q.array(), q.array(), {"float64", nullptr, q.extents}}),
            "[attention] bias must be float32; got float64");
}

}  // namespace
}  // namespace isentrope::jax
