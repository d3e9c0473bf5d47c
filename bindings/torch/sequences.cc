#include "bindings/torch/sequences.h"

#include <algorithm>
#include <string>
#include <utility>

#include "bindings/torch/float64.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

// Returns the page table as the kernels' int32.
TorchTensor page_table(TorchTensor table, std::int64_t pages) {
  if (table.dtype() != aoti_torch_dtype_int64()) return table;
  const auto from = view_of<std::int64_t, 2>("block_table", table);
  TorchTensor narrow(from.extents, aoti_torch_dtype_int32());
  auto* to = static_cast<std::int32_t*>(narrow.write());
  for (std::int64_t batch = 0; batch < from.extents[0]; ++batch) {
    for (std::int64_t page = 0; page < from.extents[1]; ++page) {
      const std::int64_t index = from(batch, page);
      if (!std::in_range<std::int32_t>(index)) {
        throw Error("[attention] block_table must hold page numbers below " +
                    std::to_string(pages) + "; got " + std::to_string(index));
      }
      *to++ = static_cast<std::int32_t>(index);
    }
  }
  return narrow;
}

}  // namespace

std::int64_t keys_of_table(const AttentionInput& in) {
  const std::int64_t page_size = std::max<std::int64_t>(in.k.extents[2], 1);
  return std::min(in.pages.block_table.extents[1], kMostKeys / page_size) * page_size;
}

void Sequences::put_pages(AttentionInput& in) {
  block_table_ = page_table(std::move(block_table_), in.k.extents[0]);
  in.pages.block_table = view_of<std::int32_t, 2>("block_table", block_table_);
  in.pages.seqused_k = view_of<std::int64_t, 1>("seqused_k", keys_);
  if (starts_) in.pages.cu_seq_q = view_of<std::int64_t, 1>("cu_seq_q", starts_);
  const std::int64_t sequences = in.sequences(), pages = in.pages.block_table.extents[0];
  in.pages.keys = keys_of_table(in);
  // Views without data would count as not given.
  static constexpr std::int32_t kNoPage = 0;
  static constexpr std::int64_t kNoNumber = 0;
  if (!in.pages.block_table) in.pages.block_table.data = &kNoPage;
  if (!in.pages.seqused_k) in.pages.seqused_k.data = &kNoNumber;
  if (in.pages.seqused_k.extents[0] == sequences && pages == sequences) return;
  throw Error("[attention] block_table and seqused_k must have a row for each of the " +
              std::to_string(sequences) + " sequences; got " + std::to_string(pages) + " and " +
              std::to_string(in.pages.seqused_k.extents[0]));
}

AttentionInput over_cache(const CallArguments& call, const TorchTensor& k_scale,
                          const TorchTensor& v_scale, Sequences& sequences) {
  AttentionInput in;
  if (k_scale) {
    in = {.q = number_view("q", call.q),
          .k = view_of<std::int8_t, 4>("k", call.k),
          .v = view_of<std::int8_t, 4>("v", call.v),
          .k_scale = view_of<float, 4>("k_scale", k_scale),
          .v_scale = view_of<float, 4>("v_scale", v_scale)};
  } else {
    in = shapes_of(call);
  }
  sequences.put_pages(in);
  return in;
}

}  // namespace isentrope::stable
