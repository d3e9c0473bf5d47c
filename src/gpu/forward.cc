// The forward pass on a device, in the order of python/isentrope/gpu/launch_forward.py, whose
// kernels these are: rows, query blocks against the keys they see, and the repair launch of
// programs with non-finite sums. Calls whose keys are split also merge their shares.

#include <algorithm>
#include <optional>

#include "src/gpu/call.h"
#include "src/gpu/check.h"
#include "src/gpu/rows.h"

namespace isentrope::cuda {
namespace {

class Forward {
 public:
  Forward(const Call& call, const AttentionOutput& out) : call_(call), out_(out) {}

  void run() const {
    const Plan plan = this->plan();  // finds all kernels before one is launched
    check_arguments(plan.forward.first, arguments({}, {0, call_.stream}, plan.shares));
    const Kernel& kernel = *plan.forward.first.kernel;
    const std::int64_t split = plan.shares > 1 ? plan.shares : 0;
    const Scratch statistics = scratch(slices_of(kernel) * call_.rows(), 4);
    const Scratch supports = scratch(kernel.constant("WANTED.SUPPORT") * call_.rows(), 8);
    // Rounded up to whole tiles of query blocks, for each share.
    const std::int64_t tile = kernel.constant("SHAPE.ROWS");
    const std::int64_t own_rows = split * plan.blocks * tile;
    const Scratch states = scratch(own_rows * call_.device.manifest().number("SHARED"), 4);
    const Scratch sums = scratch(own_rows * kernel.constant("SHAPE.COLUMNS"), 4);
    const Scratch seed = seed_of(call_);
    const auto& lambda = out_.statistics.lambda;
    const Rows rows = rows_of(call_, tile, lambda ? address_of(lambda.data) : 0);

    Arguments passed = arguments(rows, seed, plan.shares);
    passed["statistics"] = statistics.at();
    passed["supports"] = supports.at();
    if (split > 0) passed["states"] = states.at();
    if (split > 0) passed["sums"] = sums.at();
    launch(plan.forward, {.x = plan.blocks, .z = plan.shares}, passed, call_.stream);
    if (plan.merge) {
      const std::int64_t count = plan.merge->kernel->constant("COUNT");
      const Grid merged{.x = plan.blocks, .y = blocks_of(std::min(tile, call_.plan.length), count)};
      launch(*plan.merge, merged, passed, call_.stream);
    }
    copy_statistics(kernel, statistics.at(), supports.at());
  }

 private:
  struct Plan {
    Repaired forward;
    std::optional<Loaded> merge;
    std::int64_t blocks = 0, shares = 1;
  };

  [[nodiscard]] Scratch scratch(std::int64_t count, std::size_t size) const {
    return {static_cast<std::size_t>(count) * size, call_.stream};
  }

  [[nodiscard]] Needs needs() const {
    Needs needs = tile_kernel("forward", call_);
    needs.constants["PACKED"] = call_.plan.packed;
    needs.constants["PAGE"] = call_.in.pages ? call_.in.k.extents[2] : 0;
    needs.constants["SINK"] = static_cast<bool>(call_.options.sinks);
    needs.types["output"] = pointer_to(out_.output.type);
    if (!call_.plan.own_is_last) needs.constants["SHAPE.OWN_LAST"] = 0;
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          if (view && statistic.name != "lambda") needs.wanted.push_back(upper(statistic.name));
        },
        out_.statistics);
    return needs;
  }

  [[nodiscard]] Needs merge_needs(const Kernel& forward) const {
    Needs needs{.kernel = "merge",
                .constants = {{"SINK", forward.constant("SINK")},
                              {"PACKED", forward.constant("PACKED")},
                              {"ROWS", forward.constant("SHAPE.ROWS")},
                              {"COLUMNS", forward.constant("SHAPE.COLUMNS")},
                              {"EVEN_COLUMNS", forward.constant("SHAPE.EVEN_COLUMNS")}},
                .types = {{"output", pointer_to(out_.output.type)}}};
    for (const auto& [name, number] : forward.constants) {
      if (name.starts_with("WANTED.")) needs.constants[name] = number;
    }
    return needs;
  }

  [[nodiscard]] Arguments arguments(const Rows& rows, const Scratch& seed,
                                    std::int64_t shares) const {
    Arguments found = tile_arguments(call_, rows, seed);
    found["output"] = address_of(out_.output.data);
    found["states"] = found["sums"] = rows.scales;
    found["splits"] = shares;
    add_strides(found, "o", out_.output.strides);
    return found;
  }

  [[nodiscard]] Plan plan() const {
    Needs needs = this->needs();
    needs.constants["REPAIR"] = 0;
    // All kernels of the call have the same tile.
    const Kernel& any = *call_.device.find(needs).kernel;
    const bool moments = any.constant("WANTED.MOMENTS") > 0;
    Plan plan;
    plan.blocks =
        call_.batch() * call_.plan.lanes * blocks_of(call_.plan.length, any.constant("SHAPE.ROWS"));
    plan.shares = shares_of(call_.device.units() * any.constant("SHAPE.OCCUPANCY"), plan.blocks,
                            call_.in.keys(), any.constant("SHAPE.KEYS"));
    needs.constants["SPLIT"] = plan.shares > 1;
    plan.forward =
        with_repair(call_, needs, moments ? call_.plan.moments_checked : call_.plan.rows_differ);
    if (plan.shares > 1) plan.merge = call_.device.find(merge_needs(*plan.forward.first.kernel));
    return plan;
  }

  void copy_statistics(const Kernel& forward, Address statistics, Address supports) const {
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          if (!view || statistic.name == "lambda") return;
          const std::int64_t slice = forward.constant("WANTED." + upper(statistic.name));
          const auto from = statistics + static_cast<Address>(slice * call_.rows() * 4);
          if (statistic.name == "support") {
            copy(address_of(view.data), supports, call_.rows() * 8, call_.stream);
          } else {
            copy(address_of(view.data), from, call_.rows() * 4, call_.stream);
          }
        },
        out_.statistics);
  }

  const Call& call_;
  const AttentionOutput& out_;
};

}  // namespace

void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const Place& place) {
  Device::State& device = place.device.state();
  const Current current(device.context());
  check_forward(input, options, output, device.ordinal());
  const auto [batch, heads, queries, columns] = output.output.extents;
  if (batch * heads * queries * columns == 0) return;
  Forward({input, options, device, place.stream}, output).run();
}

}  // namespace isentrope::cuda
