#include "src/gpu/rows.h"

#include <algorithm>
#include <bit>
#include <string>

#include "src/call/mask_parts.h"

namespace isentrope::cuda {
namespace {

// Limit of lengths, beyond which tables of a rule would fill the device.
constexpr std::int64_t kLongest = std::int64_t{1} << 26;

struct Tables {
  RuleTable visible, position, total;
  std::int64_t position_first = 0;
  [[nodiscard]] std::int64_t heads() const {
    return std::max({visible.heads, position.heads, total.heads});
  }
};

// Rounds a length up, so that lengths that grow in decoding reuse their table for a long time.
std::int64_t rounded_up(const char* name, std::int64_t needed) {
  if (needed > kLongest) {
    Checks("attention").fail(name, "be below 2^26 on a device", std::to_string(needed));
  }
  return std::int64_t{1} << std::bit_width(static_cast<std::uint64_t>(needed));
}

Tables tables_of(const AttentionInput& in, const AttentionOptions& options, Device::State& device) {
  const Mask& mask = options.mask;
  const std::int64_t longest = std::max({mask.sequence_keys, in.keys(), std::int64_t{1}});
  const std::int64_t count = rounded_up("keys, or sequence_keys,", longest);
  const std::int64_t reach =
      rounded_up("query_offset", mask.query_offset + in.q.extents[2] + longest);
  const auto table = [&](LengthSource source, std::int64_t first, std::int64_t size) {
    return device.table(options.rule, source, in.q.extents[3], first, size);
  };
  return {table(LengthSource::visible, 0, count),
          table(LengthSource::position, -count, count + reach),
          table(LengthSource::total, 0, count), -count};
}

Needs needs_of(const Mask& mask, const Tables& tables, std::int64_t tile) {
  Needs needs{.kernel = "rows",
              .constants = {{"ROWS", tile},
                            {"POSITION", tables.position.count > 0},
                            {"TOTAL", tables.total.count > 0},
                            {"LAMBDA", 0},
                            {"COUNT", 0},
                            {"LENGTHS", 0},
                            {"USED", 0}}};
  for (const MaskList& part : kMaskLists) {
    std::string name = "HAS_" + std::string(part.name);
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    needs.constants[name] = static_cast<bool>(mask.*part.member);
  }
  return needs;
}

void add_mask(const Mask& mask, Address anything, Arguments& arguments) {
  // Beyond every position, and far from overflow.
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  arguments["causal"] = static_cast<std::int64_t>(mask.causal);
  for (const MaskNumber& part : kMaskNumbers) {
    arguments[part.name] = std::min(mask.*part.member, kFar);
  }
  for (const MaskList& part : kMaskLists) {
    const auto& list = mask.*part.member;
    arguments[part.name] = list ? reinterpret_cast<Address>(list.data) : anything;
  }
  arguments["documents"] = mask.cu_seqlens_q ? mask.cu_seqlens_q.extents[0] - 1 : 0;
}

void add_tables(const Tables& tables, Arguments& arguments) {
  arguments["visible_table"] = tables.visible.address;
  arguments["visible_count"] = tables.visible.count;
  arguments["position_table"] = tables.position.address;
  arguments["position_first"] = tables.position_first;
  arguments["position_count"] = tables.position.count;
  arguments["total_table"] = tables.total.address;
  arguments["total_count"] = tables.total.count;
  arguments["rule_heads"] = tables.heads();
}

}  // namespace

Rows rows_of(const AttentionInput& in, const AttentionOptions& options, std::int64_t tile,
             const Counters& counters, Device::State& device, Handle stream) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  const Tables tables = tables_of(in, options, device);
  const Loaded kernel = device.find(needs_of(options.mask, tables, tile));
  Rows rows;
  rows.batches = batches_are_alike(options.mask) ? 1 : batch;
  rows.heads = tables.heads() > 1 ? heads : 1;
  const std::int64_t tiles = (queries + tile - 1) / tile, own = rows.batches * queries;
  rows.plane = own * rows.heads;
  // Each array begins at a multiple of 16 bytes, as kernels expect.
  const std::int64_t apart = (own + 3) / 4 * 4;
  rows.integers.emplace(static_cast<std::size_t>(3 * apart + rows.batches * 4 * tiles) * 4, stream);
  rows.floats.emplace(static_cast<std::size_t>(4 * rows.plane) * sizeof(float), stream);
  rows.begins = rows.integers->at();
  rows.ends = rows.integers->at(apart, 4);
  rows.own_keys = rows.integers->at(2 * apart, 4);
  rows.scales = rows.floats->at();

  Arguments arguments{{"begins", rows.begins},
                      {"ends", rows.ends},
                      {"own_keys", rows.own_keys},
                      {"scales", rows.scales},
                      {"tiles", rows.integers->at(3 * apart, 4)},
                      {"lengths", rows.begins},
                      {"counters", counters.address == 0 ? rows.begins : counters.address},
                      {"blocks", counters.blocks},
                      {"lambda_", rows.scales},
                      {"attn_mask", rows.begins},
                      {"used", rows.begins},
                      {"batches", rows.batches},
                      {"heads", rows.heads},
                      {"queries", queries},
                      {"keys", in.keys()}};
  for (const char* name : {"stride_lb", "stride_lh", "stride_lq", "stride_mb", "stride_mh",
                           "stride_mq", "stride_mk"}) {
    arguments[name] = std::int64_t{0};
  }
  add_mask(options.mask, rows.begins, arguments);
  add_tables(tables, arguments);
  launch(kernel, {.x = tiles * rows.batches * rows.heads}, arguments, stream);
  return rows;
}

}  // namespace isentrope::cuda
