// Scratch: working memory of a task, declared once and reused by its thread for later tasks.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) static_cast<void>(0)
#endif

namespace isentrope {

// Array of a Scratch, with undefined contents. Bounds are checked if assertions are enabled.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  [[nodiscard]] T* data() const { return static_cast<T*>(memory_); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) const {
    assert(i < size_);
    return data()[i];
  }
  // Returns elements first ... first + count - 1 for reading and writing.
  [[nodiscard]] T* at(std::size_t first, [[maybe_unused]] std::size_t count) const {
    assert(first + count <= size_);
    return data() + first;
  }

 private:
  // Only the Scratch places arrays, all at once.
  friend class Scratch;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

// Takes a list of all arrays of a task, so that each size is stated once, next to its array. The
// address sanitizer poisons the gaps.
class Scratch {
 public:
  struct Array {
    template <typename T>
    Array(Buffer<T>& buffer, std::size_t count) : memory(buffer.memory_), bytes(count * sizeof(T)) {
      buffer.size_ = count;
    }
    void*& memory;
    std::size_t bytes;
  };

  // Takes single arrays, and std::arrays of the arrays of one owner.
  template <typename... Groups>
  explicit Scratch(const Groups&... groups) {
    // One more line to align the first array.
    std::size_t bytes = kLine;
    (for_each(groups, [&](const Array& array) { bytes += room_for(array); }), ...);
    Pool& pool = pool_of_thread();
    if (pool.bytes < bytes) pool = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    void* at = pool.memory.get();
    std::size_t space = pool.bytes;
    auto* next = static_cast<std::byte*>(std::align(kLine, bytes - kLine, at, space));
    // Poisons all but the arrays, so that overruns of an array are detected.
    ASAN_POISON_MEMORY_REGION(pool.memory.get(), pool.bytes);
    const auto place = [&](const Array& array) {
      array.memory = next;
      ASAN_UNPOISON_MEMORY_REGION(next, array.bytes);
      next += room_for(array);
    };
    (for_each(groups, place), ...);
  }
  // The pool outlives the task and is divided again by the next one.
  ~Scratch() {
    [[maybe_unused]] const Pool& pool = pool_of_thread();
    ASAN_UNPOISON_MEMORY_REGION(pool.memory.get(), pool.bytes);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  struct Pool {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  // Never shrinks: a thread's calls are mostly alike, and allocating takes as long as some tasks.
  static Pool& pool_of_thread() {
    thread_local Pool pool;
    return pool;
  }

  template <typename Visit>
  static void for_each(const Array& array, const Visit& visit) {
    visit(array);
  }
  template <std::size_t count, typename Visit>
  static void for_each(const std::array<Array, count>& arrays, const Visit& visit) {
    for (const Array& array : arrays) visit(array);
  }

  static constexpr std::size_t kLine = 64;  // of the cache: arrays are aligned to lines
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kGap = kLine;
#else
  static constexpr std::size_t kGap = 0;
#endif
  static std::size_t room_for(const Array& array) {
    return (array.bytes + kLine - 1) / kLine * kLine + kGap;
  }
};

}  // namespace isentrope
