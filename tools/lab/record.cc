// Records of trained models, read from disk.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "isentrope/error.h"
#include "tools/command/reading.h"
#include "tools/lab/measure.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

// null stands for a non-finite number.
bool is_number(const json& value) { return value.is_number() || value.is_null(); }

bool are_numbers(const json& values) {
  return values.is_array() && std::ranges::all_of(values, is_number);
}

bool are_numbers(const json& values, std::size_t count) {
  return are_numbers(values) && values.size() == count;
}

// Returns whether `values` holds a list of numbers for each length, of `count` if that is given.
bool are_lists(const json& values, std::size_t lengths, std::optional<std::size_t> count = {}) {
  return values.is_array() && values.size() == lengths &&
         std::ranges::all_of(values, [&](const json& at_length) {
           return are_numbers(at_length) && (!count || at_length.size() == *count);
         });
}

// These also throw json::exception if a member is missing.
bool is_row(const json& row, std::size_t lengths) {
  return row.at("rule").is_string() && row.at("kind").is_string() &&
         are_numbers(row.at("tokens"), lengths) && are_numbers(row.at("predictions"), lengths) &&
         are_numbers(row.value("by_position", json::array())) &&
         (!row.contains("blocks") || (are_lists(row["blocks"].at("right"), lengths) &&
                                      are_lists(row["blocks"].at("loss"), lengths))) &&
         std::ranges::all_of(kMeasures, [&](const Measure& measure) {
           return !row.contains(measure.name) || are_numbers(row[measure.name], lengths);
         });
}

bool is_curve(const json& curve, std::size_t lengths) {
  const json& gains = curve.at("gain");
  return are_numbers(gains) && are_lists(curve.at("accuracy"), lengths, gains.size()) &&
         are_lists(curve.at("cross_entropy"), lengths, gains.size());
}

bool is_record(const json& record) {
  const json &evaluation = record.at("evaluation"), &rows = record.at("rows");
  const std::size_t lengths = evaluation.at("lengths").size();
  return record.at("configuration").is_object() && record.at("rule").is_string() &&
         record.at("seed").is_number_integer() && is_number(record.at("parameters")) &&
         is_number(record.at("seconds_per_step")) && are_numbers(evaluation.at("lengths")) &&
         evaluation.at("bytes_per_token").is_number() &&
         are_numbers(record.value("loss", json::array())) &&
         (!record.contains("gains") || is_curve(record["gains"], lengths)) && rows.is_array() &&
         !rows.empty() &&
         std::ranges::all_of(rows, [&](const json& row) { return is_row(row, lengths); });
}

}  // namespace

json read_record(const std::filesystem::path& path) {
  const std::string content = command::read_file(path);
  const char* damage = "";
  try {
    json record = json::parse(content);
    if (is_record(record)) return record;
  } catch (const json::exception& error) {  // of the parser, or a member is missing
    const auto* parsing = dynamic_cast<const json::parse_error*>(&error);
    if (parsing != nullptr && parsing->byte > content.size())  // the parser expected more
      damage = " was truncated";
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
