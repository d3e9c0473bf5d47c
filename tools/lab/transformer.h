// Transformer: a small language model with Isentrope's attention under a scale rule.
//
//   roformer  h = LN(h + attention(h)), h = LN(h + down(gelu(up(h))))
//   modern    h = h + attention(norm(h)), h = h + down(silu(gate(h')) * up(h')), h' = norm(h)
//
//   logits = h embed^T (+ b), at the requested positions
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isentrope/libtorch/attention.h"
#include "tools/lab/model_config.h"
#include "tools/lab/model_rule.h"

namespace isentrope::lab {

// Parameter learned by a model of positions `t5`.
inline constexpr const char* kPositionBias = "positions";

struct LayerAttention {
  const at::Tensor &q, &k, &v;
  const ScaleRule& rule;
  const TorchOptions& options;
  const TorchAttention& result;
};

// Options of a forward pass that override the model's.
struct Look {
  std::optional<ScaleRule> rule{};  // replaces the model's rule, learned factors included
  std::int64_t window = -1;         // hides keys farther than this; negative: none
  bool hidden_count = false;        // counts hidden keys in n
  at::Generator dropout{};          // generator of the configured dropout; undefined: no dropout
  std::function<void(const LayerAttention&)> observer{};
};

class Transformer {
 public:
  using NamedTensor = std::pair<std::string, at::Tensor>;

  // Initialises the weights from configuration and seed, the same for every rule except learned
  // factors, which are 1. Throws Interrupted (interrupt.h).
  Transformer(const ModelConfig& config, const ModelRule& rule, std::uint64_t seed);

  // Returns logits [positions, vocabulary] of tokens [batch, length]; positions index flat tokens.
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens, const at::Tensor& positions,
                                   const Look& look = {}) const;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  [[nodiscard]] std::int64_t parameter_count() const;

 private:
  struct Linear {
    at::Tensor weight, bias;  // bias may be undefined
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const;
  };
  struct Norm {
    at::Tensor weight, bias;  // RMSNorm if bias is undefined
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const;
  };
  struct Layer {
    Linear qkv, out;
    Norm attention_norm;
    Linear up, down;  // in `modern`, up holds gate and up
    Norm feed_forward_norm;
    at::Tensor factor;  // [heads], learned
  };
  class Start;  // draws the initial weights
  struct Pass;  // data shared by the layers of a forward pass

  at::Tensor add(const std::string& name, at::Tensor value);
  void add_layers(Start& start);

  [[nodiscard]] Pass prepare(std::int64_t length, const Look& look) const;
  [[nodiscard]] at::Tensor drop(const at::Tensor& x, Pass& pass) const;
  [[nodiscard]] at::Tensor attend(const Layer& layer, const at::Tensor& h, const Pass& pass) const;
  [[nodiscard]] at::Tensor feed_forward(const Layer& layer, const at::Tensor& h) const;

  ModelConfig config_;
  ModelRule rule_;
  std::vector<NamedTensor> parameters_;
  at::Tensor embedding_, t5_table_, output_bias_;
  Norm embedding_norm_, final_norm_;
  std::vector<Layer> layers_;
};

// Returns lambda or on_bias of each row of `length` tokens: f32 [1, heads, length].
using RuleNumber = double (ScaleRule::*)(const RowLength&, std::int64_t, std::int64_t) const;
[[nodiscard]] at::Tensor row_numbers(const ModelConfig& config, const ScaleRule& rule,
                                     RuleNumber number, std::int64_t length, std::int64_t window);

}  // namespace isentrope::lab
