// Rows: measurements of models that differ only in their seed, from the records of the trainings.
// There is one row for each rule and kind of measurement (tools/lab/measure.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace isentrope::analysis {

// Kinds of rows, in their order.
inline constexpr const char* kKinds[] = {"trained",     "rescaled", "near",        "frozen",
                                         "frozen_near", "growing",  "growing_near"};

// Measures that rows have by length.
inline constexpr const char* kMeasures[] = {"accuracy",      "cross_entropy", "entropy",
                                            "gradient_mass", "distance",      "share_beyond"};

struct RowName {
  std::string rule, kind;

  bool operator==(const RowName&) const = default;
};

struct Row {
  RowName name;
  std::vector<RowName> also{};  // rows with identical numbers
  // By seed: the record, and this row within it. The pointers refer to the records.
  std::vector<const nlohmann::json*> records{}, seeds{};
};

// Returns the rows: trained, rescaled on models of standard, near keys only, then probes. Rows of
// one kind with identical numbers are merged: names of one law, or a probe of the own rule.
[[nodiscard]] std::vector<Row> rows_of(const std::vector<nlohmann::json>& records);

// Returns the row of that name, even if it was merged into another. No seeds if there is none.
[[nodiscard]] Row row_named(const std::vector<nlohmann::json>& records, const RowName& name);

// Returns a number of a record; NaN for null, which stands for a non-finite one.
[[nodiscard]] double number_in(const nlohmann::json& value);

}  // namespace isentrope::analysis
