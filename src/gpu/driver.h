// The driver of NVIDIA devices, opened at run time: CUDA is not needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "isentrope/error.h"

namespace isentrope::cuda {

using Address = std::uint64_t;  // of a device's memory
using Handle = void*;           // of a context, a module, a function or a stream

// A driver that is missing or failed. Unlike after another Error, kernels may have been started.
struct DriverError : Error {
  DriverError(const std::string& what, int result) : Error(what), code(result) {}
  int code;  // of the driver; 0 if it is missing
};
inline constexpr int kOutOfMemory = 2;

// Functions of libcuda.so.1, in the versions of CUDA 12 and later. They return 0, or an error code.
struct Driver {
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);
  int (*device_count)(int* count);
  int (*device)(int* device, int ordinal);
  int (*attribute)(int* value, int attribute, int device);
  int (*retain_context)(Handle* context, int device);
  int (*release_context)(int device);
  int (*push_context)(Handle context);
  int (*pop_context)(Handle* context);
  int (*load_module)(Handle* module, const void* image);
  int (*unload_module)(Handle module);
  int (*function)(Handle* function, Handle module, const char* name);
  int (*set_attribute)(Handle function, int attribute, int value);
  int (*launch)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                Handle stream, void** parameters, void** extra);
  int (*allocate)(Address* address, std::size_t bytes);
  int (*free)(Address address);
  int (*allocate_in_order)(Address* address, std::size_t bytes, Handle stream);
  int (*free_in_order)(Address address, Handle stream);
  int (*to_device)(Address to, const void* from, std::size_t bytes);
  int (*to_host)(void* to, Address from, std::size_t bytes);
  int (*copy_in_order)(Address to, Address from, std::size_t bytes, Handle stream);
  int (*fill_in_order)(Address to, unsigned bits, std::size_t count, Handle stream);
  int (*pointer_attribute)(void* value, int attribute, Address address);

  // Throws DriverError if a call failed. what: purpose of the call.
  void require(int result, const char* what) const;
};

// Opened at the first call. Throws DriverError if there is no driver, or no device.
[[nodiscard]] const Driver& driver();

// Constants of the driver's interface.
inline constexpr int kMajor = 75, kMinor = 76, kUnits = 16, kOrdinalOfPointer = 9,
                     kSharedMemory = 8;
// Shared memory of a kernel without a request for more.
inline constexpr int kSharedUnasked = 48 << 10;

}  // namespace isentrope::cuda
