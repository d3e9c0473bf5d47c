#include "src/cpu/product/bf16_pairs.h"

namespace isentrope {

const PairKernels* pair_kernels() {
  static const PairKernels* const best = []() -> const PairKernels* {
    // The best first, where a CPU has several.
    for (const PairKernels* kernels : {avx512_pair_kernels()}) {
      if (kernels && kernels->is_supported()) return kernels;
    }
    return nullptr;
  }();
  return best;
}

}  // namespace isentrope
