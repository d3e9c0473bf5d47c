#include "src/gpu/check.h"

#include <string>
#include <string_view>

#include "src/call/arguments.h"
#include "src/call/validate.h"
#include "src/gpu/driver.h"

namespace isentrope::cuda {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 31;

class Requirements {
 public:
  Requirements(const char* function, int ordinal) : check_(function), ordinal_(ordinal) {}

  void supported(const AttentionInput& in, const AttentionOptions& options) const {
    if (in.k.type == DType::i8) {
      check_.fail("k_scale", "be absent on a device: no kernel is compiled for it", "one");
    }
    check_.type("k", in.k.type, in.q.type, "q is");
    if (options.bias) check_.type("bias", options.bias.type, DType::f32, "kernels read it");
    if (options.bias_slopes || options.bias_hides) {
      check_.fail("bias_slopes and bias_hides", "be absent on a device", "one");
    }
    if (in.pages.has_sequences()) {
      check_.fail(in.pages.cu_seq_q ? "cu_seq_q" : "seqused_k",
                  "be absent on a device: no kernel is compiled for it", "one");
    }
    for (const std::int64_t count : {in.q.extents[2], in.keys()}) {
      if (count >= kMostRows) {
        check_.fail("queries and keys", "be below 2^31 on a device", std::to_string(count));
      }
    }
  }

  void absent(const char* name, const void* data) const {
    if (data) check_.fail(name, "be absent on a device: no kernel is compiled for it", "one");
  }

  // The driver reports host memory that it does not own as unknown.
  void on_device(std::string_view name, const void* data) const {
    if (data == nullptr) return;
    int found = -1;
    const auto address = reinterpret_cast<Address>(data);
    const bool known = driver().pointer_attribute(&found, kOrdinalOfPointer, address) == 0;
    if (known && found == ordinal_) return;
    check_.fail(std::string(name), "be on device " + std::to_string(ordinal_),
                known ? "device " + std::to_string(found) : "memory of the host");
  }

  // Kernels take no stride along the last axis of a list or of the pages of a sequence.
  template <typename View>
  void list(std::string_view name, const View& view) const {
    on_device(name, view.data);
    if (view && view.extents.back() > 1 && view.strides.back() != 1) {
      check_.fail(std::string(name), "be contiguous on a device",
                  "a stride of " + std::to_string(view.strides.back()));
    }
  }

  template <typename View>
  void contiguous(std::string_view name, const View& view) const {
    on_device(name, view.data);
    const auto whole = contiguous_view(view.data, view.extents);
    if (view && view.strides != whole.strides) {
      check_.fail(std::string(name), "be contiguous on a device", "other strides");
    }
  }

  void arguments(const AttentionInput& in, const AttentionOptions& options) const {
    on_device("q", in.q.data);
    on_device("k", in.k.data);
    on_device("v", in.v.data);
    list("block_table", in.pages.block_table);
    for_each_argument(options, [&](std::string_view name, const auto& argument) {
      if constexpr (requires { argument.strides; }) {
        if (argument.strides.size() == 1) {
          list(name, argument);
        } else {
          on_device(name, argument.data);
        }
      }
    });
  }

  template <typename Statistics>
  void statistics(const std::string& prefix, const Statistics& views) const {
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view) {
          contiguous(prefix + std::string(statistic.name), view);
        },
        views);
  }

 private:
  Checks check_;
  int ordinal_;
};

}  // namespace

void check_forward(const AttentionInput& in, const AttentionOptions& options,
                   const AttentionOutput& out, int ordinal) {
  validate_input("attention", in, options);
  validate_output(in, options, out);
  const Requirements require("attention", ordinal);
  require.supported(in, options);
  require.arguments(in, options);
  require.on_device("output", out.output.data);
  require.statistics("", out.statistics);
  require.absent("received", out.received.data);
}

void check_backward(const AttentionInput& in, const AttentionOptions& options,
                    const AttentionGradientInput& gradient, const AttentionGradients& result,
                    int ordinal) {
  validate_gradients(in, options, gradient, result);
  const Requirements require("attention_backward", ordinal);
  require.supported(in, options);
  require.arguments(in, options);
  require.on_device("output", gradient.output.data);
  require.on_device("d_output", gradient.d_output.data);
  require.statistics("", gradient.statistics);
  require.statistics("d_", gradient.d_statistics);
  for (const auto& [name, tensor] :
       {std::pair{"dq", &result.dq}, {"dk", &result.dk}, {"dv", &result.dv}}) {
    require.on_device(name, tensor->data);
  }
  require.contiguous("d_bias", result.d_bias);
  require.contiguous("d_lambda", result.d_lambda);
  require.contiguous("d_sinks", result.d_sinks);
}

}  // namespace isentrope::cuda
