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

std::string text_of(const Cell& cell) {
  if (!cell.text.empty()) return cell.text;
  return cell.value.is_number_integer() ? cell.value.dump() : number(cell.value);
}

}  // namespace

std::string number(double value) { return fmt::format("{:.6g}", value); }

void print_json(const nlohmann::ordered_json& json) { fmt::print("{}\n", json.dump(2)); }

nlohmann::ordered_json json_of(const std::vector<Row>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    auto& object = list.emplace_back(nlohmann::ordered_json::object());
    for (const Cell& cell : row) {
      if (!cell.member.empty()) object[cell.member] = cell.value;
    }
  }
  return list;
}

void print_table(const std::vector<Row>& rows, std::size_t step) {
  std::vector<std::vector<std::string>> lines(1);
  std::vector<std::size_t> widths;
  for (const Cell& cell : rows.front()) {
    if (cell.head.empty()) continue;
    lines.front().push_back(cell.head);
    widths.push_back(cell.head.size());
  }
  for (std::size_t row = 0; row < rows.size(); row += step) {
    auto& line = lines.emplace_back();
    for (const Cell& cell : rows[row]) {
      if (cell.head.empty()) continue;
      std::size_t& width = widths[line.size()];
      line.push_back(text_of(cell));
      width = std::max(width, line.back().size());
    }
  }
  for (const auto& line : lines) {
    for (std::size_t column = 0; column < line.size(); ++column)
      fmt::print("{}{:>{}}", column == 0 ? "" : "  ", line[column], widths[column]);
    fmt::print("\n");
  }
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
