#include "tools/analysis/rows.h"

#include <algorithm>
#include <limits>

namespace isentrope::analysis {
namespace {

using nlohmann::json;

bool same_numbers(const Row& a, const Row& b) {
  if (a.records != b.records) return false;
  for (std::size_t i = 0; i < a.seeds.size(); ++i) {
    for (const char* metric : {"accuracy", "cross_entropy"}) {
      if (a.seeds[i]->value(metric, json()) != b.seeds[i]->value(metric, json())) return false;
    }
  }
  return true;
}

}  // namespace

double number_in(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Row row_named(const std::vector<json>& records, const RowName& name) {
  Row row{name};
  for (const json& record : records) {
    for (const json& measured : record.at("rows")) {
      if (measured.at("rule") != name.rule || measured.at("kind") != name.kind) continue;
      row.records.push_back(&record);
      row.seeds.push_back(&measured);
    }
  }
  return row;
}

std::vector<Row> rows_of(const std::vector<json>& records) {
  std::vector<RowName> names;
  std::vector<Row> rows;
  for (const char* kind : kKinds) {
    for (const json& record : records) {
      for (const json& measured : record.at("rows")) {
        const RowName name{measured.at("rule"), measured.at("kind")};
        if (name.kind != kind || std::ranges::find(names, name) != names.end()) continue;
        names.push_back(name);
        const Row row = row_named(records, name);
        const auto same = std::ranges::find_if(rows, [&](const Row& other) {
          if (measured.contains("same_as"))
            return other.name == RowName{name.rule, measured["same_as"]};
          return other.name.kind == name.kind && same_numbers(row, other);
        });
        if (same == rows.end()) {
          rows.push_back(row);
        } else {
          same->also.push_back(name);
        }
      }
    }
  }
  return rows;
}

}  // namespace isentrope::analysis
