// The README's table of speed: some rows of whole models, of CPUs and of GPUs, beside the best peer
// of each. And the table of llama.cpp with the backend and without.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "docs/generate/bench_rows.h"
#include "docs/generate/tables.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kModels = {"prompt of 2048", "decode after 2048",
                                                     "training step of 2048",
                                                     "64 requests of 1 to 3000, 48 new"};
constexpr std::array<std::string_view, 2> kOnCpu = {"gradient 1 x 8 x 2048 x 64 bf16 causal",
                                                    "entropy 1 x 8 x 4096 x 64 bf16 full"};
constexpr std::array<std::string_view, 2> kOnGpu = {"forward 4 x 16 x 4096 x 128 bf16 causal",
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

json read(const std::filesystem::path& file) { return json::parse(std::ifstream(file)); }

// Best rates of a work in the record of llama.cpp, in tokens per second.
struct TokenRates {
  double ours, stock;
};

std::optional<TokenRates> rates_of(const json& record, std::string_view cache,
                                   std::string_view work) {
  const auto best = [](const json& runs) {
    return std::ranges::max(runs.get<std::vector<double>>());
  };
  for (const json& row : record.at("rows"))
    if (row.at("cache") == cache && row.at("work") == work)
      return TokenRates{best(row.at("isentrope")), best(row.at("llama.cpp"))};
  return std::nullopt;
}

std::string machine_of(const json& record) {
  return record.at("machine").get<std::string>() + ", " + record.at("date").get<std::string>();
}

}  // namespace

std::string llama_table(const std::filesystem::path& file) {
  constexpr std::array<std::array<std::string_view, 2>, 4> kWork = {
      {{"p512", "prompt of 512"},
       {"p8192", "prompt of 8,192"},
       {"d0", "first tokens"},
       {"d8192", "next tokens after 8,192"}}};
  const json record = read(file);
  Rows rows = {{"work", "f16", "llama.cpp", "ratio", "bf16", "llama.cpp", "ratio"}};
  for (const auto& [work, name] : kWork) {
    rows.push_back({std::string(name)});
    for (const std::string_view cache : {"f16", "bf16"}) {
      const auto rates = rates_of(record, cache, work);
      if (!rates) {
        rows.back().insert(rows.back().end(), 3, "");
        continue;
      }
      for (const double rate : {rates->ours, rates->stock})
        rows.back().push_back(fmt::format("{:.0f}", rate));
      rows.back().push_back(fmt::format("{:.2f}", rates->ours / rates->stock));
    }
  }
  const std::string about = fmt::format(
      "Tokens per second of {} on {} threads of {}, the best runs of `bench/cpu/llama_cpp.py`; f16 "
      "and bf16 are the types of the cache.\n",
      record.at("model").get<std::string>(), record.at("threads").get<int>(), machine_of(record));
  return markdown_table(rows) + "\n" + about;
}

std::string speed_table(const std::filesystem::path& models, const std::filesystem::path& cpu,
                        const std::filesystem::path& gpu, const std::filesystem::path& llama) {
  const Record on_cpu = {read(cpu), "CPU", "isentrope"},
               on_gpu = {read(gpu), "GPU", "isentrope, lse alone"};
  Rows rows = {{"work", "on", "Isentrope", "best peer", "ratio"}};
  const auto is_shown = [](std::string_view work) {
    return std::ranges::find(kModels, work) != kModels.end();
  };
  std::ranges::move(model_rows(models, is_shown), std::back_inserter(rows));
  const json llama_record = read(llama);
  const auto [ours, stock] = rates_of(llama_record, "f16", "p8192").value();
  rows.push_back({"llama.cpp, prompt of 8,192", "CPU", fmt::format("{:.0f} tokens/s", ours),
                  fmt::format("{:.0f} (llama.cpp)", stock), fmt::format("{:.2f}", ours / stock)});
  for (const std::string_view work : kOnCpu) rows.push_back(cells(on_cpu, work));
  for (const std::string_view work : kOnGpu) rows.push_back(cells(on_gpu, work));
  return markdown_table(rows) +
         fmt::format(
             "\nModels: {}. llama.cpp: {}, {} threads. Other CPU rows: {}, one thread. GPU: {}.\n",
             models_machine(models), machine_of(llama_record),
             llama_record.at("threads").get<int>(), machine_of(on_cpu.bench),
             machine_of(on_gpu.bench));
}

}  // namespace isentrope::docs
