// A call on a device, and the requirements and arguments that its kernels have in common.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/call/device_plan.h"
#include "src/gpu/launch.h"

namespace isentrope::cuda {

struct Rows;

struct Call {
  const AttentionInput& in;
  const AttentionOptions& options;
  Device::State& device;
  Handle stream;
  DevicePlan plan = device_plan(in, options);

  [[nodiscard]] std::int64_t batch() const { return in.q.extents[0]; }
  [[nodiscard]] std::int64_t heads() const { return in.q.extents[1]; }
  [[nodiscard]] std::int64_t kv_heads() const { return in.k.extents[1]; }
  [[nodiscard]] std::int64_t queries() const { return in.q.extents[2]; }
  [[nodiscard]] std::int64_t rows() const { return batch() * heads() * queries(); }
};

[[nodiscard]] constexpr std::int64_t blocks_of(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}
[[nodiscard]] inline Address address_of(const void* data) {
  return reinterpret_cast<Address>(data);
}
[[nodiscard]] std::string upper(std::string_view name);
// Returns the type by Triton's name.
[[nodiscard]] std::string pointer_to(DType type);

// Requires a kernel of tiles for the call's head dimensions, soft-cap, mask, bias, dropout and
// dilation.
[[nodiscard]] Needs tile_kernel(std::string_view kernel, const Call& call);

// A launch, and the one that recomputes programs with sums that are not finite, if a call may
// have some.
struct Repaired {
  Loaded first;
  std::optional<Loaded> repair;
};
[[nodiscard]] Repaired with_repair(const Call& call, Needs needs, bool checked);
// Launches both; the second returns at once if there is nothing to repair.
void launch(const Repaired& kernels, const Grid& grid, Arguments passed, Handle stream);

// Adds strides by the names stride_qb, stride_qh, ... or stride_mb, stride_mh, stride_mq, ...
void add_strides(Arguments& arguments, std::string_view array,
                 const std::array<std::int64_t, 4>& strides, std::string_view axes = "bhnd");

// Returns the arrays, strides and numbers that kernels of tiles take in both passes. seed: of
// seed_of().
[[nodiscard]] Arguments tile_arguments(const Call& call, const Rows& rows, const Scratch& seed);

// Returns the seed of dropout, as kernels read it; nothing without dropout.
[[nodiscard]] Scratch seed_of(const Call& call);

// Returns the slices of a kernel's tensor of statistics.
[[nodiscard]] std::int64_t slices_of(const Kernel& kernel);

// Zeros a tensor, row by row.
void zero(const Tensor& tensor, Handle stream);
// Fills memory with a number of 32 bits, in the order of the stream.
void fill(Address address, std::uint32_t bits, std::int64_t count, Handle stream);
// Copies between places on the device, in the order of the stream.
void copy(Address to, Address from, std::int64_t bytes, Handle stream);

}  // namespace isentrope::cuda
