// Rows: what was measured of models that differ in their seed alone, one row for each rule and kind
// of measurement (lab/measure.h), out of the records of the trainings.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace isentrope::analysis {

struct RowName {
  std::string rule, kind;

  bool operator==(const RowName&) const = default;
};

struct Row {
  RowName name;
  std::vector<RowName> also{};  // rows that have the very same numbers
  // By seed: the record, and what it says of this row. They point into the records.
  std::vector<const nlohmann::json*> records{}, seeds{};
};

// What was trained, then what was laid upon the models of standard, then near keys only, then the
// probes. Rows of one kind and the same numbers are one, as two names of one law are; so is a probe
// that asks what the model's own rule asks.
[[nodiscard]] std::vector<Row> rows_of(const std::vector<nlohmann::json>& records);

// Of that name, whether or not another row has its numbers. Without seeds when there is none.
[[nodiscard]] Row row_named(const std::vector<nlohmann::json>& records, const RowName& name);

// A number of a record; null stands for what was not finite.
[[nodiscard]] double number_in(const nlohmann::json& value);

}  // namespace isentrope::analysis
