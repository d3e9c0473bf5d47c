// Memory next to inaccessible pages.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace isentrope {

enum class Flush { left, right };

// `bytes` bytes that begin at the end of a forbidden page (left), or end at the start of one
// (right). All accessible bytes are filled with 0xFF, which is NaN in every floating-point type.
class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, Flush flush) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inner_ = std::max(page, (bytes + page - 1) / page * page);
    outer_ = inner_ + 2 * page;
    void* start = mmap(nullptr, outer_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(start) + page;
    mprotect(base_, inner_, PROT_READ | PROT_WRITE);
    std::fill_n(base_, inner_, std::byte{0xFF});
    data_ = flush == Flush::left ? base_ : base_ + inner_ - bytes;
    page_ = page;
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(base_ - page_, outer_); }

  [[nodiscard]] std::byte* data() const { return data_; }
  // Returns whether all accessible bytes are still 0xFF.
  [[nodiscard]] bool is_untouched() const {
    return std::all_of(base_, base_ + inner_, [](std::byte b) { return b == std::byte{0xFF}; });
  }

 private:
  std::size_t inner_, outer_, page_;
  std::byte *base_, *data_;
};

// Address space that takes memory only where touched. data() is null if the system refuses.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes) : bytes_(bytes) {
    void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() {
    if (data_) munmap(data_, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

}  // namespace isentrope
