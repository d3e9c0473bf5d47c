// How many keys a tile of scores holds.
#pragma once

#include <cstddef>

namespace isentrope {

// A row tile's score tile, of up to 256 x 32 floats, fills a 32 KiB L1 while a panel of queries and
// the keys stream past it. Blocks of 96 and 144 keys, which leave them room, were no faster in f32
// and up to 6 % slower in bf16: sums are loaded and stored once a block.
inline constexpr std::size_t kBlockKeys = 256;

// The backward pass has two tiles live at once, of four row tiles each.
inline constexpr std::size_t kGradientKeys = 128;

}  // namespace isentrope
