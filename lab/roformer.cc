#include "lab/roformer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>

#include "isentrope/error.h"
#include "lab/random.h"

namespace isentrope::lab {
namespace {

constexpr double kEmbeddingDeviation = 0.02;  // as in BERT
constexpr double kRotaryBase = 10000;
constexpr double kNormEpsilon = 1e-12;  // as in BERT

// How queries and keys start, see docs/adr/0004: every row leans on near keys, by 3.9 on itself in
// a head of 64, through phases that the shortest training has seen all of.
constexpr double kScoreWeights = 0.3;  // of what other linear maps start with
constexpr double kNearBias = 1.25;     // of the fastest third of the rotary pairs

at::Tensor uniform(at::IntArrayRef shape, double bound, at::Generator& generator) {
  return at::empty(shape, at::kFloat).uniform_(-bound, bound, generator);
}

void start_scores(const at::Tensor& qkv_weight, const at::Tensor& qkv_bias, std::int64_t heads) {
  const at::Tensor bias = qkv_bias.detach().view({3, heads, -1});
  const at::Tensor q_and_k = bias.narrow(0, 0, 2).zero_();
  q_and_k.narrow(2, 0, bias.size(2) / 6 * 2).fill_(kNearBias);
  qkv_weight.detach().view({3, -1}).narrow(0, 0, 2).mul_(kScoreWeights);
}

}  // namespace

void validate(const RoformerShape& shape) {
  if (shape.vocabulary < 1 || shape.layers < 1 || shape.width < 1 || shape.heads < 1) {
    throw Error(fmt::format(
        "[model] vocabulary, layers, width and heads must be at least 1; got {}, {}, {}, {}",
        shape.vocabulary, shape.layers, shape.width, shape.heads));
  }
  if (shape.width % (2 * shape.heads) != 0) {
    throw Error(fmt::format(
        "[model] width must be an even multiple of heads, so that each head has an even dimension; "
        "got width {}, heads {}",
        shape.width, shape.heads));
  }
}

at::Tensor rotary_table(std::int64_t length, std::int64_t dim) {
  const at::Tensor frequency =
      at::pow(kRotaryBase, at::arange(0, dim, 2, at::kDouble) / -static_cast<double>(dim));
  const at::Tensor angle = at::outer(at::arange(length, at::kDouble), frequency);
  return at::polar(at::ones_like(angle), angle).to(at::kComplexFloat).unsqueeze(1);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& table) {
  const at::Tensor pairs = at::view_as_complex(x.unflatten(-1, {-1, 2}));
  return at::view_as_real(pairs * table).flatten(-2);
}

at::Tensor Roformer::Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

at::Tensor Roformer::LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, kNormEpsilon);
}

Roformer::Roformer(const RoformerShape& shape, const ScaleRule& rule, std::uint64_t seed)
    : shape_(shape), rule_(rule) {
  validate(shape);
  const std::int64_t width = shape.width;
  at::Generator generator = at::detail::createCPUGenerator(random_bits(seed, Stream::weights, 0));
  embedding_ = add(
      "embedding",
      at::empty({shape.vocabulary, width}, at::kFloat).normal_(0, kEmbeddingDeviation, generator));
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = fmt::format("layers.{}.", i);
    layers_.push_back({.qkv = add_linear(prefix + "qkv", width, 3 * width, generator),
                       .out = add_linear(prefix + "out", width, width, generator),
                       .attention_norm = add_norm(prefix + "attention_norm"),
                       .up = add_linear(prefix + "up", width, 4 * width, generator),
                       .down = add_linear(prefix + "down", 4 * width, width, generator),
                       .feed_forward_norm = add_norm(prefix + "feed_forward_norm")});
    start_scores(layers_.back().qkv.weight, layers_.back().qkv.bias, shape.heads);
  }
  output_bias_ = add("output_bias", at::zeros({shape.vocabulary}));
}

at::Tensor Roformer::add(const std::string& name, at::Tensor value) {
  value.requires_grad_(true);
  parameters_.emplace_back(name, value);
  return value;
}

Roformer::Linear Roformer::add_linear(const std::string& name, std::int64_t in, std::int64_t out,
                                      at::Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  return {add(name + ".weight", uniform({out, in}, bound, generator)),
          add(name + ".bias", uniform({out}, bound, generator))};
}

Roformer::LayerNorm Roformer::add_norm(const std::string& name) {
  return {add(name + ".weight", at::ones({shape_.width})),
          add(name + ".bias", at::zeros({shape_.width}))};
}

at::Tensor Roformer::attend(const Layer& layer, const at::Tensor& h, const at::Tensor& table,
                            const Observer& observer) const {
  // One projection for q, k and v; the operator reads them where they lie.
  const auto qkv =
      layer.qkv(h).unflatten(-1, {3, shape_.heads, shape_.width / shape_.heads}).unbind(2);
  const TorchAttention attention =
      torch_attention(rotate(qkv[0], table).transpose(1, 2), rotate(qkv[1], table).transpose(1, 2),
                      qkv[2].transpose(1, 2), rule_);
  if (observer) observer(attention);
  return layer.out(attention.output.transpose(1, 2).flatten(2));
}

at::Tensor Roformer::forward(const at::Tensor& tokens, const at::Tensor& positions,
                             const Observer& observer) const {
  const at::Tensor table = rotary_table(tokens.size(1), shape_.width / shape_.heads);
  at::Tensor h = at::embedding(embedding_, tokens);
  for (const Layer& layer : layers_) {
    h = layer.attention_norm(h + attend(layer, h, table, observer));
    h = layer.feed_forward_norm(h + layer.down(at::gelu(layer.up(h))));
  }
  return at::linear(h.flatten(0, 1).index_select(0, positions), embedding_, output_bias_);
}

std::int64_t Roformer::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter.numel();
  return count;
}

}  // namespace isentrope::lab
