// A causal training step: forward, a loss with an entropy penalty, backward,
// and a step downhill.

#include <cstdio>
#include <random>
#include <vector>

#include "isentrope/attention.h"

using namespace isentrope;

namespace {

constexpr std::int64_t kHeads = 2, kLength = 48, kDim = 16;
constexpr float kEntropyWeight = 0.05f, kRate = 1;

// Everything here has the shape [1, heads, length, dim].
struct Array {
  std::vector<float> numbers = std::vector<float>(kHeads * kLength * kDim);
  [[nodiscard]] View<float, 4> view() {
    return contiguous_view<float, 4>(numbers.data(),
                                     {1, kHeads, kLength, kDim});
  }
};

struct Rows {
  std::vector<float> numbers = std::vector<float>(kHeads * kLength);
  [[nodiscard]] View<float, 3> view() {
    return contiguous_view<float, 3>(numbers.data(), {1, kHeads, kLength});
  }
};

Array random_array(std::mt19937& random) {
  std::normal_distribution<float> normal;
  Array array;
  for (float& x : array.numbers) x = normal(random);
  return array;
}

void step_down(Array& array, const Array& gradient) {
  for (std::size_t i = 0; i < array.numbers.size(); ++i)
    array.numbers[i] -= kRate * gradient.numbers[i];
}

}  // namespace

int main() {
  std::mt19937 random(7);
  Array q = random_array(random), k = random_array(random),
        v = random_array(random), target = random_array(random);
  Array output, d_output, dq, dk, dv;
  Rows lse, entropy, d_entropy;
  const AttentionOptions options{.rule = ScaleRule::entropy_invariant(kLength),
                                 .mask = {.causal = Causal::top_left}};

  std::puts("step    squared error    mean entropy");
  for (int step = 0; step <= 40; ++step) {
    const AttentionInput input{.q = q.view(), .k = k.view(), .v = v.view()};
    attention_forward(
        input, options,
        {.output = output.view(),
         .statistics = {.lse = lse.view(), .entropy = entropy.view()}});

    // The loss is the mean of |output - target|^2 / 2 + weight * entropy over
    // the rows.
    double error = 0, nats = 0;
    for (std::size_t i = 0; i < output.numbers.size(); ++i) {
      const float difference = output.numbers[i] - target.numbers[i];
      error +=
          static_cast<double>(difference) * static_cast<double>(difference);
      d_output.numbers[i] = difference / kLength;
    }
    for (std::size_t row = 0; row < entropy.numbers.size(); ++row) {
      nats += static_cast<double>(entropy.numbers[row]);
      d_entropy.numbers[row] = kEntropyWeight / kLength;
    }
    if (step % 10 == 0) {
      std::printf("%4d    %13.3f    %12.3f\n", step, error / (kHeads * kLength),
                  nats / (kHeads * kLength));
    }

    attention_backward(
        input, options,
        {.output = output.view(),
         .statistics = {.lse = lse.view(), .entropy = entropy.view()},
         .d_output = d_output.view(),
         .d_statistics = {.entropy = d_entropy.view()}},
        {.dq = dq.view(), .dk = dk.view(), .dv = dv.view()});
    step_down(q, dq);
    step_down(k, dk);
    step_down(v, dv);
  }
}
