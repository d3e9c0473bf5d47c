#include "src/gpu/call.h"

#include <algorithm>
#include <numbers>

#include "src/call/dropout.h"
#include "src/gpu/rows.h"

namespace isentrope::cuda {

std::string upper(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return result;
}

std::string pointer_to(DType type) {
  const std::string_view name = type == DType::f32   ? "fp32"
                                : type == DType::f16 ? "fp16"
                                                     : name_of(type);
  return "*" + std::string(name);
}

Needs tile_kernel(std::string_view kernel, const Call& call) {
  const Mask& mask = call.options.mask;
  const bool drops = call.options.dropout_p > 0;
  return {.kernel = kernel,
          .constants = {{"SHAPE.DIM", call.in.q.extents[3]},
                        {"SHAPE.EVEN", 1},
                        {"SHAPE.COLUMNS", call.in.v.extents[3]},
                        {"SHAPE.EVEN_COLUMNS", 1},
                        {"SHAPE.CAPPED", call.options.soft_cap > 0},
                        {"SHAPE.ATTN_MASK", static_cast<bool>(call.options.attn_mask)},
                        {"SHAPE.BIAS", static_cast<bool>(call.options.bias)},
                        {"SHAPE.MASKED", call.plan.masked},
                        {"SHAPE.DROPOUT", drops},
                        {"SHAPE.FOURS", drops && mask.key_offset % 4 == 0},
                        {"SHAPE.DILATION", call.plan.dilation}},
          .types = {{"q", pointer_to(call.in.q.type)}}};
}

void add_strides(Arguments& arguments, std::string_view array,
                 const std::array<std::int64_t, 4>& strides, std::string_view axes) {
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    arguments["stride_" + std::string(array) + axes[axis]] = strides[axis];
  }
}

Arguments tile_arguments(const Call& call, const Rows& rows, const Scratch& seed) {
  const AttentionInput& in = call.in;
  const AttentionOptions& options = call.options;
  const auto or_else = [](const auto& view, Address other) {
    return view ? address_of(view.data) : other;
  };
  const Dropout dropout(options);
  const double cap = static_cast<double>(options.soft_cap) * std::numbers::log2e;
  Arguments found{{"q", address_of(in.q.data)},
                  {"k", address_of(in.k.data)},
                  {"v", address_of(in.v.data)},
                  {"begins", rows.begins},
                  {"ends", rows.ends},
                  {"own_keys", rows.own_keys},
                  {"scales", rows.scales},
                  {"attn_mask", or_else(options.attn_mask, rows.begins)},
                  {"bias", or_else(options.bias, rows.scales)},
                  {"sinks", or_else(options.sinks, rows.scales)},
                  {"table", or_else(in.pages.block_table, rows.begins)},
                  {"stride_table", in.pages ? in.pages.block_table.strides[0] : 0},
                  {"batches", in.q.extents[0]},
                  {"heads", in.q.extents[1]},
                  {"kv_heads", in.k.extents[1]},
                  {"queries", in.q.extents[2]},
                  {"keys", in.keys()},
                  {"dim", in.q.extents[3]},
                  {"value_dim", in.v.extents[3]},
                  {"scale_batches", rows.batches},
                  {"scale_heads", rows.heads},
                  {"span_batches", rows.batches},
                  {"cap", static_cast<float>(cap)},
                  {"seed", seed.at() == 0 ? address_of(in.q.data) : seed.at()},
                  // Kernels read the lowest 32 bits.
                  {"least", std::int64_t{static_cast<std::int32_t>(dropout.least)}},
                  {"kept_factor", dropout.factor},
                  {"query_offset", options.mask.query_offset},
                  {"key_offset", options.mask.key_offset}};
  add_strides(found, "q", in.q.strides);
  add_strides(found, "k", in.k.strides);
  add_strides(found, "v", in.v.strides);
  add_strides(found, "m", options.attn_mask.strides, "bhqk");
  add_strides(found, "b", options.bias.strides, "bhqk");
  return found;
}

Repaired with_repair(const Call& call, Needs needs, bool checked) {
  needs.types["wrong"] = checked ? "*i32" : "";
  needs.constants["REPAIR"] = 0;
  Repaired found{.first = call.device.find(needs), .repair = {}};
  needs.constants["REPAIR"] = 1;
  if (checked) found.repair = call.device.find(needs);
  return found;
}

void launch(const Repaired& kernels, const Grid& grid, Arguments passed, Handle stream) {
  const auto programs = static_cast<std::size_t>(grid.x * grid.z);
  const Scratch wrong(kernels.repair ? 4 * programs : 0, stream);
  passed["wrong"] = wrong.at();
  launch(kernels.first, grid, passed, stream);
  if (kernels.repair) launch(*kernels.repair, grid, passed, stream);
}

Scratch seed_of(const Call& call) {
  const bool drops = call.options.dropout_p > 0;
  Scratch seed(drops ? sizeof call.options.dropout_seed : 0, call.stream);
  const std::uint64_t bits = call.options.dropout_seed;
  for (std::int64_t half = 0; drops && half < 2; ++half) {
    fill(seed.at(half, 4), static_cast<std::uint32_t>(bits >> 32 * half), 1, call.stream);
  }
  return seed;
}

std::int64_t slices_of(const Kernel& kernel) {
  std::int64_t slices = 0;
  for (const auto& [name, slice] : kernel.constants) {
    const bool is_slice =
        name.starts_with("WANTED.") && name != "WANTED.SUPPORT" && name != "WANTED.MOMENTS";
    if (is_slice) slices = std::max(slices, slice + 1);
  }
  return slices;
}

void zero(const Tensor& tensor, Handle stream) {
  const auto [batch, heads, rows, columns] = tensor.extents;
  for (std::int64_t row = 0; row < batch * heads * rows; ++row) {
    const std::int64_t at = row / rows / heads * tensor.strides[0] +
                            row / rows % heads * tensor.strides[1] + row % rows * tensor.strides[2];
    const auto offset = static_cast<Address>(at * size_of(tensor.type));
    fill(address_of(tensor.data) + offset, 0, columns * size_of(tensor.type) / 4, stream);
  }
}

void fill(Address address, std::uint32_t bits, std::int64_t count, Handle stream) {
  if (count == 0) return;
  driver().require(driver().fill_in_order(address, bits, static_cast<std::size_t>(count), stream),
                   "fill memory");
}

void copy(Address to, Address from, std::int64_t bytes, Handle stream) {
  driver().require(driver().copy_in_order(to, from, static_cast<std::size_t>(bytes), stream),
                   "copy statistics");
}

}  // namespace isentrope::cuda
