// Tables of the study of calibrated gains, from docs/results/calibrate-*.json, one file a model.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "docs/generate/tables.h"
#include "tools/report/numbers.h"

namespace isentrope::docs {
namespace {

using nlohmann::json;
using report::decimal;
using report::signed_decimal;

std::vector<json> studies_of(const std::filesystem::path& docs) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(docs / "results"))
    if (entry.path().filename().string().starts_with("calibrate-")) files.insert(entry.path());
  std::vector<json> studies;
  for (const auto& file : files) studies.push_back(json::parse(std::ifstream(file)));
  return studies;
}

void flatten(const json& numbers, std::vector<double>& to) {
  if (!numbers.is_array()) return to.push_back(report::number_of(numbers));
  for (const json& number : numbers) flatten(number, to);
}

std::vector<double> flat(const json& numbers) {
  std::vector<double> found;
  flatten(numbers, found);
  return found;
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const double mean_x = mean(x), mean_y = mean(y);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xy / std::sqrt(xx * yy);
}

// Agreement of the gains by head between one text and the others.
std::string agreement(const json& texts, std::size_t text, const std::string& stretch) {
  std::string found;
  const auto gains_of = [&](std::size_t i) {
    return flat(texts[i].at("gains").at(stretch).at("by_head"));
  };
  for (std::size_t other = 0; other < texts.size(); ++other) {
    if (other == text) continue;
    found += found.empty() ? "" : ", ";
    found += decimal(correlation(gains_of(text), gains_of(other)), 2);
  }
  return found;
}

std::string gains_table(const std::vector<json>& studies) {
  Rows rows = {{"model", "text", "stretch", "ln gain", "mean of head gains", "Newton steps",
                "correlation of head gains with those of the other texts"}};
  for (const json& study : studies) {
    const json& texts = study.at("texts");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      for (const auto& [stretch, gains] : texts[i].at("gains").items()) {
        rows.push_back({study.at("model"), texts[i].at("text"), stretch,
                        decimal(gains.at("single"), 3), decimal(gains.at("mean_by_head"), 3),
                        std::to_string(gains.at("steps").size() - 1),
                        agreement(texts, i, stretch)});
      }
    }
  }
  return markdown_table(rows);
}

// Returns the mean entropy of all heads at a position; "–" if the passage ends before it.
std::string entropy_at(const json& state, const std::string& position) {
  return state.contains(position) ? decimal(mean(flat(state.at(position))), 2) : "–";
}

std::string heads_table(const std::vector<json>& studies) {
  Rows rows = {{"model", "text", "heads", "dH/d ln n > 0.5", "< 0.2", "RoPE",
                "H at the trained length", "H at 1.5 times that"}};
  for (const json& study : studies) {
    for (const json& text : study.at("texts")) {
      const json& heads = text.at("heads");
      const std::vector<double> slopes = flat(heads.at("slope"));
      const std::string trained = heads.at("unstretched").begin().key(),
                        longer = std::to_string(std::stoll(trained) * 3 / 2);
      const auto count = [&](auto&& holds) {
        return std::to_string(std::count_if(slopes.begin(), slopes.end(), holds));
      };
      for (const auto& [state, entropies] : heads.items()) {
        if (state == "slope") continue;
        rows.push_back({study.at("model"), text.at("text"), std::to_string(slopes.size()),
                        count([](double slope) { return slope > 0.5; }),
                        count([](double slope) { return slope < 0.2; }), state,
                        entropy_at(entropies, trained), entropy_at(entropies, longer)});
      }
    }
  }
  return markdown_table(rows);
}

std::string error_of(const json& difference) {
  const std::string blocks = decimal(difference.at("se"), 3);
  const json& passages = difference.at("se_passages");
  return passages.is_null() ? blocks : blocks + ", " + decimal(passages, 3);
}

// Adds one row a method: the loss of the reference, and differences of the others.
void add_losses(Rows& rows, const json& differences) {
  const std::string against = differences.front().at("method");
  std::string method;
  for (const json& difference : differences) {
    if (difference.at("method") != method) {
      method = difference.at("method");
      rows.push_back({method});
    }
    rows.back().push_back(
        method == against ? decimal(difference.at("mean"), 3) + " nats"
                          : fmt::format("{} ± {}", signed_decimal(difference.at("difference"), 3),
                                        error_of(difference)));
  }
}

// Returns one table a model, because models have different bins.
std::string losses_tables(const std::vector<json>& studies, const std::string& against) {
  std::string tables;
  for (const json& study : studies) {
    Rows rows;
    for (const json& group : study.at("nll")) {
      if (!group.contains(against)) continue;
      const json& differences = group.at(against);
      if (rows.empty()) {
        rows = {{study.at("model")}};
        for (const json& bin : differences) {
          if (bin.at("method") != differences.front().at("method")) break;
          rows.front().push_back(report::from_to(bin.at("from"), bin.at("to")));
        }
      }
      add_losses(rows, differences);
    }
    tables += (tables.empty() ? "" : "\n") + markdown_table(rows);
  }
  return tables;
}

}  // namespace

std::map<std::string, std::string> calibration_tables(const std::filesystem::path& docs) {
  const std::vector<json> studies = studies_of(docs);
  return {{"calibration-gains", gains_table(studies)},
          {"calibration-heads", heads_table(studies)},
          {"calibration-losses", losses_tables(studies, "no gain")},
          {"calibration-optimum", losses_tables(studies, "one gain")}};
}

}  // namespace isentrope::docs
