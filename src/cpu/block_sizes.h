// Number of keys in a tile of scores.
#pragma once

#include <cstddef>

namespace isentrope {

// A score tile of up to 256 x 32 floats fills a 32 KiB L1 while a panel of queries and the keys
// stream past. Blocks of 96 and 144 keys were no faster in f32 and up to 6 % slower in bf16,
// because sums are loaded and stored once a block.
inline constexpr std::size_t kBlockKeys = 256;

// The backward pass has two tiles live at once, of four row tiles each.
inline constexpr std::size_t kGradientKeys = 128;

}  // namespace isentrope
