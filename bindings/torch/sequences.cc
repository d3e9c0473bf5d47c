#include "bindings/torch/sequences.h"

#include <algorithm>
#include <utility>

#include "bindings/torch/batches.h"
#include "src/call/validate.h"

namespace isentrope::stable {

TorchTensor page_table(const std::string& function, TorchTensor table, std::int64_t pages) {
  if (table.dtype() != aoti_torch_dtype_int64()) return table;
  const auto from = view_of<std::int64_t, 2>("block_table", table);
  TorchTensor narrow(from.extents, aoti_torch_dtype_int32());
  auto* to = static_cast<std::int32_t*>(narrow.write());
  for (std::int64_t batch = 0; batch < from.extents[0]; ++batch) {
    for (std::int64_t page = 0; page < from.extents[1]; ++page) {
      const std::int64_t index = from(batch, page);
      if (!std::in_range<std::int32_t>(index)) {
        throw Error("[" + function + "] block_table must hold page numbers below " +
                    std::to_string(pages) + "; got " + std::to_string(index));
      }
      *to++ = static_cast<std::int32_t>(index);
    }
  }
  return narrow;
}

void Sequences::put_pages(AttentionInput& in) {
  block_table_ = page_table(function_, std::move(block_table_), in.k.extents[0]);
  in.pages.block_table = view_of<std::int32_t, 2>("block_table", block_table_);
  const std::int64_t batches = in.q.extents[0], pages = in.pages.block_table.extents[0];
  if (keys().extents[0] == batches && pages == batches) return;
  throw Error("[" + function_ + "] block_table and seqused_k must have a row for each of the " +
              std::to_string(batches) + " sequences; got " + std::to_string(pages) + " and " +
              std::to_string(keys().extents[0]));
}

void Sequences::validate(AttentionInput in, const AttentionOptions& options) const {
  const auto of_sequences = keys();
  const std::int64_t batches = in.q.extents[0], page_size = in.k.extents[2];
  const std::int64_t columns = in.pages.block_table.extents[1];
  std::int64_t fewest = batches > 0 ? of_sequences(0) : 0, most = fewest;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const std::int64_t count = of_sequences(batch);
    if (page_size > 0 && (count < 0 || count / page_size + (count % page_size > 0) > columns)) {
      throw Error("[" + function_ +
                  "] seqused_k must be at least 0 and fit the pages that block_table has for a "
                  "sequence (" +
                  std::to_string(columns) + ", of " + std::to_string(page_size) +
                  " keys each); got " + std::to_string(count));
    }
    fewest = std::min(fewest, count);
    most = std::max(most, count);
  }
  for (const std::int64_t count : {most, fewest}) {
    in.pages.keys = count;
    validate_input(function_.c_str(), in, options);
  }
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    validate_tables(function_.c_str(), batch_of(in, batch, of_sequences(batch)),
                    batch_of(options, batch));
  }
}

}  // namespace isentrope::stable
