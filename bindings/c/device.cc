#include "src/gpu/device.h"

#include <functional>

#include "bindings/c/arguments.h"
#include "bindings/c/options.h"
#include "isentrope/cuda/attention.h"

using namespace isentrope;  // NOLINT: the C interface follows, name by name
using namespace isentrope::c_api;

struct isentrope_device {
  cuda::Device device;
};

namespace {

// Runs body() as guarded() does. A failure of the driver is no bad argument, because kernels may
// have been started before it.
isentrope_status guarded_on_device(const std::function<void()>& body) noexcept {
  isentrope_status of_driver = ISENTROPE_OK;
  const isentrope_status status = guarded([&] {
    try {
      body();
    } catch (const cuda::DriverError& error) {
      of_driver = error.code == cuda::kOutOfMemory ? ISENTROPE_OUT_OF_MEMORY : ISENTROPE_FAILED;
      throw;  // to keep its message
    }
  });
  return of_driver == ISENTROPE_OK ? status : of_driver;
}

const cuda::Device& device_of(const char* function, const isentrope_device* device) {
  return required(function, "device", device).device;
}

}  // namespace

isentrope_status isentrope_device_open(const char* kernels, int32_t ordinal,
                                       isentrope_device** device) {
  return guarded_on_device([&] {
    constexpr const char* kFunction = "isentrope_device_open";
    const char* folder = &required(kFunction, "kernels", kernels);
    isentrope_device*& to = required(kFunction, "device", device);
    to = new isentrope_device{cuda::Device(folder, ordinal)};
  });
}

void isentrope_device_close(isentrope_device* device) { delete device; }

isentrope_status isentrope_device_allocate(const isentrope_device* device, size_t bytes,
                                           void** data) {
  return guarded_on_device([&] {
    constexpr const char* kFunction = "isentrope_device_allocate";
    const cuda::Device& on = device_of(kFunction, device);
    void*& to = required(kFunction, "data", data);
    to = on.state().allocate(bytes);
  });
}

void isentrope_device_free(const isentrope_device* device, void* data) {
  if (device != nullptr) device->device.state().free(data);
}

isentrope_status isentrope_device_write(const isentrope_device* device, void* to, const void* from,
                                        size_t bytes) {
  return guarded_on_device(
      [&] { device_of("isentrope_device_write", device).state().write(to, from, bytes); });
}

isentrope_status isentrope_device_read(const isentrope_device* device, void* to, const void* from,
                                       size_t bytes) {
  return guarded_on_device(
      [&] { device_of("isentrope_device_read", device).state().read(to, from, bytes); });
}

isentrope_status isentrope_device_forward(const isentrope_options* options,
                                          const isentrope_forward_call* call,
                                          const isentrope_device* device, void* stream) {
  return guarded_on_device([&] {
    constexpr const char* kFunction = "isentrope_device_forward";
    const auto [input, with, output] = arguments_of(kFunction, options, call);
    cuda::attention_forward(input, with, output, {device_of(kFunction, device), stream});
  });
}

isentrope_status isentrope_device_backward(const isentrope_options* options,
                                           const isentrope_backward_call* call,
                                           const isentrope_device* device, void* stream) {
  return guarded_on_device([&] {
    constexpr const char* kFunction = "isentrope_device_backward";
    const auto [input, with, gradient, result] = arguments_of(kFunction, options, call);
    cuda::attention_backward(input, with, gradient, result, {device_of(kFunction, device), stream});
  });
}
