#include "isentrope/write_cache.h"

#include <cstddef>
#include <cstring>
#include <string>

#include "src/call/array_overlaps.h"

namespace isentrope {
namespace {

void validate(const ConstTensor& k, const ConstTensor& v, const Tensor& k_cache,
              const Tensor& v_cache, const View<const std::int64_t, 1>& slots) {
  ArrayOverlaps check("write_cache");
  for (const auto& [name, extents] : {std::pair{"k", k.extents},
                                      {"v", v.extents},
                                      {"k_cache", k_cache.extents},
                                      {"v_cache", v_cache.extents}}) {
    for (const std::int64_t extent : extents) {
      if (extent < 0) check.fail(name, "have no negative extent", text_of(extents));
    }
  }
  const auto [pages, kv_heads, page_size, dim] = k_cache.extents;
  const std::int64_t tokens = k.extents[2], value_dim = v_cache.extents[3];
  check.read("k", k, Shape<4>{1, kv_heads, tokens, dim});
  check.read("v", v, Shape<4>{1, kv_heads, tokens, value_dim});
  check.read("slot_mapping", slots, Shape<1>{tokens});
  check.write("k_cache", k_cache, k_cache.extents);
  check.write("v_cache", v_cache, Shape<4>{pages, kv_heads, page_size, value_dim});
  check.not_codes("k", k.type);
  check.type("v", v.type, k.type, "k is");
  check.type("k_cache", k_cache.type, k.type, "k is");
  check.type("v_cache", v_cache.type, k.type, "k is");
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int64_t slot = slots(token);
    if (slot >= 0 && (page_size == 0 || slot / page_size >= pages)) {
      check.fail("slot_mapping",
                 "hold slots of the " + std::to_string(pages) + " pages of " +
                     std::to_string(page_size) + " keys",
                 std::to_string(slot));
    }
  }
}

// Copies the rows of one head to their slots.
void write_head(const ConstTensor& rows, const Tensor& cache,
                const View<const std::int64_t, 1>& slots, std::int64_t head) {
  const std::int64_t size = size_of(rows.type), page_size = cache.extents[2];
  const std::int64_t columns = rows.extents[3];
  const bool contiguous = rows.strides[3] == 1 && cache.strides[3] == 1;
  const auto* from_head = static_cast<const std::byte*>(rows.data) + head * rows.strides[1] * size;
  auto* to_head = static_cast<std::byte*>(cache.data) + head * cache.strides[1] * size;
  for (std::int64_t token = 0; token < slots.extents[0]; ++token) {
    const std::int64_t slot = slots(token);
    if (slot < 0) continue;
    const std::byte* from = from_head + token * rows.strides[2] * size;
    std::byte* to =
        to_head +
        (slot / page_size * cache.strides[0] + slot % page_size * cache.strides[2]) * size;
    if (contiguous) {
      std::memcpy(to, from, static_cast<std::size_t>(columns * size));
      continue;
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      std::memcpy(to + c * cache.strides[3] * size, from + c * rows.strides[3] * size,
                  static_cast<std::size_t>(size));
    }
  }
}

}  // namespace

void write_cache(const ConstTensor& k, const ConstTensor& v, const Tensor& k_cache,
                 const Tensor& v_cache, const View<const std::int64_t, 1>& slot_mapping,
                 const ParallelFor& parallel_for) {
  validate(k, v, k_cache, v_cache, slot_mapping);
  if (slot_mapping.extents[0] == 0) return;
  // A thread writes all tokens of a head, in order: the last token of a slot remains.
  parallel_for(2 * k.extents[1], [&](std::int64_t task) {
    const bool of_keys = task % 2 == 0;
    write_head(of_keys ? k : v, of_keys ? k_cache : v_cache, slot_mapping, task / 2);
  });
}

}  // namespace isentrope
