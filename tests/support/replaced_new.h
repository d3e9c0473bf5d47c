// Operators new and delete of a whole program. Before this, the only source file that includes it
// defines, in namespace isentrope:
//
//   void* allocate(const void* caller, std::size_t size, std::size_t alignment) noexcept
//   void give_back(void* memory) noexcept
//
// allocate() returns null if the allocation fails; `caller` is the address that asked.
#pragma once

#include <cstddef>
#include <new>

namespace isentrope {

inline void* allocate_or_throw(const void* caller, std::size_t size, std::size_t alignment) {
  void* const memory = allocate(caller, size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

inline constexpr std::size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace isentrope

using namespace isentrope;  // NOLINT: replaces functions of the language
// NOLINTBEGIN: names of the language
#define ISENTROPE_CALLER __builtin_return_address(0)
void* operator new(std::size_t n) { return allocate_or_throw(ISENTROPE_CALLER, n, kUsual); }
void* operator new[](std::size_t n) { return allocate_or_throw(ISENTROPE_CALLER, n, kUsual); }
void* operator new(std::size_t n, std::align_val_t to) {
  return allocate_or_throw(ISENTROPE_CALLER, n, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t n, std::align_val_t to) {
  return allocate_or_throw(ISENTROPE_CALLER, n, static_cast<std::size_t>(to));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return allocate(ISENTROPE_CALLER, n, kUsual);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return allocate(ISENTROPE_CALLER, n, kUsual);
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
// NOLINTEND
