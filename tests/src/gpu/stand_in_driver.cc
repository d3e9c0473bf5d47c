// Emulated libcuda.so.1: memory is the host's, and kernels do not run. Each relevant call is a line
// of JSON in the file named by ISENTROPE_CUDA_CALLS. Like the real driver, it reads the kernels'
// parameters from the cubin.
//
// ISENTROPE_CUDA_CAPABILITY: compute capability of its device times 10; 90 by default.

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using Address = std::uint64_t;
using Json = nlohmann::ordered_json;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotFound = 500;
constexpr std::size_t kMemory = std::size_t{1} << 40;

struct Module {
  std::string kind;                                       // cubin or ptx
  std::map<std::string, std::vector<std::size_t>> sizes;  // of the parameters of each kernel
  std::map<std::string, std::size_t> code;                // bytes of its instructions, in a cubin
};
struct Function {
  std::string symbol;
  const Module* module;
};

std::map<Address, std::size_t> memory;

void record(const Json& call) {
  const char* path = std::getenv("ISENTROPE_CUDA_CALLS");
  std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", call.dump().c_str());
  std::fclose(file);
}

template <typename T>
T at(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Parses EIATTR_KPARAM_INFO entries of a section .nv.info.NAME: parameter indices and sizes.
std::vector<std::size_t> parameters(const char* info, std::size_t size) {
  std::map<int, std::size_t> found;
  for (std::size_t i = 0; i + 4 <= size;) {
    const auto format = at<std::uint8_t>(info + i), attribute = at<std::uint8_t>(info + i + 1);
    const auto length = at<std::uint16_t>(info + i + 2);
    constexpr std::uint8_t kSized = 4, kParameter = 0x17;
    if (format == kSized && attribute == kParameter) {
      found[at<std::uint16_t>(info + i + 8)] = at<std::uint32_t>(info + i + 12) >> 18;
    }
    i += 4 + (format == kSized ? length : 0);
  }
  std::vector<std::size_t> sizes;
  for (const auto& [ordinal, bytes] : found) sizes.push_back(bytes);
  return sizes;
}

Module read_cubin(const char* image) {
  Module module{.kind = "cubin", .sizes = {}, .code = {}};
  const auto header = at<Elf64_Ehdr>(image);
  const auto section = [&](int index) {
    return at<Elf64_Shdr>(image + header.e_shoff +
                          static_cast<std::size_t>(index) * sizeof(Elf64_Shdr));
  };
  const char* names = image + section(header.e_shstrndx).sh_offset;
  const std::string prefix = ".nv.info.", code = ".text.";
  for (int i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr one = section(i);
    const std::string name = names + one.sh_name;
    if (name.starts_with(code)) module.code[name.substr(code.size())] = one.sh_size;
    if (!name.starts_with(prefix)) continue;
    module.sizes[name.substr(prefix.size())] = parameters(image + one.sh_offset, one.sh_size);
  }
  return module;
}

// Parses .visible .entry NAME( .param .u64 ... NAME_param_0, ...
Module read_ptx(const std::string& text) {
  Module module{.kind = "ptx", .sizes = {}, .code = {}};
  const std::string mark = ".entry ";
  const std::size_t begin = text.find(mark) + mark.size(), open = text.find('(', begin);
  std::vector<std::size_t>& sizes = module.sizes[text.substr(begin, open - begin)];
  const std::size_t end = text.find(')', open);
  for (std::size_t i = text.find(".param ", open); i < end; i = text.find(".param ", i + 1)) {
    const std::string type = text.substr(i + 7, 4);
    sizes.push_back(type == ".u64" || type == ".b64" ? 8 : 4);
  }
  return module;
}

std::string hexadecimal(const void* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const std::uint8_t*>(bytes)[i]);
    text += digits;
  }
  return text;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuGetErrorString(int, const char** text) {
  *text = "as the stand-in has it";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* given = std::getenv("ISENTROPE_CUDA_CAPABILITY");
  const int capability = given == nullptr ? 90 : std::atoi(given);
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 132;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &memory;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  record({{"call", "release"}, {"allocations", memory.size()}});
  return 0;
}
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }

int cuModuleLoadData(void** module, const void* image) {
  const char* bytes = static_cast<const char*>(image);
  *module =
      new Module(std::memcmp(bytes, ELFMAG, SELFMAG) == 0 ? read_cubin(bytes) : read_ptx(bytes));
  return 0;
}
int cuModuleUnload(void* module) {
  delete static_cast<Module*>(module);
  return 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto* of = static_cast<const Module*>(module);
  if (!of->sizes.contains(name)) return kNotFound;
  static std::vector<Function*> all;
  all.push_back(new Function{name, of});
  *function = all.back();
  return 0;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  record({{"call", "attribute"},
          {"symbol", static_cast<Function*>(function)->symbol},
          {"attribute", attribute},
          {"value", value}});
  return 0;
}

int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                   void* stream, void** parameters, void** extra) {
  const auto* of = static_cast<const Function*>(function);
  Json passed = Json::array();
  const auto& sizes = of->module->sizes.at(of->symbol);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    passed.push_back(hexadecimal(parameters[i], sizes[i]));
  record({{"call", "launch"},
          {"symbol", of->symbol},
          {"kind", of->module->kind},
          {"code", of->module->code.contains(of->symbol) ? of->module->code.at(of->symbol) : 0},
          {"grid", {grid_x, grid_y, grid_z}},
          {"block", {block_x, block_y, block_z}},
          {"shared", shared},
          {"stream", reinterpret_cast<Address>(stream)},
          {"extra", extra != nullptr},
          {"parameters", passed}});
  return 0;
}

int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  if (bytes == 0) return kInvalidValue;
  if (bytes > kMemory) return kOutOfMemory;
  // Aligned like a device's memory.
  *address = reinterpret_cast<Address>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  memory[*address] = bytes;
  return 0;
}
int cuMemFree_v2(Address address) {
  if (memory.erase(address) == 0) return kInvalidValue;
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
// Memory freed in stream order may be read by earlier launches: not reused within a call.
int cuMemAllocAsync(Address* address, std::size_t bytes, void*) {
  return cuMemAlloc_v2(address, bytes);
}
int cuMemFreeAsync(Address address, void*) {
  return memory.erase(address) == 0 ? kInvalidValue : 0;
}
int cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, void*) {
  record({{"call", "copy"}, {"to", to}, {"from", from}, {"bytes", bytes}});
  return 0;
}
int cuMemsetD32Async(Address to, unsigned bits, std::size_t count, void*) {
  std::fill_n(reinterpret_cast<unsigned*>(to), count, bits);
  return 0;
}
int cuPointerGetAttribute(void* value, int, Address address) {
  auto after = memory.upper_bound(address);
  if (after == memory.begin() || address >= std::prev(after)->first + std::prev(after)->second) {
    return kInvalidValue;
  }
  *static_cast<int*>(value) = 0;
  return 0;
}

}  // extern "C"
