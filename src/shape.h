// Shapes of any rank as text for messages.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace isentrope {

template <std::size_t Rank>
using Shape = std::array<std::int64_t, Rank>;

template <std::size_t Rank>
std::string text_of(const Shape<Rank>& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

template <std::size_t Rank>
bool has_elements(const Shape<Rank>& shape) {
  for (const std::int64_t extent : shape) {
    if (extent == 0) return false;
  }
  return true;
}

}  // namespace isentrope
