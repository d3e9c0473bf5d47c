// RoFormer (Su et al. 2021): a post-LayerNorm encoder with rotary positions, whose attention is
// Isentrope's operator under a scale rule.
//
//   h = embed(tokens)
//   each layer:  h = LN(h + W_o attention(rotate(q), rotate(k), v))     q, k, v = W_qkv h
//                h = LN(h + W_down gelu(W_up h))
//   logits = h embed^T + b, at the positions asked for
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "isentrope/libtorch/attention.h"
#include "isentrope/scale_rule.h"

namespace isentrope::lab {

struct RoformerShape {
  std::int64_t vocabulary = 0;
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
};

// Throws Error unless every number is positive and width / heads is a whole, even number, as rotary
// positions need.
void validate(const RoformerShape& shape);

// e^(i t theta_j) for positions t < length and the dim / 2 frequencies theta_j = 10000^(-2j / dim):
// complex [length, 1, dim / 2].
[[nodiscard]] at::Tensor rotary_table(std::int64_t length, std::int64_t dim);

// x is [batch, length, heads, dim]; components 2j and 2j + 1 turn by the table's angle j.
[[nodiscard]] at::Tensor rotate(const at::Tensor& x, const at::Tensor& table);

class Roformer {
 public:
  using Observer = std::function<void(const TorchAttention&)>;
  using NamedTensor = std::pair<std::string, at::Tensor>;

  // A function of the seed and the shape only: embeddings normal with deviation 0.02, linear maps
  // uniform within 1 / sqrt(inputs), biases included. Neither is a detail (docs/adr/0004).
  Roformer(const RoformerShape& shape, const ScaleRule& rule, std::uint64_t seed);

  // tokens is [batch, length], positions index the flattened tokens; the result is [positions,
  // vocabulary]. The observer sees the attention of each layer.
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens, const at::Tensor& positions,
                                   const Observer& observer = {}) const;

  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  [[nodiscard]] std::int64_t parameter_count() const;

 private:
  struct Linear {
    at::Tensor weight, bias;
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const;
  };
  struct LayerNorm {
    at::Tensor weight, bias;
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const;
  };
  struct Layer {
    Linear qkv, out;
    LayerNorm attention_norm;
    Linear up, down;
    LayerNorm feed_forward_norm;
  };

  at::Tensor add(const std::string& name, at::Tensor value);
  Linear add_linear(const std::string& name, std::int64_t in, std::int64_t out,
                    at::Generator& generator);
  LayerNorm add_norm(const std::string& name);

  [[nodiscard]] at::Tensor attend(const Layer& layer, const at::Tensor& h, const at::Tensor& table,
                                  const Observer& observer) const;

  RoformerShape shape_;
  ScaleRule rule_;
  std::vector<NamedTensor> parameters_;
  at::Tensor embedding_, output_bias_;
  std::vector<Layer> layers_;
};

}  // namespace isentrope::lab
