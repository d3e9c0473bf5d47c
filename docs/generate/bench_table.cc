// Tables of speed: Isentrope beside the best peer of each row, on one thread.

#include <fmt/core.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "docs/generate/bench_rows.h"
#include "docs/generate/tables.h"
#include "tools/report/bench.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;
using report::system_of;

// Works that differ most in what limits them.
constexpr std::array<std::string_view, 7> kCompared = {
    "forward 1 x 8 x 2048 x 128 f32 full",    "forward 1 x 8 x 2048 x 128 bf16 full",
    "forward 1 x 8 x 2048 x 128 bf16 causal", "gradient 1 x 8 x 2048 x 64 f32 full",
    "gradient 1 x 8 x 2048 x 64 bf16 causal", "entropy 1 x 8 x 4096 x 64 bf16 full",
    "decode 1 x 32:8 x 8192 x 128 bf16 full"};

// Returns whether a length is shown for its kind of work; bench.json has more.
bool is_shown(const json& work) {
  const auto keys = work.at("keys").get<std::int64_t>();
  return keys == 64 || keys == 2048 || work.at("kind") == "entropy" ||
         (work.at("kind") == "decode" && keys == 8192);
}

std::string percent(const json& value) {
  return value.is_null() ? "" : fmt::format("{:.0f} %", 100 * value.get<double>());
}

// Returns the rates of Isentrope and of the best peer, and their ratio.
std::vector<std::string> rates_of(const json& row) {
  const std::string peer = row.at("best_peer").get<std::string>();
  const auto rate = [&](std::string_view name) {
    return system_of(row, name).at("rate").get<double>() / 1e9;
  };
  return {fmt::format("{:.0f}", rate("isentrope")), fmt::format("{:.0f} ({})", rate(peer), peer),
          fmt::format("{:.2f}", row.at("ratio").get<double>())};
}

std::string error_of(const json& row, std::string_view name) {
  return fmt::format("{:.1e}", system_of(row, name).at("error").get<double>());
}

std::string source(const json& bench) {
  return fmt::format("{}, one thread, {}", bench.at("machine").get<std::string>(),
                     bench.at("date").get<std::string>());
}

}  // namespace

std::string compared_table(const std::filesystem::path& bench_file,
                           const std::filesystem::path& amx_file) {
  const json bench = json::parse(std::ifstream(bench_file)),
             amx = json::parse(std::ifstream(amx_file));
  Rows rows = {{"work", "AVX-512", "best peer", "ratio", "AMX", "best peer", "ratio"}};
  for (const std::string_view work : kCompared) {
    rows.push_back({std::string(work)});
    for (const json* record : {&bench, &amx})
      for (const std::string& cell : rates_of(row_of(*record, work))) rows.back().push_back(cell);
  }
  return markdown_table(rows) + fmt::format("\n{}; {}.\n", source(bench), source(amx));
}

std::string bench_table(const std::filesystem::path& bench_file) {
  const json bench = json::parse(std::ifstream(bench_file));
  const json& run = bench.at("runs").at(0);
  Rows rows = {
      {"work", "Isentrope", "best peer", "ratio", "of the limit", "error", "peer's error"}};
  for (const json& row : run.at("rows")) {
    if (!is_shown(row.at("work"))) continue;
    const std::vector<std::string> rates = rates_of(row);
    rows.push_back({row.at("work").at("name").get<std::string>(), rates[0], rates[1], rates[2],
                    percent(row.at("of_limit")), error_of(row, "isentrope"),
                    error_of(row, row.at("best_peer").get<std::string>())});
  }
  return markdown_table(rows) + fmt::format("\n{}.\n", source(bench));
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

std::string derivatives_table(const std::filesystem::path& bench_file) {
  const json derivatives = json::parse(std::ifstream(bench_file)).at("derivatives");
  Rows rows = {{"call", "`jvp` / forward", "second order / gradient", "torch's math / `jvp`",
                "torch's math / second order"}};
  for (const json& row : derivatives.at("rows")) {
    std::vector<std::string> cells = {row.at("work").get<std::string>()};
    for (const char* name : {"jvp", "second", "math_jvp", "math_second"}) {
      const json& range = row.at(name).at("range");
      cells.push_back(fmt::format("{:.2f} ({:.2f} to {:.2f})",
                                  row.at(name).at("ratio").get<double>(), range.at(0).get<double>(),
                                  range.at(1).get<double>()));
    }
    rows.push_back(cells);
  }
  return markdown_table(rows) + fmt::format("\n{}, one thread, {} rounds, {}.\n",
                                            derivatives.at("machine").get<std::string>(),
                                            derivatives.at("rounds").get<int>(),
                                            derivatives.at("date").get<std::string>());
}

}  // namespace isentrope::docs
