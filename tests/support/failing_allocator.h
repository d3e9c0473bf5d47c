// operator new that fails on request, and counts leaks. A test program that includes this in its
// only source file replaces the standard library's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

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

inline void* allocate(const void* /*caller*/, std::size_t size, std::size_t alignment) noexcept {
  if (until_failure.load() >= 0 && until_failure.fetch_sub(1) == 0) return nullptr;
  void* const memory =
      std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  live_allocations += memory != nullptr;
  return memory;
}

inline void give_back(void* memory) noexcept {
  live_allocations -= memory != nullptr;
  std::free(memory);
}

}  // namespace isentrope

#include "tests/support/replaced_new.h"
