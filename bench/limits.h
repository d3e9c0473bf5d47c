// What the machine could do at best, measured: one thread, on the active target.
#pragma once

#include <cstddef>

namespace isentrope {

struct Limits {
  double flops = 0;       // fused multiply-adds in registers a second, times two
  double bf16_flops = 0;  // the same of bf16 dot products; 0 where there are none
  double exps = 0;        // softmax weights a second, with all their sums
};

// Takes some hundredths of a second.
[[nodiscard]] Limits measure_limits();

// Bytes a second, out of an array that no cache holds. Takes some tenths of a second.
[[nodiscard]] double measure_memory_read();

// The tiles that the kernels work on.
struct TileSizes {
  std::size_t register_rows, panel_columns;  // of the register tile
  std::size_t block_keys;                    // of a tile of scores
};
[[nodiscard]] TileSizes tile_sizes();

}  // namespace isentrope
