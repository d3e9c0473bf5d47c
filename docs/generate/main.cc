// Writes the generated parts of docs/ and of the Python package, between <!-- begin NAME --> and
// <!-- end NAME -->, and the figures. With --check, lists the files that are out of date and fails.

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>

#include "docs/generate/tables.h"
#include "tools/report/law_charts.h"

namespace {

namespace fs = std::filesystem;
using isentrope::ScaleRule;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string filled(std::string page, const std::map<std::string, std::string>& tables) {
  for (const auto& [name, table] : tables) {
    const std::string begin = "<!-- begin " + name + " -->\n", end = "<!-- end " + name + " -->";
    const auto from = page.find(begin), to = page.find(end);
    if (from == std::string::npos || to == std::string::npos)
      throw std::runtime_error("no place for " + name);
    page.replace(from + begin.size(), to - from - begin.size(), table);
  }
  return page;
}

std::map<fs::path, std::string> figures(const fs::path& docs) {
  namespace report = isentrope::report;
  const report::Comparison rules{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(), ScaleRule::grad_max_normal(),
       ScaleRule::scaled({2.5}), ScaleRule::log_length()},
      {16, 64, 256, 1024, 4096, 16384, 65536, 262144},
      64,
      0};
  const report::Comparison bases{
      {ScaleRule::standard(), ScaleRule::entropy_invariant(512), ScaleRule::entropy_invariant(64),
       ScaleRule::entropy_invariant(8), ScaleRule::entropy_invariant(4.5)},
      {64, 256, 1024, 4096, 16384},
      64,
      0};
  const auto svg = [](const report::LineChart& chart) { return isentrope::docs::figure(chart); };
  std::map<fs::path, std::string> files = {
      {docs / "figures/error-over-budget.svg", svg(isentrope::docs::error_over_budget_chart(docs))},
      {docs / "figures/notes-size.svg", svg(isentrope::docs::notes_size_chart(docs))},
      {docs / "figures/normal-optimum.svg", svg(report::normal_optimum_chart())},
      {docs / "figures/cosine-optimum.svg", svg(report::cosine_optimum_chart(128))},
      {docs / "figures/entropy-law.svg", svg(report::entropy_law_chart(512, 64))},
      {docs / "figures/entropy.svg", svg(report::entropy_chart(rules))},
      {docs / "figures/entropy-held.svg", svg(report::entropy_chart(bases))},
      {docs / "figures/entropy-heads.svg", svg(isentrope::docs::head_bases_chart(docs))},
      {docs / "figures/starved.svg", svg(report::starved_chart(rules))}};
  for (const auto& [path, chart] : isentrope::docs::study_figures(docs))
    files[docs / path] = svg(chart);
  for (const auto& [path, chart] : isentrope::docs::training_figures(docs))
    files[docs / path] = svg(chart);
  return files;
}

// Returns each generated file and its expected content; figures() does so for figures.
std::map<fs::path, std::string> wanted(const fs::path& docs) {
  const isentrope::docs::ExperimentTables experiments = isentrope::docs::experiment_tables(docs);
  const fs::path readme = docs / "../README.md", rules_py = docs / "../python/isentrope/rules.py";
  std::map<fs::path, std::string> files = {
      {readme,
       filled(read(readme),
              {{"speed", isentrope::docs::speed_table(
                             docs / "results/bench-models.json", docs / "results/bench.json",
                             docs / "results/gpu-h200.json", docs / "results/llama-cpp.json")}})},
      {docs / "recipes/llama-cpp.md",
       filled(read(docs / "recipes/llama-cpp.md"),
              {{"bench with llama.cpp",
                isentrope::docs::llama_table(docs / "results/llama-cpp.json")}})},
      {docs / "gpu.md",
       filled(read(docs / "gpu.md"),
              {{"bench on a GPU", isentrope::docs::device_table(docs / "results/gpu-h200.json")}})},
      {rules_py, filled(read(rules_py), isentrope::docs::rule_constructors())},
      {docs / "scale-rules.md",
       filled(read(docs / "scale-rules.md"), isentrope::docs::rule_tables())},
      {docs / "bench.md",
       filled(
           read(docs / "bench.md"),
           {{"compared", isentrope::docs::compared_table(docs / "results/bench.json",
                                                         docs / "results/bench-amx.json")},
            {"derivatives", isentrope::docs::derivatives_table(docs / "results/bench-amd.json")},
            {"models", isentrope::docs::models_table(docs / "results/bench-models.json")},
            {"watched steps", isentrope::docs::watched_step_table(docs / "results/bench.json")}})},
      {docs / "bench-tables.md",
       filled(read(docs / "bench-tables.md"),
              {{"bench", isentrope::docs::bench_table(docs / "results/bench.json")},
               {"bench on AMD", isentrope::docs::bench_table(docs / "results/bench-amd.json")},
               {"bench with AMX", isentrope::docs::bench_table(docs / "results/bench-amx.json")}})},
      {docs / "calibrate-tables.md",
       filled(filled(read(docs / "calibrate-tables.md"), isentrope::docs::calibration_tables(docs)),
              isentrope::docs::calibration_models_tables(docs))},
      {docs / "contributors/numerics.md",
       filled(read(docs / "contributors/numerics.md"), isentrope::docs::numerics_tables(docs))},
      {docs / "laboratory.md", filled(read(docs / "laboratory.md"),
                                      {{"notes-size", isentrope::docs::notes_size_tables(docs)}})},
      {docs / "laboratory-protocol.md",
       filled(read(docs / "laboratory-protocol.md"), {{"experiments", experiments.progress}})},
      {docs / "laboratory-tables.md",
       filled(filled(read(docs / "laboratory-tables.md"), isentrope::docs::study_tables(docs)),
              {{"declared-tests", experiments.declared},
               {"notes-entropy", isentrope::docs::notes_entropy_table(docs)}})},
      {docs / "seeds.md", filled(read(docs / "seeds.md"), isentrope::docs::seeds_tables(docs))},
      {docs / "theory.md",
       filled(filled(read(docs / "theory.md"), isentrope::docs::theory_tables()),
              isentrope::docs::head_bases_tables(docs))}};
  files.merge(figures(docs));
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string(argv[2]) == "--check";
  if (argc != 2 && !check) {
    fmt::print(stderr, "usage: isentrope_generate_docs DOCS [--check]\n");
    return 2;
  }
  int stale = 0;
  for (const auto& [path, text] : wanted(argv[1])) {
    if (read(path) == text) continue;
    ++stale;
    fmt::print("{}{}\n", check ? "not current, build the target docs: " : "", path.string());
    if (check) continue;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  return check && stale > 0 ? 1 : 0;
}
