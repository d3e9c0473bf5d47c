#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "isentrope/attention_state.h"
#include "isentrope/error.h"
#include "src/call/validate.h"
#include "src/row/sink.h"
#include "src/shape.h"

// merge() commutes exactly unless w_a x + w_b y is contracted: src/CMakeLists.txt prevents that.

namespace isentrope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Share of each side in the merged row.
struct Weights {
  double a, b;
};

double entropy_of(const Weights& w) {
  const auto term = [](double x) { return x > 0 ? -x * std::log(x) : x * 0; };
  return term(w.a) + term(w.b);
}

// Returns 0 for a side of weight 0, whose value may be NaN because all its logits are -inf.
double term(double weight, double value, bool weightless) {
  return weightless ? 0 : weight * value;
}

// Rows without weight on both sides have no shares; computing them would give NaN.
double merged_number(Merge kind, const RowStats& a, const RowStats& b, double RowStats::* member,
                     const Weights& w) {
  const bool no_a = a.lse == -kInfinity, no_b = b.lse == -kInfinity;
  if (kind == Merge::largest) return std::fmax(a.*member, b.*member) + 0.0;  // 0 for 0 and -0
  if (no_a && no_b) return kNaN;
  const bool twice = kind == Merge::squares;
  const double x = term(twice ? w.a * w.a : w.a, a.*member, no_a),
               y = term(twice ? w.b * w.b : w.b, b.*member, no_b);
  return kind == Merge::largest_part ? std::fmax(x, y) : x + y;
}

RowStats merge(const RowStats& a, const RowStats& b, const Weights& w) {
  // One fixed NaN: a sum of two keeps the first's sign and payload and would not commute.
  const bool is_number = !std::isnan(a.lse) && !std::isnan(b.lse);
  RowStats merged;
  for_each_statistic([&](const Statistic& statistic) {
    if (const auto member = statistic.of_row)
      merged.*member = is_number ? merged_number(statistic.merge, a, b, member, w) : kNaN;
  });
  merged.support = a.support + b.support;
  if (!is_number) return merged;
  const double larger = std::fmax(a.lse, b.lse);
  merged.lse =
      larger == -kInfinity ? larger : larger + std::log1p(std::exp(-std::abs(a.lse - b.lse)));
  merged.entropy += entropy_of(w);
  if (w.a * w.b > 0) {
    const double mean_gap = (a.lse - a.entropy) - (b.lse - b.entropy);
    merged.variance += w.a * w.b * (mean_gap * mean_gap);
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
    // Counts extents of 0 as 1, so that the product of any three is bounded as well.
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
