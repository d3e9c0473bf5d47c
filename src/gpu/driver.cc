#include "src/gpu/driver.h"

#include <dlfcn.h>

#include <string>

namespace isentrope::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
void find(void* library, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function != nullptr) return;
  throw DriverError("[cuda] " + std::string(kLibrary) +
                        " must be of a driver of CUDA 12 or later; got one without " + name,
                    0);
}

Driver opened() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string error = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc has one per thread
    throw DriverError("[cuda] NVIDIA's driver must be installed; got " + error, 0);
  }
  Driver found{};
  find(library, found.init, "cuInit");
  find(library, found.error_text, "cuGetErrorString");
  find(library, found.device_count, "cuDeviceGetCount");
  find(library, found.device, "cuDeviceGet");
  find(library, found.attribute, "cuDeviceGetAttribute");
  find(library, found.retain_context, "cuDevicePrimaryCtxRetain");
  find(library, found.release_context, "cuDevicePrimaryCtxRelease_v2");
  find(library, found.push_context, "cuCtxPushCurrent_v2");
  find(library, found.pop_context, "cuCtxPopCurrent_v2");
  find(library, found.load_module, "cuModuleLoadData");
  find(library, found.unload_module, "cuModuleUnload");
  find(library, found.function, "cuModuleGetFunction");
  find(library, found.set_attribute, "cuFuncSetAttribute");
  find(library, found.launch, "cuLaunchKernel");
  find(library, found.allocate, "cuMemAlloc_v2");
  find(library, found.free, "cuMemFree_v2");
  find(library, found.allocate_in_order, "cuMemAllocAsync");
  find(library, found.free_in_order, "cuMemFreeAsync");
  find(library, found.to_device, "cuMemcpyHtoD_v2");
  find(library, found.to_host, "cuMemcpyDtoH_v2");
  find(library, found.copy_in_order, "cuMemcpyDtoDAsync_v2");
  find(library, found.fill_in_order, "cuMemsetD32Async");
  find(library, found.pointer_attribute, "cuPointerGetAttribute");
  found.require(found.init(0), "find a device");
  return found;
}

}  // namespace

void Driver::require(int result, const char* what) const {
  if (result == 0) return;
  const char* text = nullptr;
  if (error_text(result, &text) != 0 || text == nullptr) text = "an error without a text";
  throw DriverError("[cuda] the driver must " + std::string(what) + "; got error " +
                        std::to_string(result) + ", " + text,
                    result);
}

const Driver& driver() {
  static const Driver one = opened();
  return one;
}

}  // namespace isentrope::cuda
