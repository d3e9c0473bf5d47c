#include "tools/analysis/text_interval.h"

#include <algorithm>
#include <cstddef>
#include <random>

namespace isentrope::analysis {
namespace {

constexpr std::size_t kDraws = 2000, kFewestBlocks = 8;
constexpr std::size_t kBeyondEnds = kDraws / 40;  // draws beyond each end

}  // namespace

std::optional<TextInterval> text_interval(const std::vector<double>& differences,
                                          const std::vector<double>& predictions) {
  const std::size_t blocks = differences.size();
  if (blocks < kFewestBlocks || predictions.size() != blocks) return {};
  std::mt19937_64 random;  // NOLINT(cert-msc51-cpp): fixed seed, same draws each time
  std::vector<double> means;
  for (std::size_t draw = 0; draw < kDraws; ++draw) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::size_t block = random() % blocks;
      sum += differences[block];
      count += predictions[block];
    }
    means.push_back(sum / count);
  }
  std::ranges::sort(means);
  return TextInterval{means[kBeyondEnds - 1], means[kDraws - kBeyondEnds]};
}

}  // namespace isentrope::analysis
