// The device's functions in a build without isentrope::cuda, so that every build exports the same
// names.

#include "bindings/c/options.h"

namespace {

isentrope_status not_built(const char* function) {
  using namespace isentrope::c_api;
  return guarded([&] {
    fail(function, "the library", "be built with ISENTROPE_CUDA=ON and nlohmann-json",
         "a build without isentrope::cuda");
  });
}

}  // namespace

isentrope_status isentrope_device_open(const char*, int32_t, isentrope_device**) {
  return not_built("isentrope_device_open");
}

void isentrope_device_close(isentrope_device*) {}

isentrope_status isentrope_device_allocate(const isentrope_device*, size_t, void**) {
  return not_built("isentrope_device_allocate");
}

void isentrope_device_free(const isentrope_device*, void*) {}

isentrope_status isentrope_device_write(const isentrope_device*, void*, const void*, size_t) {
  return not_built("isentrope_device_write");
}

isentrope_status isentrope_device_read(const isentrope_device*, void*, const void*, size_t) {
  return not_built("isentrope_device_read");
}

isentrope_status isentrope_device_forward(const isentrope_options*, const isentrope_forward_call*,
                                          const isentrope_device*, void*) {
  return not_built("isentrope_device_forward");
}

isentrope_status isentrope_device_backward(const isentrope_options*, const isentrope_backward_call*,
                                           const isentrope_device*, void*) {
  return not_built("isentrope_device_backward");
}
