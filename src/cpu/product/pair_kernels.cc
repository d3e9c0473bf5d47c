#include "src/cpu/product/pair_kernels.h"

#include <array>
#include <atomic>

namespace isentrope {
namespace {

// The best first, where a CPU has several.
std::array<const PairKernels*, 3> all() {
  return {amx_pair_kernels(), avx512_pair_kernels(), neon_pair_kernels()};
}

const PairKernels* best() {
  for (const PairKernels* kernels : all())
    if (kernels && !kernels->why_not()) return kernels;
  return nullptr;
}

std::atomic<const PairKernels*>& chosen() {
  static std::atomic<const PairKernels*> kernels = best();
  return kernels;
}

}  // namespace

const PairKernels* pair_kernels() { return chosen().load(std::memory_order_relaxed); }

void use_pair_kernels(const PairKernels* kernels) { chosen() = kernels; }

std::size_t bytes_of_pair_vectors() {
  for (const PairKernels* kernels : all())
    if (kernels) return kernels->columns / 2 * sizeof(Pair);  // a panel is two vectors wide
  return 0;
}

std::string explain_pair_kernels() {
  const PairKernels* const own = pair_kernels();
  std::string text = own ? own->name : "no instructions of their own: in f32";
  for (const PairKernels* kernels : all()) {
    if (kernels == own) break;
    if (!kernels) continue;
    const char* const reason = kernels->why_not();
    text += std::string("; not ") + kernels->name + ": " + (reason ? reason : "others were chosen");
  }
  return text;
}

}  // namespace isentrope
