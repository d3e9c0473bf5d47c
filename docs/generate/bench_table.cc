// Tables of speed: Isentrope beside the best peer of each row, on one thread.

#include <fmt/core.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "tools/report/bench.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;
using report::system_of;

// Returns whether a length is shown for its kind of work; bench.json has more.
bool is_shown(const json& work) {
  const auto keys = work.at("keys").get<std::int64_t>();
  return keys == 64 || keys == 2048 || work.at("kind") == "entropy" ||
         (work.at("kind") == "decode" && keys == 8192);
}

std::string percent(const json& value) {
  return value.is_null() ? "" : fmt::format("{:.0f} %", 100 * value.get<double>());
}

}  // namespace

std::string bench_table(const std::filesystem::path& bench_file) {
  const json bench = json::parse(std::ifstream(bench_file));
  const json& run = bench.at("runs").at(0);
  Rows rows = {
      {"work", "Isentrope", "best peer", "ratio", "of the limit", "error", "peer's error"}};
  for (const json& row : run.at("rows")) {
    if (!is_shown(row.at("work"))) continue;
    const std::string peer = row.at("best_peer").get<std::string>();
    const json &ours = system_of(row, "isentrope"), &best = system_of(row, peer);
    const auto rate = [](const json& system) { return system.at("rate").get<double>() / 1e9; };
    rows.push_back({row.at("work").at("name").get<std::string>(), fmt::format("{:.0f}", rate(ours)),
                    fmt::format("{:.0f} ({})", rate(best), peer),
                    fmt::format("{:.2f}", row.at("ratio").get<double>()),
                    percent(row.at("of_limit")),
                    fmt::format("{:.1e}", ours.at("error").get<double>()),
                    fmt::format("{:.1e}", best.at("error").get<double>())});
  }
  return markdown_table(rows) + fmt::format("\n{}, one thread, {}.\n",
                                            bench.at("machine").get<std::string>(),
                                            bench.at("date").get<std::string>());
}

std::string watched_step_table(const std::filesystem::path& bench_file) {
  const json steps = json::parse(std::ifstream(bench_file)).at("training_step");
  Rows rows = {{"watched by", "attention", "over a step that nothing watches", "quartiles"}};
  for (const json& row : steps.at("rows")) {
    const json& quartiles = row.at("quartiles");
    rows.push_back({row.at("watcher").get<std::string>(), row.at("function").get<std::string>(),
                    fmt::format("{:.3f}", row.at("ratio").get<double>()),
                    fmt::format("{:.3f} to {:.3f}", quartiles.at(0).get<double>(),
                                quartiles.at(1).get<double>())});
  }
  return markdown_table(rows) +
         fmt::format("\n{}, one thread, {} rounds, {}.\n", steps.at("machine").get<std::string>(),
                     steps.at("rounds").get<int>(), steps.at("date").get<std::string>());
}

}  // namespace isentrope::docs
