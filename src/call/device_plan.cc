#include "src/call/device_plan.h"

#include <algorithm>

namespace isentrope {
namespace {

// Tensor cores take so many rows at least.
constexpr std::int64_t kFewRows = 16;

std::int64_t rounded_up(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

}  // namespace

DevicePlan device_plan(const AttentionInput& in, const AttentionOptions& options) {
  const Mask& mask = options.mask;
  const std::int64_t heads = in.q.extents[1], kv_heads = in.k.extents[1], queries = in.q.extents[2];
  const std::int64_t group = kv_heads == 0 ? 0 : heads / kv_heads;
  DevicePlan plan;
  plan.packed = group * queries <= kFewRows || static_cast<bool>(in.pages);
  plan.lanes = plan.packed ? kv_heads : heads;
  plan.length = plan.packed ? group * queries : queries;
  plan.masked = options.attn_mask || options.bias || mask.dilation > 1;
  plan.dilation = std::clamp<std::int64_t>(mask.dilation, 1, (std::int64_t{1} << 31) - 1);
  const bool ranges = !rows_are_alike(mask);
  plan.rows_differ = plan.masked || mask.cu_seqlens_q || (ranges && queries > 1);
  plan.keys_differ = plan.masked || ranges || !batches_are_alike(mask);
  plan.moments_checked = plan.rows_differ || !plan.packed;
  plan.own_is_last = (mask.causal != Causal::none || mask.window_right == 0) && !mask.prefix_keys;
  plan.by_head = options.attn_mask || options.lambda;
  plan.by_batch = plan.by_head || !batches_are_alike(mask);
  return plan;
}

std::int64_t shares_of(std::int64_t wave, std::int64_t blocks, std::int64_t keys,
                       std::int64_t tile) {
  if (blocks <= 0 || blocks >= wave) return 1;
  // A share of fewer than 4 tiles would be read faster than it is merged.
  const std::int64_t most = std::clamp<std::int64_t>(keys / (4 * tile), 1, 128);
  const std::int64_t count = std::min(most, rounded_up(2 * wave, blocks));
  const auto filled = [&](std::int64_t shares) {
    const std::int64_t waves = rounded_up(blocks * shares, wave);
    return static_cast<double>(blocks * shares) / static_cast<double>(waves * wave);
  };
  double best = 0;
  for (std::int64_t shares = 1; shares <= count; ++shares) best = std::max(best, filled(shares));
  std::int64_t shares = 1;
  while (filled(shares) < 0.9 * best) ++shares;
  return shares;
}

}  // namespace isentrope
