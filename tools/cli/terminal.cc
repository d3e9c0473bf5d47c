#include "tools/cli/terminal.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace isentrope::cli {
namespace {

constexpr std::size_t kRows = 16, kColumns = 64;

char symbol(std::size_t curve) { return static_cast<char>('a' + curve % 26); }

std::size_t place(double value, double low, double high, std::size_t cells) {
  if (!(high > low)) return 0;
  const double share = (value - low) / (high - low) * static_cast<double>(cells - 1);
  return static_cast<std::size_t>(std::lround(share));
}

}  // namespace

std::string number(double value) { return fmt::format("{:.6g}", value); }

void print_table(const std::vector<std::string>& heads,
                 const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < heads.size(); ++column) {
    widths.push_back(heads[column].size());
    for (const auto& row : rows) widths[column] = std::max(widths[column], row[column].size());
  }
  const auto print = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      line += fmt::format("{}{:>{}}", column == 0 ? "" : "  ", cells[column], widths[column]);
    }
    fmt::print("{}\n", line);
  };
  print(heads);
  for (const auto& row : rows) print(row);
}

void print_plot(const std::string& title, const std::vector<double>& x,
                const std::vector<Curve>& curves) {
  double low = 0, high = 0;
  for (const Curve& curve : curves) {
    for (const double y : curve.y) low = std::min(low, y), high = std::max(high, y);
  }
  const double left = std::log(x.front()), right = std::log(x.back());
  std::vector<std::string> cells(kRows, std::string(kColumns, ' '));
  for (std::size_t curve = curves.size(); curve-- > 0;) {  // draws the first one on top
    for (std::size_t i = 0; i < x.size(); ++i) {
      cells[kRows - 1 - place(curves[curve].y[i], low, high, kRows)]
           [place(std::log(x[i]), left, right, kColumns)] = symbol(curve);
    }
  }
  fmt::print("\n{}\n", title);
  for (std::size_t row = 0; row < kRows; ++row) {
    const bool labelled = row == 0 || row == kRows - 1;
    fmt::print("{:>10} |{}\n", labelled ? fmt::format("{:.4g}", row == 0 ? high : low) : "",
               cells[row]);
  }
  fmt::print("{:>10} +{}\n", "", std::string(kColumns, '-'));
  const std::string first = fmt::format("n = {:.6g}", x.front()),
                    last = fmt::format("{:.6g}", x.back());
  fmt::print("{:>12}{}{:>{}}\n", "", first, last, kColumns - std::min(kColumns, first.size()));
  for (std::size_t curve = 0; curve < curves.size(); ++curve) {
    fmt::print("{:>12}{}  {}\n", "", symbol(curve), curves[curve].name);
  }
}

}  // namespace isentrope::cli
