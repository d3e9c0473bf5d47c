// Attention on an NVIDIA device from C++, without Python and without the CUDA toolkit, to build and
// to run. Kernels are compiled ahead of time into a folder (src/gpu/kernels.py), and the driver's
// library is opened when the first Device is made.
//
// Launches are tested against Triton's without a device. On a device only the example has run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "isentrope/attention.h"

namespace isentrope::cuda {

// A device and its kernels, which are loaded when a call first needs them. Calls from several
// threads are safe.
class Device {
 public:
  // Opens a device. kernels: the folder of compiled kernels; ordinal: the device's number, from 0.
  // Throws Error that names what is missing: the driver, the device, the folder, or kernels for
  // that device.
  explicit Device(const std::filesystem::path& kernels, int ordinal = 0);
  ~Device();
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  class State;
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// Memory on a device, for programs without an allocator of their own. The Device must outlive it.
class Memory {
 public:
  // Allocates. Throws Error if the driver cannot.
  Memory(const Device& device, std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  // Copy all of it from or to host memory, and wait for the copy.
  void write(const void* from);
  void read(void* to) const;

 private:
  Device::State* device_;
  void* data_ = nullptr;
  std::size_t bytes_;
};

// Device and stream of a call. A stream is a cudaStream_t or CUstream; null is the default one.
struct Place {
  const Device& device;
  void* stream = nullptr;
};

// Launches the forward pass of attention.h, with all arrays in the device's memory, also those of
// the mask. An array that is elsewhere, by the driver's answer, is an error. The function starts
// the kernels and returns without waiting for the device. The first call with a new rule or longer
// rows copies a table to the device, so make it before a stream is captured.
//
// q, k, v and output are all bf16 or all f16, have head dimensions that kernels were compiled for,
// and contiguous columns, as have boolean masks and biases. Addresses must be multiples of 16
// bytes; strides of rows, heads and sequences must be multiples of 16 elements and below 2^31.
// Boolean masks, biases, sinks, soft-caps, dropout, lambda, dilations, prefixes, key_begin and
// pages of a cache need kernels that were compiled for them. Statistics must be contiguous. The
// contents of documents and page tables are not checked, since that would wait for the device.
// Documents are clamped to the valid range; an invalid page number reads outside the cache.
//
// Throws Error before anything is written if an argument is invalid or no kernel was compiled for
// the call. There are no kernels for 8-bit codes.
void attention_forward(const AttentionInput& input, const AttentionOptions& options,
                       const AttentionOutput& output, const Place& place);

// Launches the backward pass of attention.h, with the requirements above and kernels that were
// compiled for gradients. Gradients have the type of q; d_bias and d_lambda must be contiguous.
void attention_backward(const AttentionInput& input, const AttentionOptions& options,
                        const AttentionGradientInput& gradient, const AttentionGradients& result,
                        const Place& place);

}  // namespace isentrope::cuda
