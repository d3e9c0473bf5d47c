#include "bindings/ggml/flash_attention.h"

#include <string>

#include "bindings/ggml/operation.h"
#include "bindings/ggml/threads.h"

namespace isentrope::ggml {
namespace {

// Returns the name of the tensor that keys are a view of, such as cache_k_l12: the node itself has
// no name that tells its layer.
std::string module_of(const ggml_tensor& keys) {
  const std::string name = (keys.view_src ? *keys.view_src : keys).name;
  return name.substr(0, name.find(" ("));  // without what ggml adds: " (permuted)", " (copy)"
}

}  // namespace

void compute(const ggml_tensor& node, const Settings& settings, int threads) {
  Operation operation(node);
  AttentionOptions& options = operation.options;
  if (settings.rule) options.rule = options.rule * *settings.rule;
  options.parallel_for = on_openmp(threads);
  if (!settings.log) return attention_forward(operation.input, options, operation.output);
  CallStatistics statistics(operation.input);
  operation.output.statistics = statistics.views();
  attention_forward(operation.input, options, operation.output);
  statistics.compute_first_key(operation.input, options);
  settings.log->append(module_of(*node.src[1]), options.bias, statistics);
}

}  // namespace isentrope::ggml
