#include "tools/lab/transformer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>

#include "isentrope/mask.h"
#include "tools/lab/interrupt.h"
#include "tools/lab/positions.h"
#include "tools/lab/random.h"

namespace isentrope::lab {
namespace {

constexpr double kDeviation = 0.02;          // as in BERT
constexpr double kLayerNormEpsilon = 1e-12;  // as in BERT
constexpr double kRmsNormEpsilon = 1e-6;     // as in LLaMA
constexpr double kShortest = 1e-12;          // smaller norms are not divided by

// Returns SwiGLU's hidden width, a multiple of 8: 2/3 of the usual 4 widths, for as many weights.
std::int64_t gated_width(std::int64_t width) { return (width + 2) / 3 * 8; }

at::Tensor of_unit_length(const at::Tensor& x) {
  return x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(kShortest);
}

Mask mask_of(const ModelConfig& config, std::int64_t window) {
  return {.causal = config.objective == Objective::causal ? Causal::top_left : Causal::none,
          .window_left = window,
          .window_right = window};
}

}  // namespace

at::Tensor row_numbers(const ModelConfig& config, const ScaleRule& rule, RuleNumber number,
                       std::int64_t length, std::int64_t window) {
  const Mask mask = mask_of(config, window);
  const at::Tensor numbers = at::empty({1, config.heads, length});
  auto at = numbers.accessor<float, 3>();
  for (std::int64_t row = 0; row < length; ++row) {
    const RowLength seen = row_view(mask, 0, row, length, length).length;
    for (std::int64_t head = 0; head < config.heads; ++head) {
      at[0][head][row] = static_cast<float>((rule.*number)(seen, config.head_dim(), head));
    }
  }
  return numbers;
}

class Transformer::Start {
 public:
  Start(Transformer& model, std::uint64_t seed)
      : model_(model),
        generator_(at::detail::createCPUGenerator(random_bits(seed, Stream::weights, 0))) {}

  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double deviation) {
    return model_.add(name, at::empty(shape, at::kFloat).normal_(0, deviation, generator_));
  }

  Linear linear(const std::string& name, std::int64_t in, std::int64_t out) {
    const bool biased = model_.config_.shape == ModelShape::roformer;
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    const auto uniform = [&](at::IntArrayRef shape) {
      return at::empty(shape, at::kFloat).uniform_(-bound, bound, generator_);
    };
    const bool bert = model_.config_.init == Init::bert;
    Linear result;
    result.weight = bert ? normal(name + ".weight", {out, in}, kDeviation)
                         : model_.add(name + ".weight", uniform({out, in}));
    if (biased) result.bias = model_.add(name + ".bias", bert ? at::zeros({out}) : uniform({out}));
    return result;
  }

  Norm norm(const std::string& name) {
    const std::int64_t width = model_.config_.width;
    Norm result{model_.add(name + ".weight", at::ones({width})), {}};
    if (model_.config_.shape == ModelShape::roformer)
      result.bias = model_.add(name + ".bias", at::zeros({width}));
    return result;
  }

 private:
  Transformer& model_;
  at::Generator generator_;
};

struct Transformer::Pass {
  ScaleRule rule;
  TorchOptions options;
  at::Tensor rotary;  // undefined: no rotation
  at::Tensor scales;  // per row, if the operator does not compute them from the rule
  bool factors;       // whether learned factors apply
  at::Generator dropout;
  const std::function<void(const LayerAttention&)>& observer;
};

at::Tensor Transformer::Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor Transformer::Norm::operator()(const at::Tensor& x) const {
  if (bias.defined()) return at::layer_norm(x, weight.sizes(), weight, bias, kLayerNormEpsilon);
  return at::rms_norm(x, weight.sizes(), weight, kRmsNormEpsilon);
}

Transformer::Transformer(const ModelConfig& config, const ModelRule& rule, std::uint64_t seed)
    : config_(config), rule_(rule) {
  validate(config);
  Start start(*this, seed);
  embedding_ = start.normal("embedding", {config.vocabulary, config.width}, kDeviation);
  if (config.embedding_norm) embedding_norm_ = start.norm("embedding_norm");
  if (config.positions == Positions::t5) {
    t5_table_ = start.normal(kPositionBias, {config.heads, kT5Buckets},
                             1 / std::sqrt(static_cast<double>(config.width)));
  }
  add_layers(start);
  if (config.shape == ModelShape::modern) final_norm_ = start.norm("final_norm");
  if (config.shape == ModelShape::roformer)
    output_bias_ = add("output_bias", at::zeros({config.vocabulary}));
}

at::Tensor Transformer::add(const std::string& name, at::Tensor value) {
  value.requires_grad_(true);
  parameters_.emplace_back(name, value);
  return value;
}

void Transformer::add_layers(Start& start) {
  const std::int64_t width = config_.width;
  const bool gated = config_.shape == ModelShape::modern;
  const std::int64_t hidden = gated ? gated_width(width) : 4 * width;
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    throw_if_interrupted();
    const std::string prefix = fmt::format("layers.{}.", i);
    layers_.push_back({.qkv = start.linear(prefix + "qkv", width, 3 * width),
                       .out = start.linear(prefix + "out", width, width),
                       .attention_norm = start.norm(prefix + "attention_norm"),
                       .up = start.linear(prefix + "up", width, gated ? 2 * hidden : hidden),
                       .down = start.linear(prefix + "down", hidden, width),
                       .feed_forward_norm = start.norm(prefix + "feed_forward_norm"),
                       .factor = {}});
    if (rule_.learned) layers_.back().factor = add(prefix + "factor", at::ones({config_.heads}));
  }
}

Transformer::Pass Transformer::prepare(std::int64_t length, const Look& look) const {
  const Mask mask = mask_of(config_, look.window);
  Pass pass{.rule = look.rule.value_or(rule_.rule),
            .options = {.causal = mask.causal,
                        .window_left = mask.window_left,
                        .window_right = mask.window_right,
                        .bias = position_bias(config_, t5_table_, length)},
            .rotary = {},
            .scales = {},
            .factors = rule_.learned && !look.rule,
            .dropout = look.dropout,
            .observer = look.observer};
  if (const std::int64_t dim = rotary_dim(config_); dim > 0)
    pass.rotary = rotary_table(length, dim);
  const std::int64_t counted = look.hidden_count ? -1 : look.window;
  const auto of_rule = [&](RuleNumber number) {
    return row_numbers(config_, pass.rule, number, length, counted);
  };
  if (pass.factors || look.hidden_count) pass.scales = of_rule(&ScaleRule::lambda);
  // With given scales the operator does not scale the bias.
  if (look.hidden_count && pass.options.bias.defined())
    pass.options.bias = pass.options.bias * of_rule(&ScaleRule::on_bias).unsqueeze(-1);
  return pass;
}

at::Tensor Transformer::drop(const at::Tensor& x, Pass& pass) const {
  if (!pass.dropout.defined() || config_.dropout == 0) return x;
  const double kept = 1 - config_.dropout;
  return x * at::empty_like(x).bernoulli_(kept, pass.dropout).div_(kept);
}

at::Tensor Transformer::attend(const Layer& layer, const at::Tensor& h, const Pass& pass) const {
  // One projection for q, k and v; the operator reads the slices in place.
  const auto parts = layer.qkv(h).unflatten(-1, {3, config_.heads, config_.head_dim()}).unbind(2);
  const auto turned = [&](const at::Tensor& x) {
    return (pass.rotary.defined() ? rotate(x, pass.rotary) : x).transpose(1, 2);
  };
  const auto score_side = [&](const at::Tensor& x) {
    return rule_.unit ? of_unit_length(turned(x)) : turned(x);
  };
  const at::Tensor q = score_side(parts[0]), k = score_side(parts[1]), v = parts[2].transpose(1, 2);
  TorchOptions options = pass.options;
  if (pass.scales.defined())
    options.lambda = pass.factors ? layer.factor.unsqueeze(-1) * pass.scales : pass.scales;
  const TorchAttention attention = torch_attention(q, k, v, pass.rule, options);
  if (pass.observer) pass.observer({q, k, v, pass.rule, options, attention});
  return layer.out(attention.output.transpose(1, 2).flatten(2));
}

at::Tensor Transformer::feed_forward(const Layer& layer, const at::Tensor& h) const {
  if (config_.shape == ModelShape::roformer) return layer.down(at::gelu(layer.up(h)));
  const auto parts = layer.up(h).chunk(2, -1);
  return layer.down(at::silu(parts[0]) * parts[1]);
}

at::Tensor Transformer::forward(const at::Tensor& tokens, const at::Tensor& positions,
                                const Look& look) const {
  Pass pass = prepare(tokens.size(1), look);
  at::Tensor h = at::embedding(embedding_, tokens);
  if (config_.embedding_norm) h = embedding_norm_(h);
  h = drop(h, pass);
  for (const Layer& layer : layers_) {
    if (config_.shape == ModelShape::roformer) {
      h = layer.attention_norm(h + drop(attend(layer, h, pass), pass));
      h = layer.feed_forward_norm(h + drop(feed_forward(layer, h), pass));
    } else {
      h = h + drop(attend(layer, layer.attention_norm(h), pass), pass);
      h = h + drop(feed_forward(layer, layer.feed_forward_norm(h)), pass);
    }
  }
  h = h.flatten(0, 1).index_select(0, positions);
  if (config_.shape == ModelShape::modern) h = final_norm_(h);
  return at::linear(h, embedding_,
                    output_bias_.defined() ? std::optional(output_bias_) : std::nullopt);
}

std::int64_t Transformer::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) count += parameter.numel();
  return count;
}

}  // namespace isentrope::lab
