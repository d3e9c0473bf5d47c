#include "tools/cli/problems.h"

#include <fmt/core.h>

#include "isentrope/error.h"
#include "tools/command/memory.h"

namespace isentrope::cli {

void require_memory(const check::Problem& p) {
  // In doubles, because products of a user's numbers may overflow every integer type.
  const auto count = [](auto... extents) { return (static_cast<double>(extents) * ...); };
  const double numbers = count(p.batch, p.heads, p.queries, p.dim + p.value_dim) +
                         count(p.batch, p.kv_heads, p.keys, p.dim + p.value_dim),
               pairs = count(p.batch, p.heads, p.queries, p.keys);
  // Each number is stored as float, in the problem's type and in double, gradients too. Bias, mask
  // and the gradient of a bias are stored in full.
  const double bytes = numbers * (p.backward ? 28 : 14) +
                       pairs * ((p.admitted ? 1 : 0) + (p.bias ? (p.backward ? 16 : 4) : 0));
  const auto most = static_cast<double>(command::machine_memory());
  if (bytes <= most) return;
  throw Error(
      fmt::format("[problem] shape must fit in the {} of memory this machine has; got {} for {}",
                  command::bytes_text(most), command::bytes_text(bytes), text_of(p)));
}

check::Problem problem_of(std::string_view line) {
  const check::Problem problem = check::parse_problem(line);
  require_memory(problem);
  return problem;
}

}  // namespace isentrope::cli
