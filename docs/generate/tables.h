// Generated parts of the documentation: Markdown tables by the name of their place, and figures,
// from the records in docs/results. main.cc says which page has which.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
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

[[nodiscard]] std::map<std::string, std::string> rule_tables();
[[nodiscard]] std::map<std::string, std::string> theory_tables();
[[nodiscard]] std::map<std::string, std::string> rule_constructors();

[[nodiscard]] std::map<std::string, std::string> study_tables(const std::filesystem::path& docs);

// Charts by the paths of their files below docs.
[[nodiscard]] std::map<std::filesystem::path, report::LineChart> study_figures(
    const std::filesystem::path& docs);
[[nodiscard]] std::map<std::filesystem::path, report::LineChart> training_figures(
    const std::filesystem::path& docs);

// Tables of the experiments of tools/lab/experiments.
struct ExperimentTables {
  std::string progress;
  std::string declared;  // declared tests of complete ones
};
[[nodiscard]] ExperimentTables experiment_tables(const std::filesystem::path& docs);

[[nodiscard]] std::map<std::string, std::string> seeds_tables(const std::filesystem::path& docs);
[[nodiscard]] std::string line_table(const std::filesystem::path& docs);

[[nodiscard]] std::string notes_size_tables(const std::filesystem::path& docs);
[[nodiscard]] std::string notes_entropy_table(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart notes_size_chart(const std::filesystem::path& docs);

[[nodiscard]] std::map<std::string, std::string> numerics_tables(const std::filesystem::path& docs);
[[nodiscard]] report::LineChart error_over_budget_chart(const std::filesystem::path& docs);

[[nodiscard]] std::map<std::string, std::string> calibration_tables(
    const std::filesystem::path& docs);
[[nodiscard]] std::map<std::string, std::string> calibration_models_tables(
    const std::filesystem::path& docs);

[[nodiscard]] std::map<std::string, std::string> head_bases_tables(
    const std::filesystem::path& docs);
[[nodiscard]] report::LineChart head_bases_chart(const std::filesystem::path& docs);

[[nodiscard]] std::string compared_table(const std::filesystem::path& bench_file,
                                         const std::filesystem::path& amx_file);
[[nodiscard]] std::string bench_table(const std::filesystem::path& bench_file);
[[nodiscard]] std::string watched_step_table(const std::filesystem::path& bench_file);
[[nodiscard]] std::string derivatives_table(const std::filesystem::path& bench_file);

// Table of a GPU's bench.json, in TFLOP/s, decode steps in GB/s.
[[nodiscard]] std::string device_table(const std::filesystem::path& file);
[[nodiscard]] std::string speed_table(const std::filesystem::path& models,
                                      const std::filesystem::path& cpu,
                                      const std::filesystem::path& gpu,
                                      const std::filesystem::path& llama);

// Table of the record of bench/cpu/llama_cpp.py, in tokens per second.
[[nodiscard]] std::string llama_table(const std::filesystem::path& file);

// Whole models: the rows of the shown works, the table of all, and the machine of their record.
[[nodiscard]] Rows model_rows(const std::filesystem::path& file,
                              const std::function<bool(std::string_view)>& is_shown);
[[nodiscard]] std::string models_table(const std::filesystem::path& file);
[[nodiscard]] std::string models_machine(const std::filesystem::path& file);

// A chart as a small SVG file: lines, axes and names.
[[nodiscard]] std::string figure(const report::LineChart& chart);

}  // namespace isentrope::docs
