// Tables and plots for a terminal.
#pragma once

#include <string>
#include <vector>

namespace isentrope::cli {

// Six significant digits.
[[nodiscard]] std::string number(double value);

// Columns aligned on the right, two spaces apart.
void print_table(const std::vector<std::string>& heads,
                 const std::vector<std::vector<std::string>>& rows);

struct Curve {
  std::string name;
  std::vector<double> y;  // as many as the plot's x
};

// Curves over x on a logarithmic axis, each drawn with a symbol of its own: 'a' for the first.
void print_plot(const std::string& title, const std::vector<double>& x,
                const std::vector<Curve>& curves);

}  // namespace isentrope::cli
