#include "src/gpu/launch.h"

#include <cstring>
#include <limits>
#include <string>

#include "src/call/checks.h"

namespace isentrope::cuda {
namespace {

constexpr std::int64_t kDivisor = 16;

// Returns a parameter in the driver's form: the bytes of its type, lowest address first.
std::uint64_t packed(const Parameter& parameter, const Argument& argument) {
  const Checks check("attention");
  std::uint64_t bytes = 0;
  if (const float* number = std::get_if<float>(&argument)) {
    std::memcpy(&bytes, number, sizeof *number);
  } else if (const std::int64_t* integer = std::get_if<std::int64_t>(&argument)) {
    const bool narrow = parameter.type == "i32";
    if (narrow && (*integer < std::numeric_limits<std::int32_t>::min() ||
                   *integer > std::numeric_limits<std::int32_t>::max())) {
      check.fail(parameter.name, "be below 2^31 on a device", std::to_string(*integer));
    }
    if (parameter.divisible && *integer % kDivisor != 0) {
      check.fail(parameter.name, "be a multiple of 16, for which kernels were compiled",
                 std::to_string(*integer));
    }
    bytes = static_cast<std::uint64_t>(*integer);
  } else {
    bytes = std::get<Address>(argument);
    if (parameter.divisible && bytes % kDivisor != 0) {
      check.fail(parameter.name, "be aligned to 16 bytes", std::to_string(bytes));
    }
  }
  return bytes;
}

// Throws Error unless compiled-in values, strides of 1, match the call.
void check_constants(const Kernel& kernel, const Arguments& arguments) {
  for (const auto& [name, argument] : arguments) {
    const std::int64_t* integer = std::get_if<std::int64_t>(&argument);
    const auto constant = kernel.constants.find(name);
    if (integer == nullptr || constant == kernel.constants.end()) continue;
    if (*integer != constant->second) {
      Checks("attention")
          .fail(constant->first,
                "be " + std::to_string(constant->second) + ", for which kernels were compiled",
                std::to_string(*integer));
    }
  }
}

}  // namespace

Scratch::Scratch(std::size_t bytes, Handle stream) : stream_(stream) {
  if (bytes == 0) return;
  driver().require(driver().allocate_in_order(&address_, bytes, stream), "allocate memory");
}

Scratch::~Scratch() {
  if (address_ != 0) (void)driver().free_in_order(address_, stream_);
}

void check_arguments(const Loaded& loaded, const Arguments& arguments) {
  check_constants(*loaded.kernel, arguments);
  for (const Parameter& parameter : loaded.kernel->parameters) {
    const auto found = arguments.find(parameter.name);
    if (found != arguments.end()) (void)packed(parameter, found->second);
  }
}

void launch(const Loaded& loaded, const Grid& grid, const Arguments& arguments, Handle stream) {
  const Kernel& kernel = *loaded.kernel;
  check_constants(kernel, arguments);
  std::vector<std::uint64_t> values;
  for (const Parameter& parameter : kernel.parameters) {
    const auto found = arguments.find(parameter.name);
    if (found == arguments.end()) {
      throw Error("[cuda] " + kernel.file + " must be of this version; got one with a parameter " +
                  parameter.name);
    }
    values.push_back(packed(parameter, found->second));
  }
  // Triton's kernels have two more parameters for scratch memory, which these do not use.
  values.resize(values.size() + 2, 0);
  std::vector<void*> pointers;
  for (std::uint64_t& value : values) pointers.push_back(&value);
  const auto programs = [](std::int64_t count) { return static_cast<unsigned>(count); };
  driver().require(
      driver().launch(loaded.function, programs(grid.x), programs(grid.y), programs(grid.z),
                      kernel.threads, 1, 1, kernel.shared, stream, pointers.data(), nullptr),
      "start a kernel");
}

}  // namespace isentrope::cuda
