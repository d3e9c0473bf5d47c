// call_on_device KERNELS WANTED LINE: computes a problem of `isentrope check` on the driver's
// device, or with bwd=1 its gradients. WANTED: lse, entropy or all; none: lse, and with bwd=1 no
// gradient of it. Writes the addresses of the arguments as JSON. ISENTROPE_IN=C or JAX makes the
// call through the C interface or as a handler of XLA.

#include <cstring>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "isentrope/cuda/attention.h"
#include "isentrope/error.h"
#include "src/call/arguments.h"
#include "tests/src/gpu/call_in_jax.h"
#include "tests/support/calls_in_c.h"
#include "tools/check/data.h"

using namespace isentrope;

namespace {

class OnDevice {
 public:
  explicit OnDevice(const cuda::Device& device) : device_(device) {}

  // Copies host data to the device, or allocates a result. ISENTROPE_MISALIGNED: the name of a
  // result that begins 4 bytes later.
  void* put(const std::string& name, const void* data, std::int64_t bytes) {
    const char* misaligned = std::getenv("ISENTROPE_MISALIGNED");
    const int offset = misaligned != nullptr && name == misaligned ? 4 : 0;
    cuda::Memory& memory = all_.emplace_back(device_, static_cast<std::size_t>(bytes + offset));
    if (data != nullptr) memory.write(data);
    names_[name] = reinterpret_cast<std::uint64_t>(memory.data());
    return static_cast<char*>(memory.data()) + offset;
  }
  void put(const std::string& name, ConstTensor& tensor) {
    if (!tensor) return;
    std::int64_t count = size_of(tensor.type);
    for (const std::int64_t extent : tensor.extents) count *= extent;
    tensor.data = put(name, tensor.data, count);
  }
  template <typename T, std::size_t Rank>
  void put(const std::string& name, View<const T, Rank>& view) {
    if (!view) return;
    std::int64_t count = sizeof(T);
    for (const std::int64_t extent : view.extents) count *= extent;
    view.data = static_cast<const T*>(put(name, view.data, count));
  }
  [[nodiscard]] const nlohmann::json& names() const { return names_; }

 private:
  const cuda::Device& device_;
  std::list<cuda::Memory> all_;
  nlohmann::json names_ = nlohmann::json::object();
};

bool is_wanted(const std::string& wanted, const std::string& name) {
  return wanted == "all" || name == "lse" || name == wanted;
}

template <typename Statistics>
Statistics statistics_of(const std::string& wanted, const std::string& prefix,
                         const std::array<std::int64_t, 3>& rows, OnDevice& on) {
  Statistics result;
  const std::int64_t count = rows[0] * rows[1] * rows[2];
  for_each_statistic(
      [&](const Statistic& statistic, auto& view) {
        const std::string name(statistic.name);
        if (!is_wanted(wanted, name)) return;
        if (!prefix.empty() && !statistic.differentiable()) return;
        using Number = std::remove_pointer_t<decltype(view.data)>;
        const auto bytes = static_cast<std::int64_t>(sizeof(Number)) * count;
        void* data = on.put(prefix + name, nullptr, bytes);
        view = contiguous_view(static_cast<Number*>(data), rows);
      },
      result);
  return result;
}

Tensor tensor(const std::string& name, DType type, const std::array<std::int64_t, 4>& shape,
              OnDevice& on) {
  const std::int64_t bytes = size_of(type) * shape[0] * shape[1] * shape[2] * shape[3];
  Tensor result = contiguous_view(static_cast<BFloat16*>(on.put(name, nullptr, bytes)), shape);
  result.type = type;
  return result;
}

View<float, 4> numbers(const std::string& name, const std::array<std::int64_t, 4>& shape,
                       OnDevice& on) {
  return contiguous_view(static_cast<float*>(tensor(name, DType::f32, shape, on).data), shape);
}

// The functions of a language.
struct Language {
  std::function<void(const AttentionInput&, const AttentionOptions&, const AttentionOutput&)>
      forward;
  std::function<void(const AttentionInput&, const AttentionOptions&, const AttentionGradientInput&,
                     const AttentionGradients&)>
      backward;
};

// Returns those of ISENTROPE_IN, which is read here.
Language language_of(const char* kernels, const cuda::Place& place) {
  const char* in = std::getenv("ISENTROPE_IN");
  const std::string name = in == nullptr ? "C++" : in;
  const auto given = [=](auto function, auto... more) {
    return [=](const auto&... arguments) { function(arguments..., more...); };
  };
  if (name == "C") {
    return {given(in_c::forward_on_device, kernels, place.stream),
            given(in_c::backward_on_device, kernels, place.stream)};
  }
  if (name == "JAX") {
    return {given(in_jax::attention_forward, kernels, place.stream),
            given(in_jax::attention_backward, kernels, place.stream)};
  }
  return {given(cuda::attention_forward, place), given(cuda::attention_backward, place)};
}

void run_forward(const AttentionInput& in, const AttentionOptions& options,
                 const std::string& wanted, const Language& language, OnDevice& on) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  const AttentionOutput out{
      .output = tensor("output", in.q.type, {batch, heads, queries, in.v.extents[3]}, on),
      .statistics = statistics_of<RowStatistics>(wanted, "", {batch, heads, queries}, on)};
  language.forward(in, options, out);
}

void run_backward(const AttentionInput& in, const AttentionOptions& options,
                  const std::string& wanted, const Language& language, OnDevice& on) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  const DType type = in.q.type;
  const std::array shape{batch, heads, queries, in.v.extents[3]};
  const std::array rows{batch, heads, queries};
  AttentionGradientInput given{
      .output = tensor("output", type, shape, on),
      .statistics = statistics_of<ConstRowStatistics>(wanted, "", rows, on),
      .d_output = tensor("d_output", type, shape, on)};
  if (wanted != "none") {
    given.d_statistics = statistics_of<ConstRowStatistics>(wanted, "d_", rows, on);
  }
  AttentionGradients result{.dq = tensor("dq", type, in.q.extents, on),
                            .dk = tensor("dk", type, in.k.extents, on),
                            .dv = tensor("dv", type, in.v.extents, on)};
  if (options.bias) {
    result.d_bias = numbers("d_bias", {batch, heads, queries, in.k.extents[2]}, on);
  }
  if (options.lambda) {
    float* data = numbers("d_lambda", {1, batch, heads, queries}, on).data;
    result.d_lambda = contiguous_view(data, rows);
  }
  if (options.sinks) {
    float* data = numbers("d_sinks", {1, 1, 1, heads}, on).data;
    result.d_sinks = contiguous_view(data, std::array{heads});
  }
  language.backward(in, options, given, result);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw Error("[call_on_device] arguments must be KERNELS WANTED LINE; got others");
  const check::Data data(check::parse_problem(argv[3]));
  const cuda::Device device(argv[1]);
  OnDevice on(device);
  AttentionInput in = data.input();
  AttentionOptions options = data.options();
  on.put("q", in.q);
  on.put("k", in.k);
  on.put("v", in.v);
  on.put("block_table", in.pages.block_table);
  const std::string kept = std::getenv("ISENTROPE_ON_HOST") == nullptr ? "" : "key_end";
  for_each_argument(options, [&](std::string_view name, auto& argument) {
    if constexpr (requires { argument.strides; }) {
      if (name != kept) on.put(std::string(name), argument);
    }
  });
  if (std::getenv("ISENTROPE_STRIDED") != nullptr) options.mask.key_end.strides[0] = 2;
  int stream = 0;
  const cuda::Place place{device, &stream};
  const auto& run = data.problem.backward ? run_backward : run_forward;
  run(in, options, argv[2], language_of(argv[1], place), on);
  nlohmann::json told = on.names();
  told["stream"] = reinterpret_cast<std::uint64_t>(&stream);
  std::cout << told << '\n';
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
