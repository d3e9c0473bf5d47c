// Fuzz target: the forward pass of every instruction set against the float64 reference.

#include <algorithm>

#include "isentrope/target.h"
#include "tests/fuzz/problem_source.h"
#include "tools/check/judge.h"

namespace isentrope::fuzz {
namespace {

// Checks bounds that hold for every row.
void check_bounds(const check::ForwardResult& got, std::size_t row, const check::Problem& p) {
  const auto support = static_cast<double>(got.support[row]);
  const double entropy = got.entropy[row], collision = got.collision[row];
  require(!(entropy < 0) && !(entropy > std::log(std::max(support, 1.0)) + 1e-4),
          [&] { return "entropy out of bounds: " + text_of(p); });
  require(!(collision * support < 1 - 1e-4 && support > 0) && !(collision > 1 + 1e-4),
          [&] { return "collision out of bounds: " + text_of(p); });
  require(!(got.variance[row] < 0), [&] { return "negative variance: " + text_of(p); });
}

void settle(const check::Problem& p, const reference::Result& want, std::size_t row, bool uncertain,
            check::ForwardResult& got) {
  const auto columns = static_cast<std::size_t>(p.value_dim);
  for (std::size_t at = row * columns; at < (row + 1) * columns; ++at) {
    // A weight may underflow in float only, so NaN and Inf count as equal in the output.
    const bool finite = std::isfinite(want.output[at]);
    require(finite || uncertain || !std::isfinite(got.output[at]),
            [&] { return "a finite output hides a NaN: " + text_of(p); });
    if (uncertain || !finite) got.output[at] = static_cast<float>(want.output[at]);
  }
  if (!uncertain) return;
  const RowStats& stats = want.statistics[row];
  for_each_statistic(
      [&]<typename T>(const Statistic& statistic, std::vector<T>& values) {
        if (statistic.of_row) values[row] = static_cast<T>(stats.*statistic.of_row);
      },
      got);
}

void run(ByteSource bytes) {
  check::Problem p = problem_from(bytes);
  // A cache without pages has no page table.
  if (bytes.flag() && p.batch * p.keys > 0) p.page_size = 1 + bytes.up_to(6);
  static const std::vector<std::string> targets = supported_targets();
  use_target(targets[bytes.byte() % targets.size()]);
  check::Data data(p);
  sprinkle(bytes, false, data);
  check::ForwardResult got = run_forward(data);
  const reference::Result want =
      reference::attention_forward(data.reference_input(), data.options());
  for (std::size_t row = 0; row < want.statistics.size(); ++row) {
    require(got.support[row] == want.statistics[row].support,
            [&] { return "wrong support: " + text_of(p); });
    check_bounds(got, row, p);
    const bool uncertain = is_uncertain(data, want, row);
    settle(p, want, row, uncertain, got);
    if (uncertain) {  // so are the sums over rows
      got.received.clear();
      got.received_of_all.clear();
      got.chosen.clear();
    }
  }
  const check::Ratio ratio = forward_error_over_budget(data, got);
  require(ratio.worst <= 1,
          [&] { return text_of(p) + " on " + active_target() + ": " + ratio.where; });
}

}  // namespace
}  // namespace isentrope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size <= 512) isentrope::fuzz::run({data, size});
  return 0;
}
