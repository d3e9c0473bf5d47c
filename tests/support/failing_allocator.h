// operator new that fails on request, and counts leaks. A test program that includes this in its
// only source file replaces the standard library's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace isentrope {

inline std::atomic<std::int64_t> live_allocations = 0;
inline std::atomic<std::int64_t> until_failure = -1;  // allocations that succeed; negative: all

// Within this scope allocation `which` fails, counted from 1 over all threads.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t which) { until_failure = which - 1; }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  ~FailingAllocation() { until_failure = -1; }
};

inline void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (until_failure.load() >= 0 && until_failure.fetch_sub(1) == 0) return nullptr;
  void* const memory =
      std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  live_allocations += memory != nullptr;
  return memory;
}

inline void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline void give_back(void* memory) noexcept {
  live_allocations -= memory != nullptr;
  std::free(memory);
}

}  // namespace isentrope

constexpr std::size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
// NOLINTBEGIN: names of the language
void* operator new(std::size_t n) { return isentrope::allocate_or_throw(n, kUsual); }
void* operator new[](std::size_t n) { return isentrope::allocate_or_throw(n, kUsual); }
void* operator new(std::size_t n, std::align_val_t to) {
  return isentrope::allocate_or_throw(n, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t n, std::align_val_t to) {
  return isentrope::allocate_or_throw(n, static_cast<std::size_t>(to));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return isentrope::allocate(n, kUsual);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return isentrope::allocate(n, kUsual);
}
void operator delete(void* memory) noexcept { isentrope::give_back(memory); }
void operator delete[](void* memory) noexcept { isentrope::give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { isentrope::give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { isentrope::give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { isentrope::give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { isentrope::give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  isentrope::give_back(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  isentrope::give_back(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { isentrope::give_back(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  isentrope::give_back(memory);
}
// NOLINTEND
