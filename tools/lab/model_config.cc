#include "tools/lab/model_config.h"

#include <fmt/format.h>

#include "isentrope/error.h"

namespace isentrope::lab {

void validate(const ModelConfig& config) {
  if (config.vocabulary < 1 || config.layers < 1 || config.width < 1 || config.heads < 1) {
    throw Error(fmt::format(
        "[model] vocabulary, layers, width and heads must be at least 1; got {}, {}, {}, {}",
        config.vocabulary, config.layers, config.width, config.heads));
  }
  if (config.width % (2 * config.heads) != 0) {
    throw Error(fmt::format(
        "[model] width must be an even multiple of heads, so that each head has an even dimension; "
        "got width {}, heads {}",
        config.width, config.heads));
  }
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    throw Error(fmt::format("[model] dropout must be in [0, 1); got {}", config.dropout));
  }
}

template <>
std::vector<std::string> names_of<ModelShape>() {
  return {"roformer", "modern"};
}

template <>
std::vector<std::string> names_of<Init>() {
  return {"bert", "pytorch"};
}

template <>
std::vector<std::string> names_of<Positions>() {
  return {"rope", "rope-partial", "t5", "alibi", "none"};
}

template <>
std::vector<std::string> names_of<Objective>() {
  return {"mlm", "causal"};
}

}  // namespace isentrope::lab
