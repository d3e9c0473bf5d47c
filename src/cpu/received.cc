// Weights that keys receive, of one task: a key block of one key head against all queries that see
// it.
//
//   pack the block's keys
//   for each query head of the group, for each tile of its queries
//     for each tile of the block's keys
//       logits  Z                   as in the backward pass, one lane for each key
//       weights P = 2^(Z - lse)     0 for keys that a row does not see
//       sums    += w P
//
// A row of weight 0 sees no key here, so tiles of such rows are skipped.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/received.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/f32_arithmetic-inl.h"
#include "src/cpu/product/pairs_arithmetic-inl.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/exp-inl.h"
#include "src/cpu/steps/key_scores-inl.h"
#include "src/cpu/steps/logits-inl.h"
#include "src/cpu/steps/tile_ranges.h"
#include "src/row/sink.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// Rows of a query tile: whole tiles of AMX, which writes scores by 16 rows.
constexpr std::size_t kTileRows = 48;
using Ranges = TileRanges<kTileRows>;

// Returns w 2^(logit - lse). No logit exceeds its row's lse, except by rounding: by hundreds if
// logits are 1e9.
HWY_INLINE hn::Vec<Floats> weighted(hn::Vec<Floats> logits, float lse, float weight) {
  const Floats d;
  auto t = hn::Sub(logits, hn::Set(d, lse));
  t = hn::IfThenZeroElse(hn::Gt(t, hn::Zero(d)), t);
  return hn::Mul(hn::Set(d, weight), weight_of(t));
}

class ReceivedTask {
 public:
  explicit ReceivedTask(const ReceivedCall& call)
      : call_(call),
        dim_(static_cast<std::size_t>(call.input.q.extents[3])),
        block_keys_(round_up(static_cast<std::size_t>(call.plan.block_rows), panel_width())),
        group_(call.input.q.extents[1] / call.plan.kv_heads),
        pairs_(DType::bf16),
        uses_pairs_(pairs_.serves(call.input.q) && pairs_.serves(call.input.k)),
        keys_(call.input.k, call.input.k_scale),
        queries_(call.input.q),
        f32_scores_({}, dim_),
        pair_scores_(pairs_, dim_),
        scratch_(keys_.arrays(block_keys_), queries_.arrays(kTileRows),
                 f32_scores_.arrays(block_keys_, kTileRows),
                 pair_scores_.arrays(uses_pairs_ ? block_keys_ : 0, uses_pairs_ ? kTileRows : 0),
                 Scratch::Array(sums_, block_keys_)) {}

  void run(std::int64_t index) noexcept {
    item_ = item_of(call_.plan, index);
    keys_.clear();
    keys_.add_keys(call_.input.pages, item_.batch, item_.kv_head, {item_.begin, item_.end});
    keys_.resolve();
    f32_packed_ = pairs_packed_ = false;
    pairs_fit_ = uses_pairs_ && pairs_.fits(keys_);
    for (std::int64_t member = 0; member < group_; ++member) {
      head_ = item_.kv_head * group_ + member;
      // In double, because thousands of tiles are added.
      std::fill_n(sums_.data(), keys_.count(), 0.0);
      for (std::int64_t query = 0; query < call_.input.q.extents[2]; query += kTileRows)
        run_query_tile(query);
      for (std::size_t j = 0; j < keys_.count(); ++j) {
        call_.result(item_.batch, head_, item_.begin + static_cast<std::int64_t>(j)) =
            static_cast<float>(sums_[j]);
      }
    }
  }

 private:
  // Data of each row of the query tile: its keys, lambda and lse in log2, and w times the weight
  // that a sink leaves.
  struct Rows {
    std::size_t count = 0;
    KeyRange ranges[kTileRows];
    float lambda[kTileRows], lse[kTileRows], weight[kTileRows];
  };

  void list_rows(std::int64_t first) {
    const auto [batches, heads, queries, dim] = call_.input.q.extents;
    const auto& [lse, weights] = call_.rows;
    const auto& sinks = call_.options.sinks;
    const HeadScale scale = call_.scale.of(item_.batch, head_);
    rows_.count = HWY_MIN(kTileRows, static_cast<std::size_t>(queries - first));
    for (std::size_t r = 0; r < rows_.count; ++r) {
      const std::int64_t query = first + static_cast<std::int64_t>(r);
      const float weight = weights ? weights(item_.batch, head_, query) : 1;
      const auto of_row = static_cast<double>(lse(item_.batch, head_, query));
      const double kept = sinks ? non_sink_weight(of_row, sinks(head_)) : 1;
      rows_.ranges[r] =
          weight == 0
              ? KeyRange{}
              : row_view(call_.options.mask, item_.batch, query, queries, call_.plan.keys).keys;
      rows_.lambda[r] = scale_log2(scale.before_cap[query]);
      rows_.lse[r] = static_cast<float>(kLog2E * of_row);
      rows_.weight[r] = weight * static_cast<float>(kept);
    }
  }

  void run_query_tile(std::int64_t first) {
    first_query_ = first;
    list_rows(first);
    KeyScores* scores = nullptr;  // packed once some row sees a key
    for (std::size_t key = 0; key < keys_.count(); key += kGradientKeys) {
      const std::size_t keys = HWY_MIN(kGradientKeys, keys_.count() - key);
      const Ranges ranges(rows_.count, item_.begin + static_cast<std::int64_t>(key),
                          static_cast<std::int64_t>(keys),
                          [&](std::size_t r) { return rows_.ranges[r]; });
      if (ranges.empty()) continue;
      if (scores == nullptr) scores = &pack();
      run_tile(*scores, key, ranges);
    }
  }

  // Packs the tile's queries, and the block's keys when they are first needed. Returns the
  // arithmetic that supports both.
  KeyScores& pack() {
    const auto last = first_query_ + static_cast<std::int64_t>(rows_.count);
    queries_.clear();
    queries_.add(item_.batch, head_, first_query_, last);
    queries_.resolve();
    const bool pairs = pairs_fit_ && pairs_.fits(queries_);
    KeyScores& scores = pairs ? static_cast<KeyScores&>(pair_scores_) : f32_scores_;
    bool& packed = pairs ? pairs_packed_ : f32_packed_;
    if (!packed) scores.pack_keys(keys_);
    packed = true;
    scores.pack_queries(queries_, rows_.lambda);
    return scores;
  }

  // Processes a tile of keys, whose first is `key` of the block. Few rows are processed at a time,
  // so that their logits are in L1. Panels may begin and end with keys that no row sees.
  void run_tile(const KeyScores& scores, std::size_t key, const Ranges& ranges) {
    HWY_ALIGN float logits[kTileRows * kGradientKeys];
    HWY_ALIGN float sums[kGradientKeys] = {};
    const std::size_t first = round_down(ranges.first, panel_width());
    const std::size_t columns = round_up(ranges.last, panel_width()) - first;
    const bool masks_one_by_one = call_.options.bias || call_.options.attn_mask;
    for (std::size_t row = 0; row < rows_.count; row += scores.rows_at_once()) {
      const std::size_t rows = HWY_MIN(scores.rows_at_once(), rows_.count - row);
      scores.run(row, rows, key + first, columns, logits, kGradientKeys);
      for (std::size_t r = 0; r < rows; ++r) {
        if (!masks_one_by_one && !(call_.options.soft_cap > 0)) break;
        finish_logits(terms(ranges, row + r, key + first), ranges.begin[row + r] - first,
                      ranges.end[row + r] - first, columns, logits + r * kGradientKeys);
      }
      if (!ranges.ragged && !masks_one_by_one) {
        add_rows(row, rows, columns, logits, sums);
        continue;
      }
      for (std::size_t r = 0; r < rows; ++r)
        add_seen(ranges, row + r, key, first, columns, logits + r * kGradientKeys, sums);
    }
    for (std::size_t j = ranges.first; j < ranges.last; ++j)
      sums_[key + j] += static_cast<double>(sums[j - first]);
  }

  // Returns the terms of a row from key `key` of the block on.
  [[nodiscard]] LogitTerms terms(const Ranges& ranges, std::size_t row, std::size_t key) const {
    LogitTerms terms = logit_terms(call_.options, call_.scale.of(item_.batch, head_), item_.batch,
                                   head_, first_query_ + static_cast<std::int64_t>(row),
                                   item_.begin + static_cast<std::int64_t>(key));
    terms.stride = ranges.stride;
    return terms;
  }

  // Adds the weights of rows that see all keys of the tile.
  void add_rows(std::size_t row, std::size_t rows, std::size_t columns, const float* logits,
                float* HWY_RESTRICT sums) const {
    const Floats d;
    for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
      auto sum = hn::Load(d, sums + j);
      for (std::size_t r = 0; r < rows; ++r) {
        const float* of_row = logits + r * kGradientKeys + j;
        sum =
            hn::Add(sum, weighted(hn::Load(d, of_row), rows_.lse[row + r], rows_.weight[row + r]));
      }
      hn::Store(sum, d, sums + j);
    }
  }

  // Adds the weights of one row, by selection: hidden keys may be NaN, and so may the row.
  void add_seen(const Ranges& ranges, std::size_t row, std::size_t key, std::size_t first,
                std::size_t columns, float* HWY_RESTRICT logits, float* HWY_RESTRICT sums) const {
    const Floats d;
    for (std::size_t j = 0; j < columns; j += hn::Lanes(d))
      hn::Store(weighted(hn::Load(d, logits + j), rows_.lse[row], rows_.weight[row]), d,
                logits + j);
    const LogitTerms row_terms = terms(ranges, row, key + first);
    for (std::size_t j = ranges.begin[row]; j < ranges.end[row]; j += ranges.stride) {
      if (!row_terms.is_masked(static_cast<std::int64_t>(j - first)))
        sums[j - first] += logits[j - first];
    }
  }

  const ReceivedCall& call_;
  const std::size_t dim_, block_keys_;  // keys of the longest block, in whole panels
  const std::int64_t group_;
  const Pairs pairs_;
  const bool uses_pairs_;  // supported, if values permit
  const Pairs::Session session_{pairs_, uses_pairs_};
  Operand keys_, queries_;
  KeyScoresOf<F32> f32_scores_;
  KeyScoresOf<Pairs> pair_scores_;
  Buffer<double> sums_;  // one for each key of the block
  Scratch scratch_;
  WorkItem item_{};
  bool pairs_fit_ = false, pairs_packed_ = false, f32_packed_ = false;  // of the block
  std::int64_t head_ = 0, first_query_ = 0;
  Rows rows_;
};

// Processes a few keys at a time, so that their sums are in L1. Logits are -inf, of weight 0, for
// keys that a row does not see.
void received_of_logits(const ReceivedCall& call, const View<float, 4>& logits, std::int64_t batch,
                        std::int64_t head) {
  const Floats d;
  const auto keys = static_cast<std::size_t>(call.input.keys());
  for (std::size_t first = 0; first < keys; first += kGradientKeys) {
    HWY_ALIGN float sums[kGradientKeys] = {};
    const std::size_t count = HWY_MIN(kGradientKeys, keys - first);
    for (std::int64_t query = 0; query < call.input.q.extents[2]; ++query) {
      const auto lse = static_cast<double>(call.rows.lse(batch, head, query));
      const double kept = call.options.sinks ? non_sink_weight(lse, call.options.sinks(head)) : 1;
      const float* of_row = &logits(batch, head, query, static_cast<std::int64_t>(first));
      for (std::size_t j = 0; j < count; j += hn::Lanes(d)) {
        const auto weights = weighted(hn::LoadU(d, of_row + j), static_cast<float>(kLog2E * lse),
                                      static_cast<float>(kept));
        hn::Store(hn::Add(hn::Load(d, sums + j), weights), d, sums + j);
      }
    }
    for (std::size_t j = 0; j < count; ++j)
      call.result(batch, head, static_cast<std::int64_t>(first + j)) = sums[j];
  }
}

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isentrope {

HWY_EXPORT(received_of_logits);

void run_received_of_logits(const ReceivedCall& call, const View<float, 4>& logits,
                            std::int64_t batch, std::int64_t head) {
  HWY_DYNAMIC_DISPATCH(received_of_logits)(call, logits, batch, head);
}

}  // namespace isentrope
#endif  // HWY_ONCE

#define ISENTROPE_TASKS(define) define(run_received, ReceivedTask, ReceivedCall)
#include "src/cpu/run_tasks-inl.h"
