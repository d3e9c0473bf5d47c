// Checks: raises errors that name the argument, the requirement and the value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "isentrope/error.h"
#include "isentrope/tensor.h"
#include "src/shape.h"

namespace isentrope {

// Limit of positions, so that sums of a few do not overflow.
inline constexpr std::int64_t kMostKeys = std::int64_t{1} << 60;

// Checks on behalf of one function, whose name begins every message.
class Checks {
 public:
  explicit Checks(std::string function) : function_(std::move(function)) {}

  [[noreturn]] void fail(std::string_view name, const std::string& required,
                         const std::string& got) const {
    throw Error("[" + function_ + "] " + std::string(name) + " must " + required + "; got " + got);
  }

  template <typename Array, std::size_t Rank>
  void shape(std::string_view name, const Array& array, const Shape<Rank>& wanted) const {
    if (array.extents != wanted)
      fail(name, "have shape " + text_of(wanted), text_of(array.extents));
    if (has_elements(wanted) && !array) fail(name, "have data", "a null pointer");
  }

  template <typename Array, std::size_t Rank>
  void shape_if_given(std::string_view name, const Array& array, const Shape<Rank>& wanted) const {
    if (array) shape(name, array, wanted);
  }

  // Requires that a written array has distinct memory for each element.
  template <typename Array>
  void own_places(std::string_view name, const Array& array) const {
    if (!has_elements(array.extents)) return;
    for (std::size_t axis = 0; axis < array.extents.size(); ++axis) {
      if (array && array.extents[axis] > 1 && array.strides[axis] == 0) {
        fail(name, "have no stride of 0, because it is written",
             "a stride of 0 along axis " + std::to_string(axis));
      }
    }
  }

  void type(std::string_view name, DType got, DType wanted, const std::string& like) const {
    if (got != wanted)
      fail(name, "be " + std::string(name_of(wanted)) + ", as " + like, name_of(got));
  }

  void not_codes(std::string_view name, DType got) const {
    if (got == DType::i8) fail(name, "be f32, bf16 or f16", "i8");
  }

  // Requires a valid number of scale groups for columns of 8-bit codes.
  void groups(std::string_view name, std::int64_t got, std::int64_t columns) const {
    if (got < 1 || columns % got != 0) {
      fail(name, "have a number of groups that divides " + std::to_string(columns) + " columns",
           std::to_string(got));
    }
  }

  void type_or_f32(std::string_view name, const Tensor& tensor, DType wanted) const {
    if (tensor.type != DType::f32) type(name, tensor.type, wanted, "q is, or f32");
  }

 private:
  std::string function_;
};

}  // namespace isentrope
