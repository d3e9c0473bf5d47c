// Arguments by their names in the kernels, and launching of a kernel with them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/gpu/device.h"

namespace isentrope::cuda {

using Argument = std::variant<Address, std::int64_t, float>;
using Arguments = std::map<std::string, Argument, std::less<>>;

struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
};

// Memory of one call, freed in stream order after earlier work. The context must be current.
class Scratch {
 public:
  Scratch(std::size_t bytes, Handle stream);
  ~Scratch();
  Scratch(Scratch&& other) noexcept
      : address_(std::exchange(other.address_, 0)), stream_(other.stream_) {}
  Scratch& operator=(Scratch&&) = delete;

  // Returns the address of element `index` of `size` bytes; 0 if there is no memory.
  [[nodiscard]] Address at(std::int64_t index = 0, std::size_t size = 1) const {
    return address_ == 0 ? 0 : address_ + static_cast<Address>(index) * size;
  }

 private:
  Address address_ = 0;
  Handle stream_;
};

// Throws Error if an argument does not match the compiled kernel. Some may be missing.
void check_arguments(const Loaded& loaded, const Arguments& arguments);
// Throws Error as check_arguments() does, and if one is missing.
void launch(const Loaded& loaded, const Grid& grid, const Arguments& arguments, Handle stream);

}  // namespace isentrope::cuda
