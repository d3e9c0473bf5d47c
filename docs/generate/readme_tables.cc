// Tables of README.md: what the study found, and a few rules side by side.

#include <fmt/core.h>

#include "docs/generate/tables.h"
#include "isentrope/scale_rule.h"

namespace isentrope::docs {
namespace {

std::string scale_table() {
  const ScaleRule rules[] = {ScaleRule::standard(), ScaleRule::entropy_invariant(512),
                             ScaleRule::logn(512), ScaleRule::log_length()};
  Rows rows = {{"n"}};
  for (const ScaleRule& rule : rules) rows.front().push_back(fmt::format("`{}`", rule.text()));
  for (const std::int64_t n : {64, 512, 4096, 32768}) {
    rows.push_back({std::to_string(n)});
    for (const ScaleRule& rule : rules) {
      rows.back().push_back(fmt::format("{:.4f}", rule.lambda({n, n - 1, n}, 64)));
    }
  }
  return markdown_table(rows);
}

}  // namespace

std::map<std::string, std::string> readme_tables(const std::filesystem::path& docs) {
  return {{"bench", bench_table(docs / "results/bench.json")},
          {"study", study_leads(docs)},
          {"scale", scale_table()}};
}

}  // namespace isentrope::docs
