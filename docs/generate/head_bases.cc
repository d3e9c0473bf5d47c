// Laws of ln n that keep the entropy of a model's heads, from docs/results/head-bases-smollm2.json.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "docs/generate/tables.h"
#include "tools/report/numbers.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;

json bases_of(const std::filesystem::path& docs) {
  return json::parse(std::ifstream(docs / "results/head-bases-smollm2.json"));
}

// Rules in the order of the table, with the names of their curves.
struct Rule {
  const char *name, *title;
};
constexpr Rule kRules[] = {{"standard", "standard"},
                           {"base 512", "base 512"},
                           {"one base", "one base for all heads, fitted"},
                           {"a base per head", "a base for each head, fitted"},
                           {"a line per head", "a line in ln n for each head, fitted"}};

// Returns the values [layers][heads] of heads with a base and a line, which every rule can use.
std::vector<double> heads_of(const json& found, const json& numbers) {
  std::vector<double> values;
  const json &base = found.at("base"), &line = found.at("line");
  for (std::size_t layer = 0; layer < base.size(); ++layer) {
    for (std::size_t head = 0; head < base[layer].size(); ++head) {
      if (!base[layer][head].is_null() && !line[layer][head].is_null())
        values.push_back(numbers[layer][head]);
    }
  }
  return values;
}

double quantile(std::vector<double> x, double share) {
  std::ranges::sort(x);
  return x[static_cast<std::size_t>(share * static_cast<double>(x.size() - 1) + 0.5)];
}

}  // namespace

std::map<std::string, std::string> head_bases_tables(const std::filesystem::path& docs) {
  const json found = bases_of(docs);
  Rows rows = {{"scale"}};
  for (const json& n : found.at("lengths")) rows[0].push_back("n = " + report::compact(n));
  rows[0].insert(rows[0].end(), {"median of the largest change of each head",
                                 "heads that change by less than 0.25"});
  for (const auto& [name, title] : kRules) {
    const json& by_length = found.at("entropy").at(name);
    rows.push_back({title});
    const std::vector<double> first = heads_of(found, by_length[0]);
    std::vector<double> largest(first.size());
    for (const json& heads : by_length) {
      const std::vector<double> entropy = heads_of(found, heads);
      rows.back().push_back(report::decimal(mean(entropy), 2));
      for (std::size_t i = 0; i < entropy.size(); ++i)
        largest[i] = std::max(largest[i], std::abs(entropy[i] - first[i]));
    }
    const auto kept = std::ranges::count_if(largest, [](double change) { return change < 0.25; });
    rows.back().push_back(report::decimal(quantile(largest, 0.5), 2));
    rows.back().push_back(fmt::format("{} of {}", kept, largest.size()));
  }
  Rows quartiles = {{"fitted", "heads", "lowest tenth", "lower quarter", "median", "upper quarter",
                     "highest tenth"}};
  for (const char* what : {"base", "line"}) {
    const std::vector<double> fitted = heads_of(found, found.at(what));
    quartiles.push_back({what, std::to_string(fitted.size())});
    for (const double share : {0.1, 0.25, 0.5, 0.75, 0.9})
      quartiles.back().push_back(fmt::format("{:.3g}", quantile(fitted, share)));
  }
  return {{"head-bases", markdown_table(quartiles) + "\n" + markdown_table(rows)}};
}

report::LineChart head_bases_chart(const std::filesystem::path& docs) {
  const json found = bases_of(docs);
  report::LineChart chart;
  chart.title = "Entropy of the heads of SmolLM2-135M";
  chart.x_label = "keys a row sees";
  chart.y_label = "entropy, nats, mean of heads";
  chart.x_axis = report::Axis::log2;
  chart.y_from_zero = true;
  for (const auto& [name, title] : kRules) {
    report::Series series{title, found.at("lengths"), {}};
    for (const json& heads : found.at("entropy").at(name))
      series.y.push_back(mean(heads_of(found, heads)));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace isentrope::docs
