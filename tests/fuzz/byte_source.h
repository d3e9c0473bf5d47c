// Choices drawn from a fuzzer's bytes. When the bytes run out, every choice is the first one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace isentrope::fuzz {

class ByteSource {
 public:
  ByteSource(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  [[nodiscard]] bool empty() const { return size_ == 0; }
  std::uint8_t byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  bool flag() { return byte() % 2 != 0; }
  // Returns a number in 0 ... most.
  std::int64_t up_to(std::int64_t most) { return (byte() | byte() << 8) % (most + 1); }
  template <typename T, std::size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[byte() % N];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

// Ends the program if the condition is false, so that the fuzzer keeps the input.
inline void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

// Same, for a message that is expensive to build.
template <typename Describe>
  requires std::is_invocable_v<Describe>
void require(bool condition, const Describe& describe) {
  if (!condition) require(false, std::string(describe()));
}

}  // namespace isentrope::fuzz
