#include "tests/src/gpu/call_in_jax.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "bindings/jax/passes.h"
#include "src/call/arguments.h"

namespace isentrope::in_jax {
namespace {

// A call's arrays by name, in JAX's order of axes.
class Arrays {
 public:
  Arrays(const AttentionInput& in, const AttentionOptions& options, const char* kernels) {
    text_["kernels"] = kernels;
    text_["batch"] = in.q.extents[0];
    text_["parts"] = 1;
    add("q", in.q);
    add("k", in.k);
    add("v", in.v);
    for_each_argument(options, [&](const char* name, const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (requires { argument.strides; }) {
        if (argument) add(name, argument);
      } else if constexpr (std::is_same_v<Argument, ScaleRule>) {
        text_["options"][name] = argument.text();
      } else {
        text_["options"][name] = argument;
      }
    });
  }

  template <typename View>
  void add(const std::string& name, const View& view) {
    std::vector<std::int64_t> extents(view.extents.begin(), view.extents.end());
    if (extents.size() == 1) extents.insert(extents.begin(), 1);
    if (extents.size() > 2 && name != "bias" && name != "d_bias" && name != "attn_mask")
      std::swap(extents[1], extents[2]);
    text_["names"].push_back(name);
    arrays_.push_back(
        {type_of(view), const_cast<void*>(static_cast<const void*>(view.data)), extents});
  }

  template <typename Statistics>
  void add_statistics(const std::string& prefix, const Statistics& statistics) {
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          if (view) add(prefix + std::string(statistic.name), view);
        },
        statistics);
  }

  template <typename Pass>
  void run(const Pass& pass, void* stream) const {
    jax::Call(text_.dump(), arrays_).for_each_part([&](jax::Call& part) {
      pass(part, jax::OnDevice{stream, 0});
    });
  }

 private:
  static std::string_view type_of(const ConstTensor& tensor) {
    if (tensor.type == DType::f32) return "float32";
    return tensor.type == DType::bf16 ? "bfloat16" : "float16";
  }
  template <typename T, std::size_t Rank>
  static std::string_view type_of(const View<T, Rank>&) {
    if (sizeof(T) == 1) return "bool";
    return std::is_floating_point_v<T> ? "float32" : "int32";
  }

  nlohmann::json text_;
  std::vector<jax::Array> arrays_;
};

}  // namespace

void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const char* kernels, void* stream) {
  Arrays arrays(input, options, kernels);
  arrays.add("output", output.output);
  arrays.add_statistics("", output.statistics);
  arrays.run(jax::forward_on_device, stream);
}

void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const char* kernels, void* stream) {
  Arrays arrays(input, options, kernels);
  arrays.add("output", gradient.output);
  arrays.add_statistics("", gradient.statistics);
  arrays.add("d_output", gradient.d_output);
  arrays.add_statistics("d_", gradient.d_statistics);
  arrays.add("d_q", result.dq);
  arrays.add("d_k", result.dk);
  arrays.add("d_v", result.dv);
  if (result.d_bias) arrays.add("d_bias", result.d_bias);
  if (result.d_sinks) arrays.add("d_sinks", result.d_sinks);
  arrays.run(jax::backward_on_device, stream);
}

}  // namespace isentrope::in_jax
