// AMX's tiles: eight registers of 16 rows of 64 bytes, and what is done with them.
//
// Written as assembly, because the compilers' own functions come under names, headers and options
// that differ, and some of them tell the compiler nothing of the memory they read.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)

#include <cstddef>
#include <cstdint>

namespace isentrope::amx {

// Of a tile in full: its rows, and what 64 bytes hold of floats or of pairs of bf16 numbers.
inline constexpr std::size_t kSide = 16;

// What LDTILECFG reads. All tiles are whole: products pad their operands instead, for a change of
// the configuration takes 204 cycles, as long as 13 products of tiles.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {kSide, kSide, kSide, kSide, kSide, kSide, kSide, kSide};
};
static_assert(sizeof(Configuration) == 64);

inline void configure(const Configuration& configuration) {
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}
// The tiles are as they were before configure(), and a switch of threads does not save them.
inline void release() { asm volatile("tilerelease"); }

template <int kTile>
inline void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// 16 rows of 64 bytes, `stride` bytes apart.
template <int kTile>
inline void load(const void* from, std::size_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(from), "r"(stride) : "memory");
}
template <int kTile>
inline void store(void* to, std::size_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(to), "r"(stride) : "memory");
}
// C += A B: floats of C, pairs along the rows of A and down the columns of B.
template <int kC, int kA, int kB>
inline void multiply_pairs() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

}  // namespace isentrope::amx

#endif
