// The README's table of speed: some CPU rows and GPU rows beside the best peer of each.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "docs/generate/bench_rows.h"
#include "docs/generate/tables.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kOnCpu = {
    "forward 1 x 8 x 2048 x 64 bf16 full", "forward 1 x 8 x 2048 x 64 bf16 causal",
    "gradient 1 x 8 x 2048 x 64 bf16 causal", "entropy 1 x 8 x 4096 x 64 bf16 full",
    "decode 1 x 32:8 x 8192 x 128 bf16 full"};
constexpr std::array<std::string_view, 3> kOnGpu = {"forward 4 x 16 x 4096 x 128 bf16 causal",
                                                    "gradient 4 x 16 x 4096 x 128 bf16 causal",
                                                    "decode 8 x 32:8 x 32768 x 128 bf16 full"};

struct Record {
  json bench;
  std::string place;
  std::string_view ours;
};

bool is_peer(const json& system) {
  return !system.at("name").get<std::string>().starts_with("isentrope");
}

std::vector<std::string> cells(const Record& record, std::string_view work) {
  const json& row = row_of(record.bench, work);
  const json& systems = row.at("systems");
  const auto rate = [](const json& system) { return system.at("rate").get<double>(); };
  const auto ours = std::ranges::find(systems, record.ours, [](const json& system) {
    return system.at("name").get<std::string>();
  });
  const json* best = nullptr;
  for (const json& system : systems)
    if (is_peer(system) && (!best || rate(system) > rate(*best))) best = &system;
  const bool tera = rate(*ours) >= 1e13;
  const auto shown = [&](const json& system) {
    return fmt::format("{:.0f}", rate(system) / (tera ? 1e12 : 1e9));
  };
  const std::string unit = row.at("work").at("kind") == "decode" ? "GB/s"
                           : tera                                ? "TFLOP/s"
                                                                 : "GFLOP/s";
  return {std::string(work), record.place, fmt::format("{} {}", shown(*ours), unit),
          fmt::format("{} ({})", shown(*best), best->at("name").get<std::string>()),
          fmt::format("{:.2f}", rate(*ours) / rate(*best))};
}

}  // namespace

std::string speed_table(const std::filesystem::path& cpu, const std::filesystem::path& gpu) {
  const auto read = [](const std::filesystem::path& file) {
    return json::parse(std::ifstream(file));
  };
  const Record on_cpu = {read(cpu), "CPU", "isentrope"},
               on_gpu = {read(gpu), "GPU", "isentrope, lse alone"};
  Rows rows = {{"work", "on", "Isentrope", "best peer", "ratio"}};
  for (const std::string_view work : kOnCpu) rows.push_back(cells(on_cpu, work));
  for (const std::string_view work : kOnGpu) rows.push_back(cells(on_gpu, work));
  const auto named = [](const json& bench) {
    return bench.at("machine").get<std::string>() + ", " + bench.at("date").get<std::string>();
  };
  return markdown_table(rows) +
         fmt::format("\nCPU: {}, one thread. GPU: {}.\n", named(on_cpu.bench), named(on_gpu.bench));
}

}  // namespace isentrope::docs
