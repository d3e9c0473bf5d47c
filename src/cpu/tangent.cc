// Tangent pass of one task: a query block of one key head against the keys it sees.
//
//   for each block of keys, with their tangents
//     for each row tile                 a panel's width of rows, one vector lane each
//       logits   Z  = K (lambda Q)^T             then soft-cap, bias and masks, as in forward.cc
//       tangents Z' = K (lambda Q)'^T + K' (lambda Q)^T     times the soft-cap's slope, plus bias'
//       weights  P  = 2^(Z - lse), and P Z'      tangent_tile, with the rows' sums; then dropout
//       sums     O' += V'^T P + V^T (P Z')       pv_tile
//   o' = w O' - (lse' - w' / w) o, and the tangents of the statistics
//
// The forward pass's lse makes weights final at once: no rescaling. lse' is known at the end only,
// and enters by the forward pass's output o. w is the weight that a sink leaves to the keys.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/tangent.cc"
#include "hwy/foreach_target.h"
// After foreach_target, which decides what is compiled.
#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/transpose-inl.h"
#include "src/cpu/scratch.h"
#include "src/cpu/steps/dropout-inl.h"
#include "src/cpu/steps/mask_tile-inl.h"
#include "src/cpu/steps/query_block-inl.h"
#include "src/cpu/steps/row_tile-inl.h"
#include "src/cpu/steps/score_term-inl.h"
#include "src/cpu/steps/tangent_results-inl.h"
#include "src/cpu/steps/tangent_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {
namespace {

// Computes numbers += more, of whole vectors.
HWY_INLINE void add_to(float* HWY_RESTRICT numbers, const float* HWY_RESTRICT more,
                       std::size_t count) {
  const Floats d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    hn::Store(hn::Add(hn::Load(d, numbers + i), hn::Load(d, more + i)), d, numbers + i);
}

// The rows of all tensors but the queries. Tensors without data are never listed.
struct TangentOperands {
  explicit TangentOperands(const TangentCall& call)
      : query_tangents(call.query_tangents.tensor()),
        keys(call.input.k),
        key_tangents(call.tangent.tangents.k),
        values(call.input.v),
        value_tangents(call.tangent.tangents.v),
        query_tangents_given(call.query_tangents.tensor()),
        key_tangents_given(call.tangent.tangents.k),
        value_tangents_given(call.tangent.tangents.v) {}
  Operand query_tangents, keys, key_tangents, values, value_tangents;
  const bool query_tangents_given, key_tangents_given, value_tangents_given;
};

// Factors of the rows of a query block.
struct TangentFactors {
  Buffer<float> lambda;  // in nats
  // Factors of the tangents of queries: lambda, or 1 if they are scaled already.
  Buffer<float> of_tangents;
};

// Products of a tile: the scores, the two of their tangents, and the two of the output's.
struct TangentTerms {
  TangentTerms(const TangentCall& call, const BlockSizes& sizes)
      : logits(sizes.pairs, call.input.q, call.input.k),
        of_queries(sizes.pairs, call.query_tangents.tensor(), call.input.k),
        of_keys(sizes.pairs, call.input.q, call.tangent.tangents.k),
        of_weights(sizes.pairs, call.input.v, of_queries || of_keys || call.tangent.tangents.bias),
        of_values(sizes.pairs, call.tangent.tangents.v, true) {}
  [[nodiscard]] bool uses_pairs() const {
    return logits.uses_pairs() || of_queries.uses_pairs() || of_keys.uses_pairs() ||
           of_weights.uses_pairs() || of_values.uses_pairs();
  }
  ScoreTerm logits, of_queries, of_keys;
  ValueTerm of_weights, of_values;
};

// Data kept across blocks of keys.
class TangentTask {
 public:
  explicit TangentTask(const TangentCall& call)
      : call_(call),
        sizes_(call, DType::bf16),  // bf16 only: P Z' may overflow f16
        tangent_tile_(tangent_tile_for(call.result.statistics)),
        rows_(call, static_cast<bool>(call.result.statistics.distance)),
        operands_(call),
        terms_(call, sizes_),
        scratch_(rows_.arrays(sizes_.rows), operands_.query_tangents.arrays(sizes_.rows),
                 operands_.keys.arrays(kBlockKeys), operands_.key_tangents.arrays(kBlockKeys),
                 operands_.values.arrays(kBlockKeys), operands_.value_tangents.arrays(kBlockKeys),
                 Scratch::Array(factors_.lambda, sizes_.rows),
                 Scratch::Array(factors_.of_tangents, sizes_.rows),
                 terms_.logits.arrays(sizes_.rows), terms_.of_queries.arrays(sizes_.rows),
                 terms_.of_keys.arrays(sizes_.rows), terms_.of_weights.arrays(),
                 terms_.of_values.arrays(),
                 Scratch::Array(results_.rows, sizes_.rows / panel_width()),
                 Scratch::Array(results_.sums, sizes_.rows * sizes_.value_columns),
                 Scratch::Array(results_.by_row, kStateRows * sizes_.value_columns)) {}

  void run(std::int64_t index) noexcept {
    item_ = item_of(call_.plan, index);
    rows_.list(item_);
    list_factors();
    if (operands_.query_tangents_given) {
      rows_.list_rows(item_, operands_.query_tangents);
      operands_.query_tangents.resolve();
    }
    terms_.logits.take(rows_.queries(), rows_.lambda());
    terms_.of_queries.take(operands_.query_tangents, factors_.of_tangents.data());
    terms_.of_keys.take(rows_.queries(), factors_.lambda.data());
    std::fill_n(results_.sums.data(), sizes_.rows * sizes_.value_columns, 0.0f);
    for (std::size_t row = 0; row < rows_.rows(); row += panel_width())
      begin_rows(call_, item_, row, tile_rows(row), results_.rows[row / panel_width()]);
    // Keys that no row sees are never read, so causal and windowed calls do only the visible work.
    const KeyRange seen = rows_.seen();
    for (std::int64_t block = seen.begin; block < seen.end; block += kBlockKeys)
      run_block(block, HWY_MIN(static_cast<std::int64_t>(kBlockKeys), seen.end - block));
    for (std::size_t row = 0; row < rows_.rows(); row += panel_width()) write_results(row);
  }

 private:
  struct Results {
    Buffer<TangentRows> rows;  // one for each row tile
    Buffer<float> sums;        // [row tile][value column][row]
    Buffer<float> by_row;      // one row tile: [row][value column]
  };

  [[nodiscard]] std::size_t tile_rows(std::size_t row) const {
    return HWY_MIN(panel_width(), rows_.rows() - row);
  }

  // Lanes past the last row have a factor of 0, as in QueryBlock.
  void list_factors() {
    const std::int64_t group = call_.input.q.extents[1] / call_.plan.kv_heads;
    std::fill_n(factors_.lambda.data(), sizes_.rows, 0.0f);
    for (std::size_t row = 0; row < rows_.rows(); ++row) {
      const HeadScale scale = call_.scale.of(item_.batch, head_of(item_, group, row));
      factors_.lambda[row] = scale.before_cap[query_of(item_, row)];
    }
    if (call_.query_tangents.are_scaled()) {
      std::fill_n(factors_.of_tangents.data(), sizes_.rows, 1.0f);
    } else {
      std::copy_n(factors_.lambda.data(), sizes_.rows, factors_.of_tangents.data());
    }
  }

  void place(Operand& operand, const KeyRange& keys) const {
    operand.clear();
    operand.add(item_.batch, item_.kv_head, keys);
    operand.resolve();
  }

  void run_block(std::int64_t block, std::int64_t block_keys) {
    const KeyRange keys{block, block + block_keys};
    // Dilated rows may skip a whole block, which is then not read.
    if (!rows_.any_sees(keys.begin, keys.end)) return;
    place(operands_.keys, keys);
    place(operands_.values, keys);
    if (operands_.key_tangents_given) place(operands_.key_tangents, keys);
    if (operands_.value_tangents_given) place(operands_.value_tangents, keys);
    terms_.logits.place(operands_.keys);
    terms_.of_queries.place(operands_.keys);
    terms_.of_keys.place(operands_.key_tangents);
    terms_.of_weights.place(operands_.values);
    terms_.of_values.place(operands_.value_tangents);
    for (std::size_t row = 0; row < rows_.rows(); row += panel_width()) {
      const std::size_t rows = tile_rows(row);
      const RowTile::Ranges ranges(rows, block, block_keys,
                                   [&](std::size_t r) { return rows_.range(row + r); });
      if (ranges.empty()) continue;
      const bool masked = call_.options.bias || call_.options.attn_mask;
      run_tile({call_, item_, block, row, rows, ranges, rows_.own_keys_from(row),
                masked ? KeysSeen::some : KeysSeen::all, sizes_.key_step});
    }
  }

  void run_tile(const RowTile& tile) {
    HWY_ALIGN float weights[kBlockKeys * kPanelRows];   // logits, then P
    HWY_ALIGN float tangents[kBlockKeys * kPanelRows];  // Z', then P Z'
    TangentRows& rows = results_.rows[tile.row / panel_width()];
    terms_.logits.run(tile, weights);
    run_tangents(tile, tangents);
    finish_tile(tile, weights, tangents, rows);
    HWY_ALIGN float own_keys[kStateRows] = {};
    for (std::size_t r = 0; tile.own_keys && r < tile.rows; ++r) {
      own_keys[r] = static_cast<float>(
          tile.own_keys[r] -
          static_cast<double>(tile.block + static_cast<std::int64_t>(tile.first)));
    }
    tangent_tile_(tile.rows, tile.keys(), own_keys, rows, weights, tangents);
    if (call_.dropout) drop_weights(tile, weights, tangents);
    // Sums begin at 0 and keep their scale.
    HWY_ALIGN float no_rescale[kStateRows];
    std::fill_n(no_rescale, kStateRows, 1.0f);
    const ValueSums to{
        results_.sums.at(tile.row * sizes_.value_columns, panel_width() * sizes_.value_columns),
        no_rescale, false};
    if (terms_.of_weights) terms_.of_weights.run(tile, tangents, to);
    if (terms_.of_values) terms_.of_values.run(tile, weights, to);
  }

  // Adds the products of the tangents of scaled scores.
  void run_tangents(const RowTile& tile, float* tangents) const {
    const std::size_t numbers = tile.keys() * panel_width();
    if (!terms_.of_queries && !terms_.of_keys) std::fill_n(tangents, numbers, 0.0f);
    if (terms_.of_queries) terms_.of_queries.run(tile, tangents);
    if (!terms_.of_keys) return;
    if (!terms_.of_queries) return terms_.of_keys.run(tile, tangents);
    HWY_ALIGN float more[kBlockKeys * kPanelRows];
    terms_.of_keys.run(tile, more);
    add_to(tangents, more, numbers);
  }

  // Soft-cap, bias and masks, of logits and tangents. As in forward.cc, rows are transposed.
  void finish_tile(const RowTile& tile, float* logits, float* tangents, TangentRows& rows) const {
    const std::size_t keys = tile.keys(), width = panel_width();
    if (tile.has_terms()) {
      HWY_ALIGN float by_row[kPanelRows * kBlockKeys], tangents_by_row[kPanelRows * kBlockKeys];
      transpose(logits, width, keys, tile.rows, by_row, kBlockKeys);
      transpose(tangents, width, keys, tile.rows, tangents_by_row, kBlockKeys);
      for (std::size_t r = 0; r < tile.rows; ++r)
        rows.support[r] +=
            finish_row(tile, r, by_row + r * kBlockKeys, tangents_by_row + r * kBlockKeys);
      transpose(by_row, kBlockKeys, tile.rows, keys, logits, width);
      transpose(tangents_by_row, kBlockKeys, tile.rows, keys, tangents, width);
    } else {
      for (std::size_t r = 0; r < tile.rows; ++r)
        rows.support[r] += static_cast<std::int64_t>(tile.ranges.count(r));
    }
    mask_ranges(tile, logits, kMaskedLogit);
    mask_ranges(tile, tangents, 0);
  }

  std::int64_t finish_row(const RowTile& tile, std::size_t r, float* logits,
                          float* tangents) const {
    HWY_ALIGN float slopes[kBlockKeys];
    const std::size_t begin = tile.ranges.begin[r] - tile.first,
                      end = tile.ranges.end[r] - tile.first;
    const LogitTerms terms = tile.terms(r, tile.first);
    const std::int64_t support =
        finish_logits(terms, begin, end, tile.keys(), logits, {.slopes = slopes});
    BiasTangent bias;
    if (const auto& tangent = call_.tangent.tangents.bias) {
      const std::int64_t group = call_.input.q.extents[1] / call_.plan.kv_heads;
      bias = {
          &tangent(item_.batch, head_of(item_, group, tile.row + r), query_of(item_, tile.row + r),
                   tile.block + static_cast<std::int64_t>(tile.first)),
          tangent.strides[3]};
    }
    finish_tangents(terms, bias, begin, end, slopes, tangents);
    return support;
  }

  void write_results(std::size_t row) {
    const std::size_t width = panel_width(), columns = sizes_.value_columns;
    // Products leave the sums transposed, as [column][row].
    transpose(results_.sums.at(row * columns, width * columns), width, sizes_.value_dim, width,
              results_.by_row.data(), columns);
    write_tangents(call_, item_, row, tile_rows(row), results_.rows[row / width],
                   results_.by_row.data(), columns);
  }

  const TangentCall& call_;
  const BlockSizes sizes_;
  const TangentTile tangent_tile_;
  QueryBlock rows_;
  TangentOperands operands_;
  TangentFactors factors_;
  TangentTerms terms_;
  const Pairs::Session session_{sizes_.pairs, terms_.uses_pairs()};
  Results results_;
  Scratch scratch_;
  WorkItem item_{};
};

}  // namespace
}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define ISENTROPE_TASKS(define) define(run_tangent, TangentTask, TangentCall)
#include "src/cpu/run_tasks-inl.h"
