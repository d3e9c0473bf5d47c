// isentrope bench: times problems on each instruction set, and prints their plan.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cpu/limits.h"
#include "isentrope/error.h"
#include "isentrope/target.h"
#include "src/cpu/plan.h"
#include "src/cpu/product/pair_kernels.h"
#include "tools/check/measure.h"
#include "tools/cli/commands.h"
#include "tools/cli/problems.h"
#include "tools/command/arguments.h"
#include "tools/command/run.h"

namespace isentrope::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> lines, targets;
  std::string compared;
  int repetitions = 7;
  bool all_threads = false, explain = false, limits = false, json = false;
};

struct Timing {
  std::string target;
  std::vector<double> seconds{};
  Limits limits{};

  [[nodiscard]] double median() const { return check::median_of(seconds); }
  // Returns the median absolute deviation of the repetitions.
  [[nodiscard]] double deviation() const {
    std::vector<double> distances;
    for (const double value : seconds) distances.push_back(std::abs(value - median()));
    return check::median_of(distances);
  }
};

// Repetitions alternate between the targets, so that disturbances affect all of them alike.
std::vector<Timing> time_problem(check::PreparedCall& call, const BenchArguments& arguments) {
  std::vector<Timing> timings;
  for (const std::string& target : arguments.targets) timings.push_back({.target = target});
  for (Timing& timing : timings) {
    use_target(timing.target);
    timing.limits = measure_limits();
    call.run();
  }
  for (int repetition = 0; repetition < arguments.repetitions; ++repetition) {
    for (Timing& timing : timings) {
      use_target(timing.target);
      timing.seconds.push_back(call.run());
    }
  }
  use_target(supported_targets().front());
  return timings;
}

// Returns the peak multiplications and additions a second: of bf16 dot products if the problem uses
// them.
double peak_of(const check::Problem& problem, const Limits& limits) {
  return problem.type == DType::bf16 && limits.bf16_flops > 0 ? limits.bf16_flops : limits.flops;
}

// Returns the least seconds of one thread: products at the peak and weights at their own rate.
// Weights are f32, and so are their products.
double predicted(const check::Problem& problem, const check::Work& work, const Limits& limits) {
  return work.from_inputs / peak_of(problem, limits) +
         (work.flops - work.from_inputs) / limits.flops + work.scores / limits.exps;
}

nlohmann::json json_of(const check::Problem& problem, const Timing& timing,
                       const check::Work& work) {
  return {{"target", timing.target},
          {"seconds", timing.median()},
          {"deviation", timing.deviation()},
          {"repetitions", timing.seconds},
          {"gflops", work.flops / timing.median() / 1e9},
          {"peak_gflops", peak_of(problem, timing.limits) / 1e9},
          {"predicted_seconds", predicted(problem, work, timing.limits)}};
}

nlohmann::json json_of(const TilePlan& plan) {
  return {{"work_items", plan.items()},
          {"tasks", plan.tasks()},
          {"block_rows", plan.block_rows},
          {"blocks", plan.blocks},
          {"splits", plan.splits},
          {"keys_of_split", plan.split},
          {"items_per_task", plan.items_per_task}};
}

TilePlan forward_plan(const check::Problem& p) {
  return plan_forward(p.batch, p.kv_heads, p.heads / std::max<std::int64_t>(p.kv_heads, 1),
                      p.queries, p.keys);
}
TilePlan backward_plan(const check::Problem& p) {
  return plan_backward(p.batch, p.kv_heads, p.heads / std::max<std::int64_t>(p.kv_heads, 1),
                       p.queries, p.keys);
}

void explain(const char* name, const char* rows, const TilePlan& plan) {
  fmt::print("  {}: {} tasks of {} work items each, {} in all, in the order of batch, head, {}\n",
             name, plan.tasks(), plan.items_per_task, plan.items(), rows);
  fmt::print("    a work item: up to {} {} for one key head and the query heads that share it\n",
             std::min(plan.block_rows, plan.rows), rows);
  if (plan.splits > 1) {
    fmt::print("    and {} of {} keys; the {} splits are merged in order\n", plan.split, plan.keys,
               plan.splits);
  }
}

void explain_tiles(const std::string& target) {
  use_target(target);
  const TileSizes sizes = tile_sizes();
  fmt::print("  {}: register tile of {} rows x {} columns; scores in tiles of {} keys\n", target,
             sizes.register_rows, sizes.panel_columns, sizes.block_keys);
}

void print_timings(const check::Problem& problem, const check::Work& work,
                   const std::vector<Timing>& timings, const BenchArguments& arguments) {
  const auto base = std::find_if(timings.begin(), timings.end(),
                                 [&](const Timing& t) { return t.target == arguments.compared; });
  fmt::print("  {:<8} {:>11} {:>7} {:>9} {:>8} {:>12}{}\n", "target", "median ms", "+-", "GFLOP/s",
             "of peak", "predicted ms",
             base == timings.end() ? "" : fmt::format("  time/{}", base->target));
  for (const Timing& timing : timings) {
    const double seconds = timing.median(), rate = work.flops / seconds;
    fmt::print("  {:<8} {:>11.4f} {:>6.1f}% {:>9.1f} {:>7.0f}% {:>12.4f}", timing.target,
               seconds * 1e3, 100 * timing.deviation() / seconds, rate / 1e9,
               100 * rate / peak_of(problem, timing.limits),
               predicted(problem, work, timing.limits) * 1e3);
    if (base != timings.end()) fmt::print("  {:.2f}", seconds / base->median());
    fmt::print("\n");
  }
}

void show(const check::Problem& problem, const check::Work& work,
          const std::vector<Timing>& timings, const BenchArguments& arguments) {
  fmt::print("{}\n", text_of(problem));
  if (arguments.explain) {
    explain("forward", "queries", forward_plan(problem));
    if (problem.backward) explain("backward", "keys", backward_plan(problem));
    for (const Timing& timing : timings) explain_tiles(timing.target);
    if (size_of(problem.type) == 2)
      fmt::print("  products of {} with vectors of {} bytes: {}\n", name_of(problem.type),
                 bytes_of_pair_vectors(), explain_pair_kernels(problem.type));
    use_target(supported_targets().front());
  }
  print_timings(problem, work, timings, arguments);
}

nlohmann::json json_of(const check::Problem& problem, const check::Work& work,
                       const std::vector<Timing>& timings, const BenchArguments& arguments) {
  nlohmann::json result{{"problem", text_of(problem)},
                        {"threads", arguments.all_threads ? "all" : "one"},
                        {"flops", work.flops},
                        {"plan", json_of(forward_plan(problem))}};
  if (problem.backward) result["backward_plan"] = json_of(backward_plan(problem));
  if (size_of(problem.type) == 2)
    result[std::string(name_of(problem.type)) + "_products"] = explain_pair_kernels(problem.type);
  for (const Timing& timing : timings) result["timings"].push_back(json_of(problem, timing, work));
  return result;
}

void show_limits(const BenchArguments& arguments) {
  nlohmann::json json;
  if (!arguments.json) {
    fmt::print("{:<8} {:>9} {:>13} {:>10}\n", "target", "GFLOP/s", "bf16 GFLOP/s", "exp 10^9/s");
  }
  for (const std::string& target : arguments.targets) {
    use_target(target);
    const Limits limits = measure_limits();
    if (!arguments.json) {
      fmt::print("{:<8} {:>9.1f} {:>13.1f} {:>10.2f}\n", target, limits.flops / 1e9,
                 limits.bf16_flops / 1e9, limits.exps / 1e9);
    }
    json["targets"].push_back({{"target", target},
                               {"flops", limits.flops},
                               {"bf16_flops", limits.bf16_flops},
                               {"exps", limits.exps}});
  }
  use_target(supported_targets().front());
  const double memory = measure_memory_read();
  json["memory_read"] = memory;
  if (arguments.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("memory read {:.1f} GB/s\n", memory / 1e9);
  }
}

// Returns the targets to time: the requested ones or all, and the baseline.
std::vector<std::string> targets_of(const BenchArguments& arguments) {
  std::vector<std::string> targets = arguments.targets;
  if (targets.empty()) targets = supported_targets();
  if (!arguments.compared.empty() &&
      std::find(targets.begin(), targets.end(), arguments.compared) == targets.end()) {
    targets.push_back(arguments.compared);
  }
  for (const std::string& target : targets) use_target(target);  // throws for a wrong name
  return targets;
}

void run_bench(BenchArguments arguments) {
  if (arguments.lines.empty() && !arguments.limits) {
    throw Error("a problem LINE or --limits must be given");
  }
  arguments.targets = targets_of(arguments);
  if (arguments.limits) return show_limits(arguments);
  const ParallelFor threads =
      arguments.all_threads ? ParallelFor(run_on_pool) : ParallelFor(run_serially);
  nlohmann::json results = nlohmann::json::array();
  for (const std::string& line : arguments.lines) {
    check::PreparedCall call(problem_of(line), threads);
    const check::Work work = check::work_of(call.data());
    const std::vector<Timing> timings = time_problem(call, arguments);
    if (arguments.json) {
      results.push_back(json_of(call.data().problem, work, timings, arguments));
    } else {
      show(call.data().problem, work, timings, arguments);
    }
  }
  if (arguments.json) fmt::print("{}\n", results.dump(2));
}

}  // namespace

int bench_command(int argc, char** argv) {
  CLI::App app(
      "Times problems, with all statistics, on each instruction set of this machine. Problems are "
      "written as for\n"
      "isentrope check; with bwd=1 forward and backward are timed together. Example:\n"
      "isentrope bench 'dt=bf16 shape=1x8x2048x2048x64 mask=causal:bottom_right' --compare-target "
      "AVX2",
      "isentrope bench");
  BenchArguments arguments;
  app.add_option("LINE", arguments.lines, "a problem, as one argument");
  app.add_option("--targets", arguments.targets, "instruction sets, such as AVX3,AVX2 (all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--compare-target", arguments.compared,
                 "show times relative to this instruction set");
  app.add_option("--repetitions", arguments.repetitions,
                 "timed repetitions, of which the median is shown")
      ->check(command::whole_number(1, 1000))
      ->capture_default_str();
  app.add_flag("--all-threads", arguments.all_threads,
               "use all threads of the library instead of one");
  app.add_flag("--explain", arguments.explain, "show the plan: tasks and their order, tiles");
  app.add_flag("--limits", arguments.limits,
               "measure the limits of this machine instead of problems");
  app.add_flag("--json", arguments.json, "print JSON");
  app.callback([&] { run_bench(arguments); });
  return command::run(app, argc, argv);
}

}  // namespace isentrope::cli
