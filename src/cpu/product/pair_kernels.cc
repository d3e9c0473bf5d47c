#include "src/cpu/product/pair_kernels.h"

#include <array>
#include <atomic>

namespace isentrope {
namespace {

// Returns the kernels in order of preference.
std::array<const PairKernels*, 4> all() {
  return {amx_pair_kernels(DType::bf16), amx_pair_kernels(DType::f16), avx512_pair_kernels(),
          neon_pair_kernels()};
}

// Returns why the kernels are not used by default; null if they may be.
const char* why_not(const PairKernels& kernels) {
  const char* const reason = kernels.why_not();
  return reason || !kernels.why_slow ? reason : kernels.why_slow();
}

const PairKernels* best(DType type) {
  for (const PairKernels* kernels : all())
    if (kernels && kernels->type == type && !why_not(*kernels)) return kernels;
  return nullptr;
}

std::atomic<const PairKernels*>& chosen(DType type) {
  static std::atomic<const PairKernels*> bf16 = best(DType::bf16), f16 = best(DType::f16);
  return type == DType::bf16 ? bf16 : f16;
}

}  // namespace

const PairKernels* pair_kernels(DType type) {
  return size_of(type) == 2 ? chosen(type).load(std::memory_order_relaxed) : nullptr;
}

void use_pair_kernels(DType type, const PairKernels* kernels) { chosen(type) = kernels; }

std::size_t bytes_of_pair_vectors() {
  for (const PairKernels* kernels : all())
    if (kernels) return kernels->columns / 2 * sizeof(Pair);  // a panel is two vectors wide
  return 0;
}

std::string explain_pair_kernels(DType type) {
  const PairKernels* const selected = pair_kernels(type);
  std::string text = selected ? selected->name : "those of f32";
  for (const PairKernels* kernels : all()) {
    if (kernels == selected) break;
    if (!kernels || kernels->type != type) continue;
    const char* const reason = why_not(*kernels);
    text += std::string("; not ") + kernels->name + ": " + (reason ? reason : "others were chosen");
  }
  return text;
}

}  // namespace isentrope
