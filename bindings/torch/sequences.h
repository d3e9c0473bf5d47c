// Sequences of a paged cache: their pages, numbers of keys and packed queries.
#pragma once

#include <cstdint>

#include "bindings/torch/call.h"
#include "isentrope/attention.h"

namespace isentrope::stable {

// Returns the number of keys that a row of the page table has room for.
[[nodiscard]] std::int64_t keys_of_table(const AttentionInput& in);

class Sequences {
 public:
  static constexpr const char* kSchema = ", Tensor block_table, Tensor seqused_k, Tensor? cu_seq_q";
  explicit Sequences(Arguments& from) : block_table_(from), keys_(from), starts_(from) {}

  // Sets views of this object. Keys are counted up to what the table has pages for. Throws Error
  // for page numbers that int32 does not hold, and for lists of other lengths.
  void put_pages(AttentionInput& in);

 private:
  TorchTensor block_table_;
  const TorchTensor keys_;
  const OptionalTensor starts_;
};

// Returns the input over a cache, of 8-bit codes if these have scales.
[[nodiscard]] AttentionInput over_cache(const CallArguments& call, const TorchTensor& k_scale,
                                        const TorchTensor& v_scale, Sequences& sequences);

}  // namespace isentrope::stable
