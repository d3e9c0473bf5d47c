#include "tools/lab/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "isentrope/error.h"
#include "tools/command/memory.h"

namespace isentrope::lab {
namespace {

constexpr double kFloat = 4;  // bytes

}  // namespace

double least_memory(const ExperimentOptions& options, const ModelConfig& model) {
  const auto width = static_cast<double>(model.width), layers = static_cast<double>(model.layers);
  const auto vocabulary = static_cast<double>(model.vocabulary);
  const bool biased = model.positions == Positions::t5 || model.positions == Positions::alibi;
  const double predicted = model.objective == Objective::causal ? 1 : 0.15;
  const auto bias = [&](double length) {
    return biased ? static_cast<double>(model.heads) * length * length : 0;
  };
  // Projections for q, k, v and out, and a feed-forward block of about 8 width^2 in either shape.
  const double weights = vocabulary * width + 12 * layers * width * width;
  const auto train_length = static_cast<double>(options.train_length);
  const double tokens = static_cast<double>(options.batch) * train_length;
  // q, k, v, attention's output, the feed-forward block's four widths; logits and their gradient.
  const double step =
      tokens * (8 * layers * width + 2 * predicted * vocabulary) + bias(train_length);
  const auto longest = static_cast<double>(options.lengths.back());
  const double evaluation = longest * (4 * width + predicted * vocabulary) + bias(longest);
  return kFloat * (4 * weights + std::max(step, evaluation));
}

void require_memory(const ExperimentOptions& options, const ModelConfig& model) {
  const double needed = least_memory(options, model);
  const auto available = static_cast<double>(command::machine_memory());
  if (needed <= available) return;
  throw Error(fmt::format(
      "[memory] a training needs {} or more; this machine has {}: a smaller model, batch or length "
      "fits",
      command::bytes_text(needed), command::bytes_text(available)));
}

}  // namespace isentrope::lab
