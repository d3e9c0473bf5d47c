#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "isentrope/attention_state.h"
#include "isentrope/error.h"
#include "src/call/validate.h"
#include "src/row/sink.h"
#include "src/shape.h"

// Contracting w_a x + w_b y into fused products would round the two sides differently and cost
// merge() its exact commutativity: src/CMakeLists.txt turns that off for this file.

namespace isentrope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// How much of the merged row comes from a side.
struct Weights {
  double a, b;
};

double entropy_of(const Weights& w) {
  const auto term = [](double x) { return x > 0 ? -x * std::log(x) : x * 0; };
  return term(w.a) + term(w.b);
}

// 0 for a side of weight 0: it may be NaN where all its logits are -inf.
double term(double weight, double value, bool weightless) {
  return weightless ? 0 : weight * value;
}

RowStats merge(const RowStats& a, const RowStats& b, const Weights& w) {
  const bool no_a = a.lse == -kInfinity, no_b = b.lse == -kInfinity;
  const std::int64_t support = a.support + b.support;
  // Always the same NaN: a sum of two passes on the first one's sign and payload, and would not
  // commute.
  RowStats merged;
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.of_row) merged.*statistic.of_row = kNaN;
  });
  merged.support = support;
  if (std::isnan(a.lse) || std::isnan(b.lse)) return merged;
  merged.max_logit = std::fmax(a.max_logit, b.max_logit) + 0.0;  // of 0 and -0 always 0
  merged.lse = -kInfinity;
  if (no_a && no_b) return merged;
  merged.lse = std::fmax(a.lse, b.lse) + std::log1p(std::exp(-std::abs(a.lse - b.lse)));
  merged.collision = term(w.a * w.a, a.collision, no_a) + term(w.b * w.b, b.collision, no_b);
  merged.max_probability =
      std::fmax(term(w.a, a.max_probability, no_a), term(w.b, b.max_probability, no_b));
  for_each_statistic([&](const Statistic& statistic) {
    const auto of = statistic.of_row;
    if (statistic.weighted_mean) merged.*of = term(w.a, a.*of, no_a) + term(w.b, b.*of, no_b);
  });
  merged.entropy += entropy_of(w);
  if (w.a * w.b > 0) {
    const double apart = (a.lse - a.entropy) - (b.lse - b.entropy);
    merged.variance += w.a * w.b * (apart * apart);
  }
  return merged;
}

void merge_row(const RowStats& a, const float* from_a, const RowStats& b, const float* from_b,
               std::int64_t columns, RowStats& merged, float* to) {
  if (a.support == 0 || b.support == 0) {
    merged = a.support == 0 ? b : a;
    std::copy_n(a.support == 0 ? from_b : from_a, columns, to);
    return;
  }
  const bool no_a = a.lse == -kInfinity, no_b = b.lse == -kInfinity;
  const Weights w{no_a ? 0 : 1 / (1 + std::exp(b.lse - a.lse)),
                  no_b ? 0 : 1 / (1 + std::exp(a.lse - b.lse))};
  merged = merge(a, b, w);
  for (std::int64_t c = 0; c < columns; ++c) {
    const double sum = term(w.a, from_a[c], no_a) + term(w.b, from_b[c], no_b);
    to[c] = static_cast<float>((no_a && no_b) || std::isnan(sum) ? kNaN : sum);
  }
}

}  // namespace

AttentionState::AttentionState(const std::array<std::int64_t, 4>& extents) : shape(extents) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;
  std::int64_t elements = 1;
  for (const std::int64_t extent : extents) {
    // Counted as if no extent were 0, so that the product of any three is small as well.
    const std::int64_t factor = std::max<std::int64_t>(extent, 1);
    if (extent < 0 || factor > kMost / elements) {
      throw Error(
          "[AttentionState] the shape must have no negative extent and at most 2^48 elements; "
          "got " +
          text_of(extents));
    }
    elements *= factor;
  }
  statistics.resize(static_cast<std::size_t>(extents[0] * extents[1] * extents[2]));
  output.resize(statistics.size() * static_cast<std::size_t>(extents[3]));
}

AttentionState attention_state(const AttentionInput& input, const AttentionOptions& options) {
  if (options.sinks) {
    throw Error(
        "[attention_state] sinks must be absent, since they count once and not once for each part: "
        "add them to the merged state by with_sinks(); got sinks");
  }
  validate_input("attention_state", input, options);
  validate_tables("attention_state", input, options);
  const auto [batch, heads, queries, dim] = input.q.extents;
  AttentionState state({batch, heads, queries, input.v.extents[3]});
  const auto rows = state.statistics.size();
  StatisticFields<std::vector<float>, std::vector<std::int64_t>> numbers;
  RowStatistics views;
  for_each_statistic(
      [&, batch = batch, heads = heads, queries = queries](const Statistic&, auto& values,
                                                           auto& view) {
        values.resize(rows);
        view = contiguous_view(values.data(), std::array{batch, heads, queries});
      },
      numbers, views);
  attention_forward(
      input, options,
      {.output = contiguous_view(state.output.data(), state.shape), .statistics = views});
  for_each_statistic(
      [&](const Statistic& statistic, const auto& values) {
        if (!statistic.of_row) return;
        for (std::size_t row = 0; row < rows; ++row)
          state.statistics[row].*statistic.of_row = static_cast<double>(values[row]);
      },
      numbers);
  for (std::size_t row = 0; row < rows; ++row) state.statistics[row].support = numbers.support[row];
  return state;
}

AttentionState merge(const AttentionState& a, const AttentionState& b) {
  if (a.shape != b.shape) {
    throw Error("[merge] both states must have the same shape; got " + text_of(a.shape) + " and " +
                text_of(b.shape));
  }
  for (std::size_t row = 0; row < a.statistics.size(); ++row) {
    const std::int64_t x = a.statistics[row].support, y = b.statistics[row].support;
    if (x > std::numeric_limits<std::int64_t>::max() - y) {
      throw Error("[merge] the supports must add up to less than 2^63; got " + std::to_string(x) +
                  " and " + std::to_string(y));
    }
  }
  AttentionState merged(a.shape);
  for (std::size_t row = 0; row < a.statistics.size(); ++row) {
    const std::size_t at = row * static_cast<std::size_t>(a.value_dim());
    merge_row(a.statistics[row], a.output.data() + at, b.statistics[row], b.output.data() + at,
              a.value_dim(), merged.statistics[row], merged.output.data() + at);
  }
  return merged;
}

AttentionState with_sinks(AttentionState state, const View<const float, 1>& sinks) {
  if (!sinks || sinks.extents[0] != state.shape[1]) {
    throw Error("[with_sinks] sinks must have one logit for each of the " +
                std::to_string(state.shape[1]) + " heads; got " +
                (sinks ? std::to_string(sinks.extents[0]) : "none"));
  }
  const auto columns = static_cast<std::size_t>(state.value_dim());
  for (std::size_t row = 0; row < state.statistics.size(); ++row) {
    if (state.statistics[row].support == 0) continue;
    const std::int64_t head = static_cast<std::int64_t>(row) / state.shape[2] % state.shape[1];
    const double weight = non_sink_weight(state.statistics[row].lse, sinks(head));
    for (std::size_t c = 0; c < columns; ++c) {
      float& value = state.output[row * columns + c];
      value = static_cast<float>(weight * value);
    }
  }
  return state;
}

}  // namespace isentrope
