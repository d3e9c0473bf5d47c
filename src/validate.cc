#include "src/validate.h"

#include <array>
#include <string>

#include "isentrope/error.h"

namespace isentrope {
namespace {

template <std::size_t Rank>
std::string shape_text(const std::array<std::int64_t, Rank>& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

// Compares one argument's shape with what the others require of it.
class ShapeCheck {
 public:
  explicit ShapeCheck(std::string function) : function_(std::move(function)) {}

  template <typename T, std::size_t Rank>
  void require(const char* name, const View<T, Rank>& view,
               const std::array<std::int64_t, Rank>& shape) const {
    if (view.extents != shape) fail(name, "have shape " + shape_text(shape), shape_text(view.extents));
    const bool has_elements = [&] {
      for (const std::int64_t extent : shape) {
        if (extent == 0) return false;
      }
      return true;
    }();
    if (has_elements && !view) fail(name, "have data", "a null pointer");
  }

  template <typename T, std::size_t Rank>
  void require_if_given(const char* name, const View<T, Rank>& view,
                        const std::array<std::int64_t, Rank>& shape) const {
    if (view) require(name, view, shape);
  }

  [[noreturn]] void fail(const std::string& name, const std::string& required,
                         const std::string& got) const {
    throw Error("[" + function_ + "] " + name + " must " + required + "; got " + got);
  }

 private:
  std::string function_;
};

void check_input(const ShapeCheck& check, const AttentionInput& in) {
  const auto [batch, heads, queries, dim] = in.q.extents;
  for (const std::int64_t extent : {batch, heads, queries}) {
    if (extent < 0) check.fail("q", "have no negative extent", shape_text(in.q.extents));
  }
  if (dim < 1) check.fail("q", "have a head dimension of at least 1", shape_text(in.q.extents));
  const std::int64_t keys = in.k.extents[2];
  if (keys < 0) check.fail("k", "have no negative extent", shape_text(in.k.extents));
  const std::int64_t value_dim = in.v.extents[3];
  if (value_dim < 1) check.fail("v", "have a value dimension of at least 1", shape_text(in.v.extents));
  check.require("q", in.q, {batch, heads, queries, dim});
  check.require("k", in.k, {batch, heads, keys, dim});
  check.require("v", in.v, {batch, heads, keys, value_dim});
}

}  // namespace

void validate_forward(const AttentionInput& in, const AttentionOutput& out) {
  const ShapeCheck check("attention_forward");
  check_input(check, in);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::array<std::int64_t, 3> rows = {batch, heads, queries};
  check.require("output", out.output, {batch, heads, queries, in.v.extents[3]});
  const RowStatistics& statistics = out.statistics;
  check.require_if_given("lse", statistics.lse, rows);
  check.require_if_given("entropy", statistics.entropy, rows);
  check.require_if_given("collision", statistics.collision, rows);
  check.require_if_given("max_logit", statistics.max_logit, rows);
  check.require_if_given("variance", statistics.variance, rows);
  check.require_if_given("lambda", statistics.lambda, rows);
  check.require_if_given("support", statistics.support, rows);
}

void validate_backward(const AttentionInput& in, const AttentionGradientInput& gradient,
                       const AttentionGradients& result) {
  const ShapeCheck check("attention_backward");
  check_input(check, in);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::array<std::int64_t, 3> rows = {batch, heads, queries};
  const std::array<std::int64_t, 4> output = {batch, heads, queries, in.v.extents[3]};
  check.require("output", gradient.output, output);
  check.require("lse", gradient.lse, rows);
  check.require_if_given("d_output", gradient.d_output, output);
  check.require_if_given("d_lse", gradient.d_lse, rows);
  const bool moments = gradient.d_entropy || gradient.d_variance;
  check.require_if_given("d_entropy", gradient.d_entropy, rows);
  check.require_if_given("d_collision", gradient.d_collision, rows);
  check.require_if_given("d_variance", gradient.d_variance, rows);
  if (moments) check.require("entropy", gradient.entropy, rows);
  if (gradient.d_collision) check.require("collision", gradient.collision, rows);
  if (gradient.d_variance) check.require("variance", gradient.variance, rows);
  check.require("dq", result.dq, in.q.extents);
  check.require("dk", result.dk, in.k.extents);
  check.require("dv", result.dv, in.v.extents);
}

}  // namespace isentrope
