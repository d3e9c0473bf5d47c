// Call: a call from JAX, whose arrays have names, as arguments of the library.
//
// Layouts are those of jax.nn.dot_product_attention: q, k, v and output [batch, length, heads,
// dim], statistics [batch, queries, heads]. An axis of 1 is broadcast. A prefix says what an array
// belongs to: "t_q" is the tangent of q, "d_q" its gradient.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isentrope/attention.h"
#include "isentrope/reference.h"
#include "src/shape.h"

namespace isentrope::jax {

// A row-major array. `type` is what numpy calls it.
struct Array {
  std::string_view type;
  void* data = nullptr;
  std::vector<std::int64_t> extents{};
};

// A call, or the part of its batches that share a row of `sinks`: vmap gives each part its own.
class Call {
 public:
  // `text` is the JSON that python/isentrope/jax/spec.py writes. The arrays are in its order: those
  // that are read, then those that are written. If it names a folder of "kernels", they are in a
  // device's memory, statistics [batch, heads, queries].
  Call(std::string_view text, const std::vector<Array>& arrays);

  [[nodiscard]] bool in_float64() const { return array("q")->type == "float64"; }
  [[nodiscard]] std::string kernels() const { return text_["kernels"]; }
  // Calls pass(part) for each part.
  template <typename Pass>
  void for_each_part(const Pass& pass) {
    for (part_ = 0; part_ < parts_; ++part_) pass(*this);
    part_ = 0;
  }

  // These describe the current part. Arrays that the call does not have are views without data.
  [[nodiscard]] AttentionInput input() const;
  // Arrays of numbers are empty but for their shapes if the call is in float64.
  [[nodiscard]] AttentionOptions options();
  [[nodiscard]] reference::Input input_in_float64(const std::string& prefix = "") const;
  [[nodiscard]] Tensor tensor(const std::string& name) const;
  template <typename T, std::size_t Rank>
  [[nodiscard]] View<T, Rank> view(const std::string& name) const;
  // Returns all statistics but the support, which JAX counts in int32.
  template <typename Views = RowStatistics>
  [[nodiscard]] Views statistics(const std::string& prefix) const;

  [[nodiscard]] std::int64_t batches() const { return batch_ / parts_; }
  [[nodiscard]] Shape<3> rows() const { return {batches(), heads_, queries_}; }

 private:
  [[nodiscard]] const Array* array(const std::string& name) const;
  [[nodiscard]] Shape<4> shape_of(std::string_view name) const;
  template <std::size_t Rank>
  void place(const std::string& name, const Array& from, const Shape<Rank>& wanted,
             Shape<Rank>& extents, Shape<Rank>& strides, std::int64_t& offset) const;
  template <typename Member>
  void read(std::string_view name, Member& member);

  nlohmann::json text_;
  std::vector<std::string> names_;
  std::vector<Array> arrays_;
  std::int64_t batch_, parts_, part_ = 0;
  bool on_device_;
  std::int64_t heads_, queries_, kv_heads_, keys_;
  std::list<std::vector<std::int64_t>> lists_;  // lengths of sequences, widened
};

template <typename Views>
Views Call::statistics(const std::string& prefix) const {
  Views views;
  for_each_statistic(
      [&]<typename View>(const Statistic& statistic, View& to) {
        using T = std::remove_pointer_t<decltype(to.data)>;
        if constexpr (!std::is_same_v<std::remove_const_t<T>, std::int64_t>)
          to = view<T, 3>(prefix + std::string(statistic.name));
      },
      views);
  return views;
}

}  // namespace isentrope::jax
