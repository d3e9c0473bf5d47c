#include "docs/generate/tables.h"

#include "tools/analysis/paired.h"
#include "tools/report/numbers.h"

namespace isentrope::docs {

double mean(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double value : numbers) sum += value;
  return sum / static_cast<double>(numbers.size());
}

std::string markdown_table(const Rows& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& cell : rows[i]) text.append("| ").append(cell).append(" ");
    text.append("|\n");
    for (std::size_t column = 0; i == 0 && column < rows[i].size(); ++column) text.append("|---");
    if (i == 0) text.append("|\n");
  }
  return text;
}

std::string with_interval(double mean, double low, double high, int decimals) {
  return report::signed_decimal(mean, decimals) + " " + report::interval(low, high, decimals);
}

std::string with_interval(const std::vector<double>& differences, int decimals) {
  const analysis::Paired found = analysis::paired(differences);
  return with_interval(found.mean, found.low, found.high, decimals);
}

}  // namespace isentrope::docs
