// Reports of damaged documents. Whatever replaces a value, the result is a page or an Error of one
// line; never another exception, and never a read outside the document.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "isentrope/error.h"
#include "tests/support/message_of.h"
#include "tests/support/results.h"
#include "tools/report/pages.h"

namespace isentrope::report {
namespace {

using nlohmann::json;

// Lists pointers to every value, containers included.
void pointers_of(const json& value, const json::json_pointer& at,
                 std::vector<json::json_pointer>& all) {
  all.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) pointers_of(member, at / key, all);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) pointers_of(value[i], at / i, all);
  }
}

template <typename Report>
void damage(const json& document, const Report& report) {
  ASSERT_NO_THROW((void)report(document));
  std::vector<json::json_pointer> pointers;
  pointers_of(document, json::json_pointer(), pointers);
  const json replacements[] = {nullptr, true,           -1,          1e308, "text", json::array(),
                               {1, 2},  json::object(), {{"key", 1}}};
  int refused = 0;
  const auto expect_error_at_most = [&](const json& damaged, const std::string& how) {
    try {
      (void)report(damaged);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << how << ": " << error.what();
    }
  };
  for (const json::json_pointer& pointer : pointers) {
    for (const json& replacement : replacements) {
      json damaged = document;
      damaged[pointer] = replacement;
      expect_error_at_most(damaged, pointer.to_string() + " = " + replacement.dump());
    }
    if (pointer.empty()) continue;
    json damaged = document;
    json& parent = damaged[pointer.parent_pointer()];
    if (parent.is_array()) {
      parent.erase(std::stoul(pointer.back()));
    } else {
      parent.erase(pointer.back());
    }
    expect_error_at_most(damaged, pointer.to_string() + " is gone");
  }
  EXPECT_GT(refused, static_cast<int>(pointers.size())) << "damage should be noticed now and then";
}

TEST(DamagedReport, OfAnExtrapolation) {
  json document = json::parse(std::ifstream(RESULT_JSON));
  for (json& rule : document["rules"]) {
    if (rule.contains("loss")) rule["loss"] = {5.5, 4.5, nullptr};
  }
  damage(document, extrapolation_report);
}

TEST(DamagedReport, OfABench) {
  json document = json::parse(std::ifstream(BENCH_JSON));
  // Enough members to draw every plot.
  json& runs = document["runs"];
  runs.erase(runs.begin() + 1, runs.end());
  json& rows = runs[0]["rows"];
  rows.erase(rows.begin() + 3, rows.end());
  for (json& row : rows) {
    auto& systems = row["systems"];
    const json best = row["best_peer"];
    for (std::size_t i = systems.size(); i-- > 0;) {
      if (systems[i]["name"] != "isentrope" && systems[i]["name"] != best) systems.erase(i);
    }
  }
  damage(document, bench_report);
}

TEST(DamagedReport, OfAnInspection) {
  const json document = small_inspection("standard");
  damage(document, inspection_report);
  EXPECT_NE(inspection_report(document).find(">0.57<"), std::string::npos) << "0.625 / ln 3";
  json other = document;
  other["mean"]["distance"].push_back(other["mean"]["distance"][0]);
  EXPECT_EQ(isentrope::message_of([&] { return inspection_report(other); }),
            "[inspection_report] mean.distance must have 1 layers; got 2");
  other = document;
  other["spread"]["entropy"][0].erase(1);
  EXPECT_EQ(isentrope::message_of([&] { return inspection_report(other); }),
            "[inspection_report] spread.entropy must have 2 heads in layer 0; got 1");
}

TEST(DamagedReport, OfACalibration) { damage(small_calibration(), calibration_report); }

TEST(DamagedReport, OfACalibrationWithOtherHeads) {
  json document = small_calibration();
  document["entropy"]["stretched"] = json::array({{1.0, 2.0}});
  EXPECT_EQ(isentrope::message_of([&] { return calibration_report(document); }),
            "[report] entropy must have 2 layers; got 1");
  document["entropy"]["stretched"] = {{1.0, 2.0}, json::array({0.5})};
  EXPECT_EQ(isentrope::message_of([&] { return calibration_report(document); }),
            "[report] entropy must have 2 heads in layer 1; got 1");
}

TEST(DamagedReport, OfAnEvaluation) { damage(small_evaluation(), evaluation_report); }

}  // namespace
}  // namespace isentrope::report
