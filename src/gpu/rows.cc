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

// Returns the tables of the rule. A call with lambda has no rule: its tables are placeholders at
// the address of `scales`, which the kernel does not read.
Tables tables_of(const Call& call, Address scales) {
  const Mask& mask = call.options.mask;
  if (call.options.lambda) {
    const RuleTable none{.address = scales, .heads = 1, .count = call.queries()};
    return {none, none, none};
  }
  const std::int64_t longest = std::max({mask.sequence_keys, call.in.keys(), std::int64_t{1}});
  const std::int64_t count = rounded_up("keys, or sequence_keys,", longest);
  const std::int64_t reach =
      rounded_up("query_offset", mask.query_offset + call.queries() + longest);
  const auto table = [&](LengthSource source, std::int64_t first, std::int64_t size) {
    return call.device.table(call.options.rule, source, call.in.q.extents[3], first, size,
                             call.options.soft_cap > 0);
  };
  return {table(LengthSource::visible, 0, count),
          table(LengthSource::position, -count, count + reach),
          table(LengthSource::total, 0, count), -count};
}

// Returns whether kernels count the keys that a boolean mask leaves to each row.
bool counts_keys(const Call& call, bool needs_lambda) {
  const AttentionOptions& options = call.options;
  const bool reads = !options.lambda && options.rule.reads(LengthSource::visible);
  return options.attn_mask && (needs_lambda || reads);
}

Needs needs_of(const Call& call, std::int64_t tile, bool needs_lambda) {
  const AttentionOptions& options = call.options;
  const bool has_rule = !options.lambda;
  Needs needs{.kernel = "rows",
              .constants = {{"ROWS", tile},
                            {"POSITION", has_rule && options.rule.reads(LengthSource::position)},
                            {"TOTAL", has_rule && options.rule.reads(LengthSource::total)},
                            {"LAMBDA", !has_rule},
                            {"TO_LAMBDA", needs_lambda},
                            {"COUNT", counts_keys(call, needs_lambda)},
                            {"LENGTHS", 0},
                            {"USED", 0}},
              .types = {{"attn_mask", options.attn_mask ? "*u1" : "*i32"}}};
  for (const MaskList& part : kMaskLists) {
    needs.constants["HAS_" + upper(part.name)] = static_cast<bool>(options.mask.*part.member);
  }
  return needs;
}

void add_mask(const Mask& mask, Address anything, Arguments& arguments) {
  // Larger numbers become 2^62, which is beyond every position and leaves room for sums.
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

Rows rows_of(const Call& call, std::int64_t tile, Address to_lambda) {
  const AttentionOptions& options = call.options;
  auto* const stream = call.stream;
  const std::int64_t queries = call.queries();
  const Loaded kernel = call.device.find(needs_of(call, tile, to_lambda != 0));
  Rows rows;
  const bool every = to_lambda != 0;
  rows.batches = call.plan.by_batch || every ? call.batch() : 1;
  rows.heads = call.plan.by_head || options.rule.heads() > 1 || every ? call.heads() : 1;
  const std::int64_t tiles = (queries + tile - 1) / tile, own = rows.batches * queries;
  // Each array begins at a multiple of 16 bytes, as kernels expect.
  const std::int64_t apart = (own + 3) / 4 * 4;
  rows.integers.emplace(static_cast<std::size_t>(3 * apart + rows.batches * 4 * tiles) * 4, stream);
  rows.floats.emplace(static_cast<std::size_t>(3 * own * rows.heads) * sizeof(float), stream);
  rows.begins = rows.integers->at();
  rows.ends = rows.integers->at(apart, 4);
  rows.own_keys = rows.integers->at(2 * apart, 4);
  rows.tiles = rows.integers->at(3 * apart, 4);
  rows.scales = rows.floats->at();

  const auto& mask = options.attn_mask;
  const auto& lambda = options.lambda;
  Arguments arguments{{"begins", rows.begins},
                      {"ends", rows.ends},
                      {"own_keys", rows.own_keys},
                      {"scales", rows.scales},
                      {"tiles", rows.tiles},
                      {"to_lambda", every ? to_lambda : rows.scales},
                      {"lengths", rows.begins},
                      {"lambda_", lambda ? address_of(lambda.data) : rows.scales},
                      {"attn_mask", mask ? address_of(mask.data) : rows.begins},
                      {"used", rows.begins},
                      {"batches", rows.batches},
                      {"heads", rows.heads},
                      {"queries", queries},
                      {"keys", call.in.keys()},
                      {"stride_lb", lambda.strides[0]},
                      {"stride_lh", lambda.strides[1]},
                      {"stride_lq", lambda.strides[2]}};
  add_strides(arguments, "m", mask.strides, "bhqk");
  add_mask(options.mask, rows.begins, arguments);
  add_tables(tables_of(call, rows.scales), arguments);
  launch(kernel, {.x = tiles * rows.batches * rows.heads}, arguments, stream);
  return rows;
}

}  // namespace isentrope::cuda
