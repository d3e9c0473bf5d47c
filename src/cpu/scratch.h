// Scratch: the working memory of a task, declared once and kept by its thread from task to task.
#pragma once

#include <cassert>
#include <cstddef>
#include <initializer_list>
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

// An array of a Scratch, of undefined contents: whatever the last task left. Its bounds are
// asserted where assertions are on.
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
  // Elements first ... first + count - 1, which a kernel may read and write.
  [[nodiscard]] T* at(std::size_t first, [[maybe_unused]] std::size_t count) const {
    assert(first + count <= size_);
    return data() + first;
  }

 private:
  // Arrays are placed by the Scratch alone, and all at once.
  friend class Scratch;
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

// Takes a list of all the arrays a task needs, so that a size stands once, beside the array it is
// the size of. Under the address sanitizer the gaps between arrays are poisoned.
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

  explicit Scratch(std::initializer_list<Array> arrays) {
    // A line more, for where the pool itself may begin.
    std::size_t bytes = kLine;
    for (const Array& array : arrays) bytes += room_for(array);
    Pool& pool = pool_of_thread();
    if (pool.bytes < bytes) pool = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
    void* at = pool.memory.get();
    std::size_t space = pool.bytes;
    auto* next = static_cast<std::byte*>(std::align(kLine, bytes - kLine, at, space));
    // All but the arrays, so that a kernel that runs past the end of one does not read or spoil the
    // next unseen.
    ASAN_POISON_MEMORY_REGION(pool.memory.get(), pool.bytes);
    for (const Array& array : arrays) {
      array.memory = next;
      ASAN_UNPOISON_MEMORY_REGION(next, array.bytes);
      next += room_for(array);
    }
  }
  // The pool outlives the task, and the next one divides it anew.
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
  // A pool grows and never shrinks: a thread that works on one call mostly works on another like
  // it, and memory of the size of a task takes as long to get and to clear as some of the work.
  static Pool& pool_of_thread() {
    thread_local Pool pool;
    return pool;
  }

  static constexpr std::size_t kLine = 64;  // of the cache: arrays begin on one of their own
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
