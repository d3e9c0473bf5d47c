// Sequences of a decode step: their pages in a cache, and their numbers of keys.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/torch/values.h"
#include "isentrope/attention.h"

namespace isentrope::stable {

// Returns the page table as the kernels' int32. Throws Error, with the number, for larger pages.
[[nodiscard]] TorchTensor page_table(const std::string& function, TorchTensor table,
                                     std::int64_t pages);

class Sequences {
 public:
  // Reads block_table and seqused_k. `function` begins error messages.
  Sequences(std::string function, Arguments& from)
      : function_(std::move(function)), block_table_(from.tensor()), keys_(from.tensor()) {}

  [[nodiscard]] View<const std::int64_t, 1> keys() const {
    return view_of<std::int64_t, 1>("seqused_k", keys_);
  }
  // Returns the number of keys that fit the pages of a sequence; after put_pages().
  [[nodiscard]] std::int64_t most_keys(const AttentionInput& in) const {
    return in.pages.block_table.extents[1] * in.k.extents[2];
  }
  // Sets views of this object.
  void put_pages(AttentionInput& in);
  // Validates everything before anything is written: arguments by sequence for the batch, because
  // each sequence is a call. The fewest and the most keys cover lengths between.
  void validate(AttentionInput in, const AttentionOptions& options) const;

 private:
  const std::string function_;
  TorchTensor block_table_;
  const TorchTensor keys_;
};

}  // namespace isentrope::stable
