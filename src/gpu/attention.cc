// A call on a device, in the order of python/isentrope/gpu/launch.py, whose kernels these are:
// rows, query blocks against the keys they see, and the repair launch of programs with non-finite
// sums.

#include "isentrope/cuda/attention.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "src/call/mask_parts.h"
#include "src/gpu/check.h"
#include "src/gpu/rows.h"

namespace isentrope::cuda {
namespace {

// Rows of a decode step, of all query heads that share a key head, are in one tile.
constexpr std::int64_t kFewRows = 16;

std::int64_t blocks_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::string upper(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return result;
}

// Returns the type by Triton's name.
std::string pointer_to(DType type) {
  return "*" + std::string(type == DType::f16 ? "fp16" : name_of(type));
}

// Returns whether rows of a query block may see different keys of a tile.
bool hides(const Mask& mask, std::int64_t queries) {
  bool ranges = mask.causal != Causal::none;
  for (const MaskNumber& part : kMaskNumbers) {
    ranges = ranges || (part.parts_rows && part.is_given(mask));
  }
  return mask.cu_seqlens_q || (ranges && queries > 1);
}

// Returns whether no row sees a key after its own position.
bool own_is_last(const Mask& mask) {
  return (mask.causal != Causal::none || mask.window_right == 0) && !mask.prefix_keys;
}

// Returns the number of shares that the keys are split into, so that programs fill whole waves; 1:
// not split. wave: programs that the device runs at once. Same as in plan.py.
std::int64_t shares_of(std::int64_t wave, std::int64_t blocks, std::int64_t keys,
                       std::int64_t tile) {
  if (blocks >= wave) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(keys / (4 * tile), 1, 128);
  const std::int64_t count = std::min(most, blocks_of(2 * wave, blocks));
  const auto filled = [&](std::int64_t shares) {
    const std::int64_t waves = blocks_of(blocks * shares, wave);
    return static_cast<double>(blocks * shares) / static_cast<double>(waves * wave);
  };
  double best = 0;
  for (std::int64_t shares = 1; shares <= count; ++shares) best = std::max(best, filled(shares));
  std::int64_t shares = 1;
  while (filled(shares) < 0.9 * best) ++shares;
  return shares;
}

// Returns the slices of the kernel's tensor of statistics.
std::int64_t slices_of(const Kernel& kernel) {
  std::int64_t slices = 0;
  for (const auto& [name, slice] : kernel.constants) {
    const bool is_slice =
        name.starts_with("WANTED.") && name != "WANTED.SUPPORT" && name != "WANTED.MOMENTS";
    if (is_slice) slices = std::max(slices, slice + 1);
  }
  return slices;
}

class Forward {
 public:
  Forward(const AttentionInput& in, const AttentionOptions& options, const AttentionOutput& out,
          Device::State& device, Handle stream)
      : in_(in), options_(options), out_(out), device_(device), stream_(stream) {}

  void run() const;

 private:
  struct Plan {
    Loaded forward;
    std::optional<Loaded> repair;
    std::int64_t blocks = 0, shares = 1;
    bool checked = false;  // programs with non-finite sums are flagged for the repair launch
  };
  [[nodiscard]] Plan plan() const;
  // Requirements that are empty may have either value.
  [[nodiscard]] Needs needs(bool repair, std::optional<bool> split = {},
                            std::optional<bool> checked = {}) const;
  [[nodiscard]] Arguments arguments(const Rows& rows, std::int64_t shares) const;
  void copy_statistics(const Kernel& forward, const Rows& rows, Address statistics,
                       Address supports) const;
  void copy(void* to, Address from, std::int64_t bytes) const;

  [[nodiscard]] std::int64_t group() const { return in_.q.extents[1] / in_.k.extents[1]; }
  [[nodiscard]] bool packed() const {
    return group() * in_.q.extents[2] <= kFewRows || static_cast<bool>(in_.pages);
  }
  [[nodiscard]] std::int64_t plane() const {
    return in_.q.extents[0] * in_.q.extents[1] * in_.q.extents[2];
  }

  const AttentionInput& in_;
  const AttentionOptions& options_;
  const AttentionOutput& out_;
  Device::State& device_;
  Handle stream_;
};

Needs Forward::needs(bool repair, std::optional<bool> split, std::optional<bool> checked) const {
  Needs needs{.kernel = "forward",
              .constants = {{"SHAPE.DIM", in_.q.extents[3]},
                            {"SHAPE.EVEN", 1},
                            {"SHAPE.COLUMNS", in_.v.extents[3]},
                            {"SHAPE.EVEN_COLUMNS", 1},
                            {"PACKED", packed()},
                            {"PAGE", in_.pages ? in_.k.extents[2] : 0},
                            {"REPAIR", repair},
                            {"SINK", 0},
                            {"SHAPE.CAPPED", 0},
                            {"SHAPE.MASKED", 0},
                            {"SHAPE.DROPOUT", 0}},
              .types = {{"q", pointer_to(in_.q.type)}, {"output", pointer_to(out_.output.type)}}};
  if (!own_is_last(options_.mask)) needs.constants["SHAPE.OWN_LAST"] = 0;
  if (split) needs.constants["SPLIT"] = *split;
  if (checked) needs.types["wrong"] = *checked ? "*i32" : "";
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) {
        if (view && statistic.name != "lambda") needs.wanted.push_back(upper(statistic.name));
      },
      out_.statistics);
  return needs;
}

Arguments Forward::arguments(const Rows& rows, std::int64_t shares) const {
  const auto address = [](const void* data) { return reinterpret_cast<Address>(data); };
  const Mask& mask = options_.mask;
  const auto& table = in_.pages.block_table;
  Arguments found{{"q", address(in_.q.data)},
                  {"k", address(in_.k.data)},
                  {"v", address(in_.v.data)},
                  {"output", address(out_.output.data)},
                  {"begins", rows.begins},
                  {"ends", rows.ends},
                  {"own_keys", rows.own_keys},
                  {"scales", rows.scales},
                  {"sinks", rows.scales},
                  {"attn_mask", rows.begins},
                  {"bias", rows.scales},
                  {"table", table ? address(table.data) : rows.begins},
                  {"states", rows.scales},
                  {"sums", rows.scales},
                  {"heads", in_.q.extents[1]},
                  {"kv_heads", in_.k.extents[1]},
                  {"queries", in_.q.extents[2]},
                  {"keys", in_.keys()},
                  {"dim", in_.q.extents[3]},
                  {"value_dim", in_.v.extents[3]},
                  {"stride_table", table ? table.strides[0] : 0},
                  {"scale_batches", rows.batches},
                  {"scale_heads", rows.heads},
                  {"cap", 0.0f},
                  {"splits", shares},
                  {"seed", address(in_.q.data)},
                  {"least", std::int64_t{0}},
                  {"kept_factor", 1.0f},
                  {"query_offset", mask.query_offset},
                  {"key_offset", mask.key_offset}};
  static constexpr std::array<std::array<const char*, 4>, 6> kStrides = {
      {{"stride_qb", "stride_qh", "stride_qn", "stride_qd"},
       {"stride_kb", "stride_kh", "stride_kn", "stride_kd"},
       {"stride_vb", "stride_vh", "stride_vn", "stride_vd"},
       {"stride_ob", "stride_oh", "stride_on", "stride_od"},
       {"stride_mb", "stride_mh", "stride_mq", "stride_mk"},
       {"stride_bb", "stride_bh", "stride_bq", "stride_bk"}}};
  const std::array<std::array<std::int64_t, 4>, 6> strides = {
      in_.q.strides, in_.k.strides, in_.v.strides, out_.output.strides, {}, {}};
  for (std::size_t i = 0; i < strides.size(); ++i) {
    for (std::size_t axis = 0; axis < 4; ++axis) found[kStrides[i][axis]] = strides[i][axis];
  }
  return found;
}

Forward::Plan Forward::plan() const {
  const std::int64_t queries = in_.q.extents[2];
  const bool hidden = hides(options_.mask, queries);
  // All kernels of the call have the same tile.
  const Kernel& any = *device_.find(needs(false)).kernel;
  Plan plan;
  // A logit of -inf makes a moment NaN. Few rows are masked at once instead of repaired.
  plan.checked = hidden || (!packed() && any.constant("WANTED.MOMENTS") > 0);
  const std::int64_t lanes = packed() ? in_.k.extents[1] : in_.q.extents[1];
  const std::int64_t length = packed() ? group() * queries : queries;
  plan.blocks = in_.q.extents[0] * lanes * blocks_of(length, any.constant("SHAPE.ROWS"));
  plan.shares = shares_of(device_.units() * any.constant("SHAPE.PLACES"), plan.blocks, in_.keys(),
                          any.constant("SHAPE.KEYS"));
  plan.forward = device_.find(needs(false, plan.shares > 1, plan.checked));
  if (plan.checked) plan.repair = device_.find(needs(true, plan.shares > 1, true));
  return plan;
}

void Forward::run() const {
  const Plan plan = this->plan();  // finds all kernels before one is launched
  const Kernel& kernel = *plan.forward.kernel;
  const auto scratch = [&](std::int64_t count, std::size_t size) {
    return Scratch(static_cast<std::size_t>(count) * size, stream_);
  };
  const std::int64_t split = plan.shares > 1 ? plan.shares : 0;
  const Scratch statistics = scratch(slices_of(kernel) * plane(), 4);
  const Scratch supports = scratch(kernel.constant("WANTED.SUPPORT") * plane(), 8);
  const Scratch wrong = scratch(plan.checked ? plan.shares * plan.blocks : 0, 4);
  // Rounded up to whole tiles of query blocks, for each share.
  const std::int64_t own_rows = split * plan.blocks * kernel.constant("SHAPE.ROWS");
  const Scratch states = scratch(own_rows * 7, 4);
  const Scratch sums = scratch(own_rows * kernel.constant("SHAPE.COLUMNS"), 4);
  const Scratch counters = scratch(split > 0 ? plan.blocks : 0, 4);
  const Counters counted{counters.at(), split > 0 ? plan.blocks : 0};
  const Rows rows =
      rows_of(in_, options_, kernel.constant("SHAPE.ROWS"), counted, device_, stream_);

  Arguments passed = arguments(rows, plan.shares);
  passed["statistics"] = statistics.at();
  passed["supports"] = supports.at();
  passed["wrong"] = wrong.at();
  if (split > 0) passed["states"] = states.at();
  if (split > 0) passed["sums"] = sums.at();
  if (split > 0) passed["counters"] = counters.at();
  const Grid grid{.x = plan.blocks, .z = plan.shares};
  launch(plan.forward, grid, passed, stream_);
  // Returns at once if there is nothing to repair.
  if (plan.repair) launch(*plan.repair, grid, passed, stream_);
  copy_statistics(kernel, rows, statistics.at(), supports.at());
}

void Forward::copy(void* to, Address from, std::int64_t bytes) const {
  driver().require(driver().copy_in_order(reinterpret_cast<Address>(to), from,
                                          static_cast<std::size_t>(bytes), stream_),
                   "copy statistics");
}

void Forward::copy_statistics(const Kernel& forward, const Rows& rows, Address statistics,
                              Address supports) const {
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) {
        if (!view) return;
        const std::int64_t slice = forward.constant("WANTED." + upper(statistic.name));
        if (statistic.name == "support") {
          copy(view.data, supports, plane() * 8);
        } else if (statistic.name != "lambda") {
          copy(view.data, statistics + static_cast<Address>(slice * plane() * 4), plane() * 4);
        }
      },
      out_.statistics);
  if (!out_.statistics.lambda) return;
  const auto [batch, heads, queries, dim] = in_.q.extents;
  for (std::int64_t lane = 0; lane < batch * heads; ++lane) {
    const std::int64_t own = lane / heads % rows.batches * rows.heads + lane % heads % rows.heads;
    const Address from = rows.scales + static_cast<Address>(3 * rows.plane + own * queries) * 4;
    copy(out_.statistics.lambda.data + lane * queries, from, queries * 4);
  }
}

}  // namespace

void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const Place& place) {
  Device::State& device = place.device.state();
  const Current current(device.context());
  check_call(input, options, output, device.ordinal());
  const auto [batch, heads, queries, columns] = output.output.extents;
  if (batch * heads * queries * columns == 0) return;
  Forward(input, options, output, device, place.stream).run();
}

}  // namespace isentrope::cuda
