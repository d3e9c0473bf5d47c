// Results as tables and plots for a terminal, or as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace isentrope::cli {

// Returns six significant digits.
[[nodiscard]] std::string number(double value);

void print_json(const nlohmann::ordered_json& json);

// A number of a row of results: its member in JSON, its head in a table, and its text there, if it
// is not that of the number. An empty member or head leaves it out.
struct Cell {
  std::string member, head;
  nlohmann::ordered_json value;
  std::string text = {};
};
using Row = std::vector<Cell>;

// Returns the rows as objects.
[[nodiscard]] nlohmann::ordered_json json_of(const std::vector<Row>& rows);

// Prints every `step`th row, at least one, in right-aligned columns two spaces apart.
void print_table(const std::vector<Row>& rows, std::size_t step = 1);

struct Curve {
  std::string name;
  std::vector<double> y;  // one value for each x of the plot
};

// Prints curves over x on a logarithmic axis, each with its own symbol: 'a' for the first.
void print_plot(const std::string& title, const std::vector<double>& x,
                const std::vector<Curve>& curves);

}  // namespace isentrope::cli
