#include "src/gpu/check.h"

#include <string>
#include <string_view>

#include "src/call/arguments.h"
#include "src/call/validate.h"
#include "src/gpu/driver.h"

namespace isentrope::cuda {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 31;

void check_supported(const AttentionInput& in, const AttentionOptions& options) {
  const Checks check("attention");
  const auto absent = [&](const char* name, bool given) {
    if (given) check.fail(name, "be absent on a device: no kernel is compiled for it", "one");
  };
  absent("lambda", static_cast<bool>(options.lambda));
  absent("attn_mask", static_cast<bool>(options.attn_mask));
  absent("bias", static_cast<bool>(options.bias));
  absent("sinks", static_cast<bool>(options.sinks));
  absent("soft_cap", options.soft_cap > 0);
  absent("dropout_p", options.dropout_p > 0);
  absent("dilation", options.mask.dilation > 1);
  absent("k_scale", in.k.type == DType::i8);
  for (const std::int64_t count : {in.q.extents[2], in.keys()}) {
    if (count >= kMostRows) {
      check.fail("queries and keys", "be below 2^31 on a device", std::to_string(count));
    }
  }
}

class Lies {
 public:
  explicit Lies(int ordinal) : ordinal_(ordinal) {}

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

 private:
  int ordinal_;
  Checks check_{"attention"};
};

}  // namespace

void check_call(const AttentionInput& in, const AttentionOptions& options,
                const AttentionOutput& out, int ordinal) {
  validate_input("attention", in, options);
  validate_output(in, options, out);
  check_supported(in, options);
  const Lies lies(ordinal);
  lies.on_device("q", in.q.data);
  lies.on_device("k", in.k.data);
  lies.on_device("v", in.v.data);
  const Checks check("attention");
  // Kernels take no stride along the last axis of a list or of the pages of a sequence.
  const auto check_list = [&](const char* name, const auto& list) {
    lies.on_device(name, list.data);
    if (list && list.extents.back() > 1 && list.strides.back() != 1) {
      check.fail(name, "be contiguous on a device",
                 "a stride of " + std::to_string(list.strides.back()));
    }
  };
  check_list("block_table", in.pages.block_table);
  for (const MaskList& part : kMaskLists) check_list(part.name, options.mask.*part.member);
  lies.on_device("output", out.output.data);
  for_each_statistic(
      [&](const Statistic& statistic, const auto& view) {
        lies.on_device(statistic.name, view.data);
        const auto whole = contiguous_view(view.data, view.extents);
        if (view && view.strides != whole.strides) {
          check.fail(std::string(statistic.name), "be contiguous on a device", "other strides");
        }
      },
      out.statistics);
}

}  // namespace isentrope::cuda
