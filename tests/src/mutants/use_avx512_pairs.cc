// Selects the products of AVX-512 BF16, also on CPUs whose default is another, so that mistakes in
// the code around them are seen.

#include "src/cpu/product/pair_kernels.h"

namespace isentrope {
namespace {

[[maybe_unused]] const bool selected = [] {
  use_pair_kernels(DType::bf16, avx512_pair_kernels());
  return true;
}();

}  // namespace
}  // namespace isentrope
