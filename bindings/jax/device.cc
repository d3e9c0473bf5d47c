#include <map>
#include <mutex>
#include <utility>

#include "bindings/jax/passes.h"
#include "isentrope/error.h"

namespace isentrope::jax {
namespace {

// Opens each device once. None is closed, because XLA may call until the process ends.
cuda::Place place_of(const Call& part, const OnDevice& on) {
  static std::mutex mutex;
  static auto& devices = *new std::map<std::pair<std::string, int>, cuda::Device>();
  const std::lock_guard lock(mutex);
  const std::string kernels = part.kernels();
  return {devices.try_emplace({kernels, on.ordinal}, kernels, on.ordinal).first->second, on.stream};
}

void must_be_absent(bool is_there, const std::string& what) {
  if (is_there) throw Error("[attention] " + what + " must be absent on a device; got it");
}

}  // namespace

void forward_on_device(Call& part, const OnDevice& on) {
  must_be_absent(part.in_float64(), "float64");
  // It is counted in int64 there.
  must_be_absent(static_cast<bool>(part.view<std::int32_t, 3>("support")), "support");
  cuda::attention_forward(part.input(), part.options(), output_of(part), place_of(part, on));
}

void backward_on_device(Call& part, const OnDevice& on) {
  must_be_absent(part.in_float64(), "float64");
  cuda::attention_backward(part.input(), part.options(), upstream_of(part), gradients_of(part),
                           place_of(part, on));
}

}  // namespace isentrope::jax
