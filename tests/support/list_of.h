// Lists of numbers as arguments of calls.
#pragma once

#include <cstdint>

#include "isentrope/view.h"

namespace isentrope {

// Returns a view of a vector or an array, which must outlive it.
template <typename List>
View<const typename List::value_type, 1> list_of(const List& numbers) {
  return contiguous_view<const typename List::value_type, 1>(
      numbers.data(), {static_cast<std::int64_t>(numbers.size())});
}

}  // namespace isentrope
