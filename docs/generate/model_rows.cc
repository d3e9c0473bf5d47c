// Rows of the README's table of speed that time whole models, from the record of `make
// bench-models`.

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

// Returns the system's seconds over those of isentrope, round by round.
std::vector<double> ratios_of(const json& peer, const json& ours) {
  const auto theirs = peer.at("repetitions").get<std::vector<double>>();
  auto ratios = ours.at("repetitions").get<std::vector<double>>();
  std::ranges::transform(theirs, ratios, ratios.begin(), std::divides<>());
  return ratios;
}

}  // namespace

Rows model_rows(const std::filesystem::path& file,
                const std::function<bool(std::string_view)>& is_shown) {
  const json record = json::parse(std::ifstream(file));
  Rows rows;
  for (const json& row : record.at("rows")) {
    if (!is_shown(row.at("work").get<std::string>())) continue;
    const json& peer = row.at("systems").at(0);
    const json& ours = row.at("systems").at(1);
    const auto rate = [&](const json& system) {
      return row.at("tokens").get<double>() / system.at("seconds").get<double>();
    };
    const auto [low, high] = std::ranges::minmax(ratios_of(peer, ours));
    const std::string dtype = row.at("dtype") == "float32" ? "f32" : "bf16";
    rows.push_back({fmt::format("{}: {} {}", row.at("engine").get<std::string>(),
                                row.at("work").get<std::string>(), dtype),
                    "CPU", fmt::format("{:.0f} tokens/s", rate(ours)),
                    fmt::format("{:.0f} ({})", rate(peer), peer.at("name").get<std::string>()),
                    fmt::format("{:.2f} [{:.2f}, {:.2f}]", rate(ours) / rate(peer), low, high)});
  }
  return rows;
}

std::string models_table(const std::filesystem::path& file) {
  Rows rows = {{"work", "on", "isentrope", "its own attention", "ratio"}};
  std::ranges::move(model_rows(file, [](std::string_view) { return true; }),
                    std::back_inserter(rows));
  return markdown_table(rows) + fmt::format("\n{}.\n", models_machine(file));
}

std::string models_machine(const std::filesystem::path& file) {
  const json record = json::parse(std::ifstream(file));
  return fmt::format("{}, {} threads, {}", record.at("machine").get<std::string>(),
                     record.at("threads").get<int>(), record.at("date").get<std::string>());
}

}  // namespace isentrope::docs
