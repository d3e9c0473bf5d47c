// Peak rates of the machine, measured with one thread on the active target.
#pragma once

#include <cstddef>

namespace isentrope {

struct Limits {
  double flops = 0;       // fused multiply-adds in registers a second, times two
  double bf16_flops = 0;  // same for bf16 dot products; 0 if there are none
  double exps = 0;        // softmax weights a second, with all their sums
};

// Measures the peaks. Takes some hundredths of a second.
[[nodiscard]] Limits measure_limits();

// Returns the bytes a second of reading an array larger than all caches. Takes some tenths of a
// second.
[[nodiscard]] double measure_memory_read();

struct TileSizes {
  std::size_t register_rows, panel_columns;  // of the register tile
  std::size_t block_keys;                    // of a tile of scores
};
[[nodiscard]] TileSizes tile_sizes();

}  // namespace isentrope
