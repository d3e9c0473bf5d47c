// Scratch: a thread's working memory, kept from task to task.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <vector>

namespace isentrope {

// Hands out aligned float arrays that stay valid until the Scratch is destroyed. The contents are
// undefined: whatever the last task left.
class Scratch {
 public:
  explicit Scratch(std::size_t floats) {
    if (pool().size() < floats + kAlign) pool().resize(floats + kAlign);
    next_ = pool().data();
    std::size_t space = pool().size() * sizeof(float);
    void* start = next_;
    next_ = static_cast<float*>(std::align(kAlign * sizeof(float), sizeof(float), start, space));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // What `count` floats take from the pool: arrays start on a cache line of their own.
  static constexpr std::size_t rounded(std::size_t count) {
    return (count + kAlign - 1) / kAlign * kAlign;
  }

  float* take(std::size_t count) {
    float* array = next_;
    next_ += rounded(count);
    return array;
  }

 private:
  static constexpr std::size_t kAlign = 16;  // floats in a cache line
  static std::vector<float>& pool() {
    thread_local std::vector<float> floats;
    return floats;
  }
  float* next_;
};

}  // namespace isentrope
