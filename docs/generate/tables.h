// Generated parts of the documentation: Markdown tables by the name of their place, and figures.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/report/line_chart.h"

namespace isentrope::docs {

using Rows = std::vector<std::vector<std::string>>;

// Returns | a | b | ..., with the first row as the head.
[[nodiscard]] std::string markdown_table(const Rows& rows);

[[nodiscard]] double mean(const std::vector<double>& numbers);

// Returns "−0.118 [−0.163, −0.073]": mean of paired differences and its 95 % interval.
[[nodiscard]] std::string with_interval(double mean, double low, double high, int decimals);
[[nodiscard]] std::string with_interval(const std::vector<double>& differences, int decimals);

// Tables of scale-rules.md and theory.md.
[[nodiscard]] std::map<std::string, std::string> rule_tables();
[[nodiscard]] std::map<std::string, std::string> theory_tables();

// The constructors of python/isentrope/rules.py.
[[nodiscard]] std::map<std::string, std::string> rule_constructors();

// Tables of the study, for laboratory-tables.md, and its figures by their paths below docs.
[[nodiscard]] std::map<std::string, std::string> study_tables(const std::filesystem::path& docs);
[[nodiscard]] std::map<std::filesystem::path, report::LineChart> study_figures(
    const std::filesystem::path& docs);

// Figures of attention-in-training.md, from the runs of its recipe: docs/results/qk-clip.json.
[[nodiscard]] std::map<std::filesystem::path, report::LineChart> training_figures(
    const std::filesystem::path& docs);

// Tables of the experiments of tools/lab/experiments.
struct ExperimentTables {
  std::string progress;  // progress of each, for laboratory-protocol.md
  std::string declared;  // declared tests of complete ones, for laboratory-tables.md
};
[[nodiscard]] ExperimentTables experiment_tables(const std::filesystem::path& docs);

// Tables of seeds.md: every number printed in the four notes, and the library's.
[[nodiscard]] std::map<std::string, std::string> seeds_tables(const std::filesystem::path& docs);

// Table of seeds.md: models of increasing size up to the note's.
[[nodiscard]] std::string line_table(const std::filesystem::path& docs);

// Part of laboratory.md on the note's experiment by model size: its table and its figure.
[[nodiscard]] std::string notes_size_tables(const std::filesystem::path& docs);
// Entropy of each layer by length in those models, for laboratory-tables.md.
[[nodiscard]] std::string notes_entropy_table(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart notes_size_chart(const std::filesystem::path& docs);

// Tables of numerics.md, from the measurements of `make numerics`: docs/results/numerics.json.
[[nodiscard]] std::map<std::string, std::string> numerics_tables(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart error_over_budget_chart(const std::filesystem::path& docs);

// Tables of calibrate-tables.md, from the study of two models: docs/results/calibrate-*.json.
[[nodiscard]] std::map<std::string, std::string> calibration_tables(
    const std::filesystem::path& docs);

// Tables of calibrate-tables.md: the study across models, as far as it is judged.
[[nodiscard]] std::map<std::string, std::string> calibration_models_tables(
    const std::filesystem::path& docs);

// Table of theory.md, from the measurements of `make inspect-bases`:
// docs/results/head-bases-smollm2.json.
[[nodiscard]] std::map<std::string, std::string> head_bases_tables(
    const std::filesystem::path& docs);
[[nodiscard]] report::LineChart head_bases_chart(const std::filesystem::path& docs);

// The table of speed in bench.md, from a bench.json.
[[nodiscard]] std::string bench_table(const std::filesystem::path& bench_file);

// Training steps of a bench.json, each with its ratio and spread, for bench.md.
[[nodiscard]] std::string watched_step_table(const std::filesystem::path& bench_file);

// Table of a GPU's bench.json, in TFLOP/s, decode steps in GB/s.
[[nodiscard]] std::string device_table(const std::filesystem::path& file);

// The README's table of speed: rows of the bench.json of a CPU and of a GPU.
[[nodiscard]] std::string speed_table(const std::filesystem::path& cpu,
                                      const std::filesystem::path& gpu);

// A chart as a small SVG file: lines, axes and names.
[[nodiscard]] std::string figure(const report::LineChart& chart);

}  // namespace isentrope::docs
