// QueryTile and GradientTile: operands of one step of the backward pass and the second-order pass.

#if defined(ISENTROPE_QUERY_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_QUERY_TILE_INL_H_
#undef ISENTROPE_QUERY_TILE_INL_H_
#else
#define ISENTROPE_QUERY_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/block_sizes.h"
#include "src/cpu/kernels.h"
#include "src/cpu/plan.h"
#include "src/cpu/product/f32-inl.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/steps/gradient_tile-inl.h"
#include "src/cpu/steps/logits-inl.h"
#include "src/cpu/steps/tile_ranges.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Two tiles of 48 x 128 floats are live at once. With fewer rows, the products dK and dV would
// spend their time loading and storing sums.
inline constexpr std::size_t kGradientRows = 4 * kRegisterRows;
// AMX, whose panels are those of AVX-512, writes scores in whole tiles of 16 rows.
static_assert(HWY_MAX_BYTES < 64 || (kGradientRows % 16 == 0 && kBlockKeys % 16 == 0));
using GradientRanges = TileRanges<kGradientRows>;
static_assert(kRegisterRows % 2 == 0);  // the two rows of a pair are in one register tile

// Operands of the products: rows of a query tile, and of a key block. Tangents belong to the
// second-order pass. An operand without data has no rows.
enum RowSide : std::size_t { kQueries, kOutputGradients, kQueryTangents, kRowSides };
enum KeySide : std::size_t { kKeys, kValues, kKeyTangents, kValueTangents, kKeySides };
constexpr bool is_of_values(RowSide side) { return side == kOutputGradients; }
constexpr bool is_of_values(KeySide side) { return side == kValues || side == kValueTangents; }
// Arrays of a gradient tile; the last one is that of the second-order pass.
enum TileArray : std::size_t { kWeights, kGradients, kTangents, kTileArrays };

// Up to kGradientRows queries of one head.
struct QueryTile {
  explicit QueryTile(const BackwardCall& backward)
      : call(backward),
        queries(backward.input.q),
        d_output(backward.gradient.d_output),
        query_tangents(backward.query_tangents) {}

  // Starts a new tile at query `first`. Queries are listed before it is known whether any sees a
  // key of the block. Packing, the expensive part, waits for that.
  void list(std::int64_t batch_index, std::int64_t head_index, std::int64_t first) {
    batch = batch_index;
    head = head_index;
    first_query = first;
    scale = call.scale.of(batch, head);
    const std::int64_t last =
        HWY_MIN(call.input.q.extents[2], first + static_cast<std::int64_t>(kGradientRows));
    rows = static_cast<std::size_t>(last - first);
    const auto list_rows = [&](Operand& operand, bool is_given) {
      operand.clear();
      if (!is_given) return;
      operand.add(batch, head, first, last);
      operand.resolve();
    };
    list_rows(queries, true);
    list_rows(d_output, static_cast<bool>(call.gradient.d_output));
    list_rows(query_tangents, static_cast<bool>(call.query_tangents));
  }

  [[nodiscard]] std::int64_t query(std::size_t row) const {
    return first_query + static_cast<std::int64_t>(row);
  }

  [[nodiscard]] const Operand& operand(RowSide side) const {
    return side == kQueries ? queries : side == kOutputGradients ? d_output : query_tangents;
  }
  // Returns the factor of each row in the operand's products.
  [[nodiscard]] const float* factors(RowSide side) const {
    return side == kQueries ? lambda : side == kOutputGradients ? non_sink_weight : tangent_factor;
  }

  const BackwardCall& call;
  Operand queries, d_output, query_tangents;
  std::int64_t batch = 0, head = 0, first_query = 0;
  std::size_t rows = 0;
  HeadScale scale{};
  KeyRange ranges[kGradientRows];
  RowGradient gradients[kGradientRows];
  // Queries and their tangents are multiplied by lambda in log2, unless tangents are scaled
  // already, and output gradients by the non-sink weight. All arrays cover whole register tiles of
  // rows.
  float lambda[kGradientRows] = {}, non_sink_weight[kGradientRows] = {},
        tangent_factor[kGradientRows] = {};
};

// A query tile and up to kGradientKeys keys of a block.
struct GradientTile {
  const WorkItem& item;  // the key block
  const QueryTile& queries;
  std::size_t key;               // first key of the tile, counted from the block's
  const GradientRanges& ranges;  // from the tile's first key
  // The union in whole panels: keys are columns here, and panels are packed for the whole block.
  std::size_t first = ranges.first / panel_width() * panel_width();
  std::size_t last = round_up(ranges.last, panel_width());

  HWY_ALIGN float weights[kGradientRows * kGradientKeys];    // logits, then P
  HWY_ALIGN float gradients[kGradientRows * kGradientKeys];  // dp, then dz

  GradientTile(const WorkItem& block, const QueryTile& rows, std::size_t first_key,
               const GradientRanges& seen)
      : item(block), queries(rows), key(first_key), ranges(seen) {}

  // Returns the call's key for the tile's key j.
  [[nodiscard]] std::int64_t key_of(std::size_t j) const {
    return item.begin + static_cast<std::int64_t>(key + j);
  }
  [[nodiscard]] LogitTerms terms(std::size_t r, std::size_t j) const {
    LogitTerms terms = logit_terms(queries.call.options, queries.scale, queries.batch, queries.head,
                                   queries.query(r), key_of(j));
    terms.stride = ranges.stride;
    return terms;
  }
  [[nodiscard]] bool sees(std::size_t r, std::size_t j) const {
    return ranges.sees(r, j) && !(masks_one_by_one() && terms(r, j).is_masked(0));
  }
  // Returns whether bias or boolean mask may hide keys within a range.
  [[nodiscard]] bool masks_one_by_one() const {
    return queries.call.options.bias || queries.call.options.attn_mask;
  }
  [[nodiscard]] bool has_terms() const {
    return queries.call.options.soft_cap > 0 || masks_one_by_one();
  }
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
