// Attention on an NVIDIA device, from C++ alone: without Python, and without CUDA's toolkit, to
// build or to run. Kernels were compiled ahead of time into a folder (cuda/kernels.py), and the
// driver's library is opened when the first Device is made.
//
// Held to what Triton launches, without a device; not yet run on one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "isentrope/attention.h"

namespace isentrope::cuda {

// A device, and the kernels for it, which are loaded when a call first needs them. Calls from
// several threads are safe.
class Device {
 public:
  // kernels: the folder; ordinal: which of the driver's devices. Throws Error that says what is
  // missing: the driver, the device, the folder, or kernels for that device.
  explicit Device(const std::filesystem::path& kernels, int ordinal = 0);
  ~Device();
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  class State;
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Memory of a device, for who has no allocator of it. The device must outlive it. Copies wait.
class Memory {
 public:
  Memory(const Device& device, std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  // All of it, from or to the host.
  void write(const void* from);
  void read(void* to) const;

 private:
  Device::State* device_;
  void* data_ = nullptr;
  std::size_t bytes_;
};

// Where a call is computed: a stream is a cudaStream_t or CUstream, null for the default one.
struct Place {
  const Device& device;
  void* stream = nullptr;
};

// attention_forward() of attention.h, of arrays that all lie in the device's memory, those that the
// mask lists included: the driver is asked where each lies, and one that lies elsewhere is an
// error. Starts the kernels and returns; nothing waits for the device. The first call with a new
// rule or longer rows copies a table to it, so it must come before a stream is captured.
//
// q, k, v and output are bf16 or f16, all four alike, of the head dimensions that kernels were
// compiled for, columns one behind the other; addresses must be multiples of 16 bytes, strides of
// rows, heads and sequences multiples of 16 elements and below 2^31. Masks are those of mask.h but
// dilation, prefixes and key_begin; a cache in pages has page sizes that kernels were compiled for.
// Statistics must be contiguous. What documents and page tables hold is not checked, for that would
// wait for the device: they are cut to what there is. Throws Error before anything is written when
// an argument does not fit or no kernel was compiled for the call, which is so for soft-cap,
// boolean mask, bias, sinks, lambda, dropout and codes of 8 bits.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const Place& place);

}  // namespace isentrope::cuda
