// A preloaded operator new that can fail for one library; torch, Python and others get memory.

#include <link.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<std::uintptr_t> first = 0, last = 0;  // address range of the library
std::atomic<std::int64_t> left = -1;              // allocations that succeed; negative: all
std::atomic<std::int64_t> met = 0;

int find(dl_phdr_info* library, std::size_t, void* name) {
  if (std::strstr(library->dlpi_name, static_cast<const char*>(name)) == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    first = library->dlpi_addr + part.p_vaddr;
    last = first + part.p_memsz;
  }
  return 1;
}

bool fails(const void* caller) {
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  if (at < first || at >= last) return false;
  ++met;
  return left >= 0 && left.fetch_sub(1) == 0;
}

}  // namespace

namespace isentrope {

static void* allocate(const void* caller, std::size_t size, std::size_t alignment) noexcept {
  if (fails(caller)) return nullptr;
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

static void give_back(void* memory) noexcept { std::free(memory); }

}  // namespace isentrope

#include "tests/support/replaced_new.h"

// Counts allocations of the library with such a name from now on; returns whether it is loaded.
extern "C" bool watch_allocations(const char* name) {
  return dl_iterate_phdr(find, const_cast<char*>(name)) != 0;
}
// Lets the next `which` allocations of the library succeed and one fail; negative: none.
extern "C" void fail_allocation(std::int64_t which) { left = which; }
extern "C" std::int64_t allocations_met() { return met; }
