// How many keys a tile of scores holds.
#pragma once

#include <cstddef>

namespace isentrope {

// A strip's score tile, 12 x 256 floats, leaves room in a 32 KiB L1 for the panel that streams past
// it.
inline constexpr std::size_t kBlockKeys = 256;

// The backward pass has two tiles live at once, of four strips each.
inline constexpr std::size_t kGradientKeys = 128;

}  // namespace isentrope
