#include "tools/lab/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "isentrope/error.h"
#include "tools/command/reading.h"
#include "tools/lab/measure.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

const json& member(const json& object, const char* name) {
  static const json kNone;
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

// null stands for a non-finite number.
bool is_number(const json& value) { return value.is_number() || value.is_null(); }

bool are_numbers(const json& values) {
  return values.is_array() && std::ranges::all_of(values, is_number);
}

bool are_numbers(const json& values, std::size_t count) {
  return are_numbers(values) && values.size() == count;
}

// Returns whether `values` holds a number of each block for each length.
bool are_blocks(const json& values, std::size_t lengths) {
  return values.is_array() && values.size() == lengths &&
         std::ranges::all_of(values, [](const json& at_length) { return are_numbers(at_length); });
}

bool is_row(const json& row, std::size_t lengths) {
  if (!row.is_object() || !member(row, "rule").is_string() || !member(row, "kind").is_string() ||
      !are_numbers(member(row, "tokens"), lengths) ||
      !are_numbers(member(row, "predictions"), lengths))
    return false;
  if (row.contains("by_position") && !are_numbers(row["by_position"])) return false;
  if (row.contains("blocks")) {
    const json& blocks = row["blocks"];
    if (!are_blocks(member(blocks, "right"), lengths) ||
        !are_blocks(member(blocks, "loss"), lengths))
      return false;
  }
  return std::ranges::all_of(kMeasures, [&](const Measure& measure) {
    return !row.contains(measure.name) || are_numbers(row[measure.name], lengths);
  });
}

// Returns whether `curve` holds a number of each gain for each length.
bool is_curve(const json& curve, std::size_t lengths) {
  if (!curve.is_object() || !are_numbers(member(curve, "gain"))) return false;
  return std::ranges::all_of(std::array{"accuracy", "cross_entropy"}, [&](const char* name) {
    const json& measure = member(curve, name);
    return measure.is_array() && measure.size() == lengths &&
           std::ranges::all_of(measure, [&](const json& at_length) {
             return are_numbers(at_length, curve["gain"].size());
           });
  });
}

bool is_record(const json& record) {
  if (!record.is_object()) return false;
  const json& evaluation = member(record, "evaluation");
  if (!member(record, "configuration").is_object() || !member(record, "rule").is_string() ||
      !member(record, "seed").is_number_integer() || !is_number(member(record, "parameters")) ||
      !is_number(member(record, "seconds_per_step")) || !evaluation.is_object() ||
      !are_numbers(member(evaluation, "lengths")) ||
      !member(evaluation, "bytes_per_token").is_number())
    return false;
  const std::size_t lengths = evaluation["lengths"].size();
  const json& rows = member(record, "rows");
  if (!rows.is_array() || rows.empty()) return false;
  if (record.contains("loss") && !are_numbers(record["loss"])) return false;
  if (record.contains("gains") && !is_curve(record["gains"], lengths)) return false;
  return std::ranges::all_of(rows, [&](const json& row) { return is_row(row, lengths); });
}

}  // namespace

json read_record(const std::filesystem::path& path) {
  const std::string content = command::read_file(path);
  const char* damage = "";
  try {
    json record = json::parse(content);
    if (is_record(record)) return record;
  } catch (const json::parse_error& error) {
    if (error.byte > content.size()) damage = " was truncated";  // the parser expected more
  }
  throw Error(
      fmt::format("[record] the file is damaged: {}{}; remove it to measure that model again",
                  path.string(), damage));
}

bool holds_every_measure(const json& record) {
  return std::ranges::all_of(record.at("rows"), [](const json& row) {
    return std::ranges::all_of(kMeasures,
                               [&](const Measure& measure) { return row.contains(measure.name); });
  });
}

}  // namespace isentrope::lab
