// Tables and plots for a terminal.
#pragma once

#include <string>
#include <vector>

namespace isentrope::cli {

// Returns six significant digits.
[[nodiscard]] std::string number(double value);

// Prints right-aligned columns, two spaces apart.
void print_table(const std::vector<std::string>& heads,
                 const std::vector<std::vector<std::string>>& rows);

struct Curve {
  std::string name;
  std::vector<double> y;  // one value for each x of the plot
};

// Prints curves over x on a logarithmic axis, each with its own symbol: 'a' for the first.
void print_plot(const std::string& title, const std::vector<double>& x,
                const std::vector<Curve>& curves);

}  // namespace isentrope::cli
