// The backward pass on a device, in the order of python/isentrope/gpu/launch_backward.py, whose
// kernels these are. Rows come first, then the coefficients of their gradients. In f16 norms of
// values precede them, by which rows are scaled. Sinks are next, and the largest key of each row if
// a gradient goes to it. The rows that see each tile of keys are found before gradients of queries,
// and those of keys and values.

#include <optional>
#include <set>

#include "src/gpu/call.h"
#include "src/gpu/check.h"
#include "src/gpu/rows.h"
#include "src/shape.h"

namespace isentrope::cuda {
namespace {

class Backward {
 public:
  Backward(const Call& call, const AttentionGradientInput& gradient,
           const AttentionGradients& result)
      : call_(call), gradient_(gradient), result_(result) {}

  void run() const {
    const Plan plan = this->plan();  // finds all kernels before one is launched
    if (call_.rows() * call_.in.keys() == 0) return zero_all();
    check(plan);
    const Kernel& tile = *plan.by_key.front().first.kernel;
    const Rows rows = rows_of(call_, tile.constant("SHAPE.ROWS"), 0);
    const Scratch seed = seed_of(call_);
    const Scratch statistics = side_by_side(*plan.rows.kernel, gradient_.statistics);
    const Scratch terms = scratch(call_.rows() * call_.device.manifest().number("TERMS"));
    // A row of zeros stands for the gradient of the output.
    const std::int64_t columns = gradient_.d_output ? 0 : gradient_.output.extents[3];
    const Scratch zeros = scratch(columns);
    fill(zeros.at(), 0, columns, call_.stream);

    Arguments passed = arguments(rows, seed);
    if (!gradient_.d_output) passed["d_output"] = zeros.at();
    passed["statistics"] = statistics.at();
    // Only f16 has bounds, one of gradients of logits and one of products with keys.
    const Scratch bounds = scratch(plan.norms ? 2 * call_.rows() : 0);
    passed["terms"] = terms.at();
    passed["bounds"] = plan.norms ? bounds.at() : terms.at();
    launch_rows(plan, passed);
    const auto pairs = result_.d_bias ? call_.rows() * call_.in.keys() : 0;
    fill(address_of(result_.d_bias.data), 0, pairs, call_.stream);
    // Nothing comes to sinks that a call does not have.
    if (!plan.sink) zero_sinks();
    launch_tiles(plan, passed, rows, bounds.at(call_.rows(), 4));
  }

 private:
  struct Plan {
    Loaded rows, spans;
    std::optional<Loaded> norms, sink, largest_key;
    Repaired by_query;
    std::vector<Repaired> by_key;  // one of both gradients, or one of each
  };

  [[nodiscard]] std::string upstream_type() const {
    return pointer_to(gradient_.d_output ? gradient_.d_output.type : gradient_.output.type);
  }
  [[nodiscard]] Scratch scratch(std::int64_t count) const {
    return {static_cast<std::size_t>(count) * 4, call_.stream};
  }

  [[nodiscard]] bool has_upstream() const {
    bool any = false;
    for_each_statistic([&](const Statistic&, const auto& view) { any = any || view; },
                       gradient_.d_statistics);
    return any;
  }

  [[nodiscard]] std::set<std::string> terms() const {
    std::set<std::string> all;
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          if (!view) return;
          for (const auto& [term, name] : kTermNames)
            if (statistic.gradient & term) all.insert(upper(name));
        },
        gradient_.d_statistics);
    return all;
  }

  [[nodiscard]] Needs needs_of_rows() const {
    Needs needs{
        .kernel = "gradient_rows",
        .constants = {{"UPSTREAM", has_upstream()},
                      {"SINK", static_cast<bool>(call_.options.sinks)},
                      {"CAPPED", call_.options.soft_cap > 0},
                      {"COLUMNS", call_.in.v.extents[3]}},
        .types = {{"output", pointer_to(gradient_.output.type)}, {"d_output", upstream_type()}},
        .wanted = {"LSE"}};
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          if (!view) return;
          for (const std::string_view result : statistic.needs) {
            if (!result.empty()) needs.wanted.push_back(upper(result));
          }
        },
        gradient_.d_statistics);
    return needs;
  }

  [[nodiscard]] Needs needs_of_tiles(std::string_view kernel) const {
    Needs needs = tile_kernel(kernel, call_);
    needs.constants["GIVEN.SINK"] = static_cast<bool>(call_.options.sinks);
    needs.types["d_output"] = upstream_type();
    for (const std::string& term : terms()) needs.given.push_back(term);
    return needs;
  }

  [[nodiscard]] Plan plan() const {
    Device::State& device = call_.device;
    Plan plan;
    plan.rows = device.find(needs_of_rows());
    if (call_.in.q.type == DType::f16) {
      plan.norms = device.find({.kernel = "value_norms",
                                .constants = {{"COLUMNS", call_.in.v.extents[3]},
                                              {"ATTN_MASK", bool{call_.options.attn_mask}},
                                              {"BIAS", bool{call_.options.bias}}},
                                .types = {{"v", pointer_to(call_.in.v.type)}}});
    }
    if (result_.d_sinks && call_.options.sinks) {
      plan.sink = device.find({.kernel = "sink_gradient", .constants = {}});
    }
    if (terms().contains("LARGEST_KEY")) {
      Needs needs = tile_kernel("largest_key", call_);
      needs.constants["IS_PART"] = call_.options.mask.sequence_keys > 0;
      needs.types["d_output"] = upstream_type();
      plan.largest_key = device.find(needs);
    }
    Needs by_query = needs_of_tiles("query_gradient");
    by_query.constants["D_BIAS"] = static_cast<bool>(result_.d_bias);
    by_query.constants["D_LAMBDA"] = static_cast<bool>(result_.d_lambda);
    by_query.types["dq"] = pointer_to(result_.dq.type);
    plan.by_query = with_repair(call_, by_query, call_.plan.rows_differ);

    Needs by_key = needs_of_tiles("key_gradient");
    by_key.types["dk"] = pointer_to(result_.dk.type);
    by_key.types["dv"] = pointer_to(result_.dv.type);
    const Kernel& any = *device.find(by_key).kernel;
    const bool apart = any.constant("SHAPE.APART") != 0;
    for (const bool keys : {true, false}) {
      if (!keys && !apart) continue;
      by_key.constants["DK"] = keys;
      by_key.constants["DV"] = !apart || !keys;
      plan.by_key.push_back(with_repair(call_, by_key, call_.plan.keys_differ));
    }
    plan.spans = device.find({.kernel = "spans",
                              .constants = {{"ROWS", any.constant("SHAPE.ROWS")},
                                            {"KEYS", any.constant("SHAPE.KEYS")}}});
    return plan;
  }

  // Returns the arguments that are arrays of the caller, and those that all tiles have.
  [[nodiscard]] Arguments arguments(const Rows& rows, const Scratch& seed) const {
    Arguments found = tile_arguments(call_, rows, seed);
    found["output"] = address_of(gradient_.output.data);
    found["d_output"] = address_of(gradient_.d_output.data);
    found["dq"] = address_of(result_.dq.data);
    found["dk"] = address_of(result_.dk.data);
    found["dv"] = address_of(result_.dv.data);
    found["d_bias"] = address_of(result_.d_bias.data);
    found["d_lambda"] = address_of(result_.d_lambda.data);
    found["d_sink"] = address_of(result_.d_sinks.data);
    add_strides(found, "o", gradient_.output.strides);
    const Shape<4> of_zeros = {0, 0, 0, 1};
    add_strides(found, "g", gradient_.d_output ? gradient_.d_output.strides : of_zeros);
    return found;
  }

  void add_key_strides(Arguments& passed) const {
    add_strides(passed, "r", result_.dk.strides);
    add_strides(passed, "w", result_.dv.strides);
  }

  // Throws Error before anything is launched.
  void check(const Plan& plan) const {
    Arguments passed = arguments({}, {0, call_.stream});
    for (const auto& kernel : {plan.norms, plan.sink, plan.largest_key}) {
      if (kernel) check_arguments(*kernel, passed);
    }
    check_arguments(plan.rows, passed);
    add_strides(passed, "r", result_.dq.strides);
    check_arguments(plan.by_query.first, passed);
    add_key_strides(passed);
    for (const Repaired& kernels : plan.by_key) check_arguments(kernels.first, passed);
  }

  // Returns the statistics that a kernel reads, side by side; 0 for others that it has a place for.
  [[nodiscard]] Scratch side_by_side(const Kernel& kernel, const ConstRowStatistics& from) const {
    const std::int64_t slices = slices_of(kernel), size = call_.rows();
    Scratch all = scratch(slices * size);
    fill(all.at(), 0, slices * size, call_.stream);
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          const auto slice = kernel.constants.find("WANTED." + upper(statistic.name));
          if (!view || slice == kernel.constants.end() || slice->second < 0) return;
          if (statistic.name == "support") return;
          copy(all.at(slice->second * size, 4), address_of(view.data), size * 4, call_.stream);
        },
        from);
    return all;
  }

  void launch_norms(const Loaded& loaded, Arguments passed) const {
    if (!call_.options.attn_mask) passed["attn_mask"] = passed["norms"];
    if (!call_.options.bias) passed["bias"] = passed["norms"];
    const std::int64_t tiles = blocks_of(call_.in.keys(), loaded.kernel->constant("KEYS"));
    launch(loaded, {.x = tiles * call_.batch() * call_.kv_heads()}, passed, call_.stream);
  }

  void launch_rows(const Plan& plan, Arguments passed) const {
    const Kernel& kernel = *plan.rows.kernel;
    const Argument terms = passed.at("terms");
    const bool sinks = call_.options.sinks.data != nullptr;
    const Scratch upstream =
        has_upstream() ? side_by_side(kernel, gradient_.d_statistics) : scratch(0);
    const Scratch d_sinks = scratch(sinks ? call_.rows() : 0);
    const Scratch norms =
        scratch(plan.norms ? call_.batch() * call_.kv_heads() * call_.in.keys() : 0);
    passed["norms"] = plan.norms ? norms.at() : terms;
    if (plan.norms) launch_norms(*plan.norms, passed);
    passed["d_statistics"] = has_upstream() ? upstream.at() : terms;
    passed["d_sinks"] = sinks ? d_sinks.at() : terms;
    passed["dilation"] = call_.plan.dilation;
    const std::int64_t blocks = blocks_of(call_.queries(), kernel.constant("ROWS"));
    launch(plan.rows, {.x = blocks * call_.batch() * call_.heads()}, passed, call_.stream);
    if (plan.sink) launch(*plan.sink, {.x = call_.heads()}, passed, call_.stream);
  }

  // key_bounds: bounds of products with keys, if there are some.
  void launch_tiles(const Plan& plan, Arguments passed, const Rows& rows,
                    Address key_bounds) const {
    const std::int64_t lanes = call_.batch() * call_.heads();
    const auto query_blocks = [&](const Loaded& loaded) {
      return blocks_of(call_.queries(), loaded.kernel->constant("SHAPE.ROWS")) * lanes;
    };
    if (plan.largest_key) {
      passed["place"] = plan.rows.kernel->constant("WANTED.MAX_LOGIT");
      launch(*plan.largest_key, {.x = query_blocks(*plan.largest_key)}, passed, call_.stream);
    }
    const Kernel& by_key = *plan.by_key.front().first.kernel;
    const std::int64_t tiles = blocks_of(call_.in.keys(), by_key.constant("SHAPE.KEYS"));
    const Scratch spans = scratch(rows.batches * tiles * 4);
    passed["tiles"] = rows.tiles;
    passed["spans"] = spans.at();
    launch(plan.spans, {.x = rows.batches * tiles}, passed, call_.stream);

    add_strides(passed, "r", result_.dq.strides);
    launch(plan.by_query, {.x = query_blocks(plan.by_query.first)}, passed, call_.stream);
    if (key_bounds != 0) passed["bounds"] = key_bounds;
    add_key_strides(passed);
    for (const Repaired& kernels : plan.by_key) {
      launch(kernels, {.x = tiles * call_.batch() * call_.kv_heads()}, passed, call_.stream);
    }
  }

  void zero_sinks() const {
    const auto& d_sinks = result_.d_sinks;
    fill(address_of(d_sinks.data), 0, d_sinks ? d_sinks.extents[0] : 0, call_.stream);
  }

  void zero_all() const {
    for (const Tensor* tensor : {&result_.dq, &result_.dk, &result_.dv})
      zero(*tensor, call_.stream);
    fill(address_of(result_.d_lambda.data), 0, result_.d_lambda ? call_.rows() : 0, call_.stream);
    zero_sinks();
  }

  const Call& call_;
  const AttentionGradientInput& gradient_;
  const AttentionGradients& result_;
};

}  // namespace

void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const Place& place) {
  Device::State& device = place.device.state();
  const Current current(device.context());
  check_backward(input, options, gradient, result, device.ordinal());
  Backward({input, options, device, place.stream}, gradient, result).run();
}

}  // namespace isentrope::cuda
