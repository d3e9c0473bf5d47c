// The computed parts of the documentation: Markdown tables by the name of their place, and figures.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/report/line_chart.h"

namespace isentrope::docs {

using Rows = std::vector<std::vector<std::string>>;

// | a | b |, the first row being the head.
[[nodiscard]] std::string markdown_table(const Rows& rows);

[[nodiscard]] double mean(const std::vector<double>& numbers);

// "−0.118 [−0.163, −0.073]": of paired differences the mean and its 95 % interval.
[[nodiscard]] std::string with_interval(double mean, double low, double high, int decimals);
[[nodiscard]] std::string with_interval(const std::vector<double>& differences, int decimals);

// Tables of scale-rules.md and of theory.md.
[[nodiscard]] std::map<std::string, std::string> rule_tables();
[[nodiscard]] std::map<std::string, std::string> theory_tables();

// The constructors of python/isentrope/rules.py.
[[nodiscard]] std::map<std::string, std::string> rule_constructors();

// Of the study, for laboratory-tables.md, and its figures by their paths below docs.
[[nodiscard]] std::map<std::string, std::string> study_tables(const std::filesystem::path& docs);
[[nodiscard]] std::map<std::filesystem::path, report::LineChart> study_figures(
    const std::filesystem::path& docs);

// Figures of attention-in-training.md, from the runs of its recipe: docs/results/qk-clip.json.
[[nodiscard]] std::map<std::filesystem::path, report::LineChart> training_figures(
    const std::filesystem::path& docs);

// Of the experiments of tools/lab/experiments.
struct ExperimentTables {
  std::string progress;  // how far they are, for laboratory-protocol.md
  std::string declared;  // each test that a complete one declared, for laboratory-tables.md
};
[[nodiscard]] ExperimentTables experiment_tables(const std::filesystem::path& docs);

// Of seeds.md: every number the four notes print, and ours.
[[nodiscard]] std::map<std::string, std::string> seeds_tables(const std::filesystem::path& docs);

// Of seeds.md too: the line of models that leads to the note's.
[[nodiscard]] std::string line_table(const std::filesystem::path& docs);

// Writes the part of laboratory.md on the note's experiment by the size of the model: its table and
// its figure.
[[nodiscard]] std::string notes_size_tables(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart notes_size_chart(const std::filesystem::path& docs);

// Of numerics.md, from what `make numerics` measured: docs/results/numerics.json.
[[nodiscard]] std::map<std::string, std::string> numerics_tables(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart error_over_budget_chart(const std::filesystem::path& docs);

// Of calibrate-tables.md, from the study of two models: docs/results/calibrate-*.json.
[[nodiscard]] std::map<std::string, std::string> calibration_tables(
    const std::filesystem::path& docs);

// Of calibrate-tables.md too: the study across models, as far as it is judged.
[[nodiscard]] std::map<std::string, std::string> calibration_models_tables(
    const std::filesystem::path& docs);

// Of theory.md, from what `make inspect-bases` measured: docs/results/head-bases-smollm2.json.
[[nodiscard]] std::map<std::string, std::string> head_bases_tables(
    const std::filesystem::path& docs);
[[nodiscard]] report::LineChart head_bases_chart(const std::filesystem::path& docs);

// The table of speed in bench.md, from a bench.json.
[[nodiscard]] std::string bench_table(const std::filesystem::path& bench_file);

// Rows of the bench.json of a GPU, in TFLOP/s, decode steps in GB/s.
[[nodiscard]] std::string device_table(const std::filesystem::path& file);

// The README's table of speed: rows of the bench.json of a CPU and of a GPU.
[[nodiscard]] std::string speed_table(const std::filesystem::path& cpu,
                                      const std::filesystem::path& gpu);

// A chart as a small SVG file: lines, axes and names.
[[nodiscard]] std::string figure(const report::LineChart& chart);

}  // namespace isentrope::docs
