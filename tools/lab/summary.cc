// Text summary of a result.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tools/analysis/records.h"
#include "tools/lab/result.h"
#include "tools/report/result.h"
#include "tools/report/verdict_words.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

// Pads to a width in characters: continuation bytes of UTF-8 do not count.
std::string padded(const std::string& text, std::size_t width) {
  const auto characters = static_cast<std::size_t>(count_characters(text));
  return characters < width ? std::string(width - characters, ' ') + text : text;
}

std::string name_of(const json& row) { return report::row_name(row.at("rule"), row.at("kind")); }

std::string number(const json& value, int digits) {
  return value.is_number() ? fmt::format("{:.{}f}", value.get<double>(), digits) : "-";
}

constexpr const char* kUniform = "uniform attention";

// Table of every row of the result, and of `uniform` below: one number for each length, or none.
std::string table_of(const json& result, const char* measure, int digits,
                     const std::vector<double>& uniform = {}) {
  std::size_t name_width = uniform.empty() ? 0 : std::strlen(kUniform);
  for (const json& row : result.at("rules")) name_width = std::max(name_width, name_of(row).size());
  const bool spreads = result.at("rules").at(0).contains("spread");
  const std::size_t column = spreads ? 16 : 9;
  std::string text(name_width, ' ');
  for (const json& length : result.at("lengths"))
    text += padded(std::to_string(length.get<std::int64_t>()), column);
  for (const json& row : result.at("rules")) {
    text += fmt::format("\n{:{}}", name_of(row), name_width);
    for (const json& length : result.at("lengths")) {
      const std::string key = std::to_string(length.get<std::int64_t>());
      std::string cell = number(row.at(measure).at(key), digits);
      if (row.contains("spread"))
        cell += " ± " + number(row.at("spread").at(measure).at(key), digits);
      text += padded(cell, column);
    }
  }
  if (!uniform.empty()) text += fmt::format("\n{:{}}", kUniform, name_width);
  for (const double value : uniform) text += padded(number(value, digits), column);
  return text + "\n";
}

std::vector<double> uniform_entropies(const json& result) {
  const bool causal = result.value(json::json_pointer("/config/objective"), "") == "causal";
  std::vector<double> entropies;
  for (const std::int64_t n : result.at("lengths"))
    entropies.push_back(analysis::uniform_entropy(n, causal));
  return entropies;
}

std::string bits_table(const json& result) {
  const auto with_bits = std::ranges::find_if(
      result.at("rules"), [](const json& row) { return row.contains("bits_per_byte"); });
  if (with_bits == result.at("rules").end()) return {};
  std::string text = fmt::format("\nBits per byte by position, windows of {}\n",
                                 result.at("lengths").back().get<std::int64_t>());
  for (const json& row : result.at("rules")) {
    std::vector<std::pair<std::int64_t, double>> bits;
    for (const auto& [n, value] : row.at("bits_per_byte").items())
      bits.emplace_back(std::stoll(n), value.get<double>());
    std::ranges::sort(bits);
    text += name_of(row) + ":";
    for (const auto& [n, value] : bits) text += fmt::format("  {}: {:.3f}", n, value);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string summary(const json& result) {
  std::string text;
  for (const std::string& sentence :
       report::verdict_sentences(report::parse_leads(result.at("leads"))))
    text += sentence + "\n";
  if (!text.empty()) {
    text =
        "Leads over standard in points of accuracy, paired by seed, with 95 % intervals of "
        "Student's t; a verdict\nneeds three seeds, and p below 5 % after correction for all leads "
        "of its kind:\n" +
        text + "\n";
  }
  return text +
         fmt::format(
             "Accuracy (%), trained at length {}, {} part{}\n{}\n"
             "Cross-entropy (nats)\n{}\n"
             "Mean entropy of the attention rows (nats)\n{}\n"
             "Mean attended distance (keys)\n{}\n"
             "Weight on keys farther away than any seen in training (%)\n{}",
             result.at("train_length").get<std::int64_t>(),
             result.at("protocol").at("part").get<std::string>(),
             result.at("rules").at(0).contains("spread") ? "; mean ± SD over the seeds" : "",
             table_of(result, "accuracy", 2), table_of(result, "cross_entropy", 3),
             table_of(result, "entropy", 3, uniform_entropies(result)),
             table_of(result, "distance", 1), table_of(result, "share_beyond", 1)) +
         bits_table(result);
}

}  // namespace isentrope::lab
