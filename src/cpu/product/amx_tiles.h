// AMX's tiles: eight registers of 16 rows of 64 bytes, their detection and their instructions.
//
// Written as assembly: intrinsics differ between compilers, and some hide which memory they read.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__)
#define ISENTROPE_HAS_AMX_TILES 1
#else
#define ISENTROPE_HAS_AMX_TILES 0
#endif

#if ISENTROPE_HAS_AMX_TILES

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "isentrope/tensor.h"

namespace isentrope::amx {

// Rows of a full tile, and the floats or pairs of 16-bit numbers in 64 bytes.
inline constexpr std::size_t kSide = 16;

inline bool cpu_has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTiles = 1u << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kBf16) == 0 || (d & kTiles) == 0)
    return false;
  // Palette 1 has at least eight tiles of 16 rows of 64 bytes.
  return __get_cpuid_count(0x1d, 1, &a, &b, &c, &d) && (b & 0xffff) == 4 * kSide && b >> 16 >= 8 &&
         (c & 0xffff) == kSide;
}

// Products of f16 came with a later CPU.
inline bool cpu_multiplies_f16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 21) != 0;
}

inline bool system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kOsXsave = 1u << 27, kTileStates = 3u << 17;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsXsave) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileStates) == kTileStates;
}

// Linux allocates tile state when a process requests it; threads and children inherit it.
inline bool process_may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Requirements, in the order of the checks: permission is requested last.
struct Needs {
  bool (*cpu_has_tiles)() = amx::cpu_has_tiles;
  bool (*cpu_rounds)() = [] { return __builtin_cpu_supports("avx512bf16") != 0; };
  bool (*system_saves_tiles)() = amx::system_saves_tiles;
  bool (*process_may_use_tiles)() = amx::process_may_use_tiles;
};
// Returns why tiles cannot be used; null if they can.
inline const char* why_not(const Needs& needs) {
  if (!needs.cpu_has_tiles()) return "this CPU does not have it";
  if (!needs.cpu_rounds()) return "AVX-512 BF16, which rounds for it, is hidden";
  if (!needs.system_saves_tiles()) return "the operating system does not save its tiles";
  if (!needs.process_may_use_tiles()) return "the operating system refused the process its tiles";
  return nullptr;
}
// Returns why this process cannot use tiles. Computed once, because the answer is constant.
inline const char* why_not() {
  static const char* const reason = why_not(Needs());
  return reason;
}

// Operand of LDTILECFG. All tiles are whole, and products pad their operands instead. A change of
// configuration takes 204 cycles, as long as 13 tile products.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {kSide, kSide, kSide, kSide, kSide, kSide, kSide, kSide};
};
static_assert(sizeof(Configuration) == 64);

inline void configure(const Configuration& configuration) {
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}
// Releases the tiles, so that a context switch does not save them.
inline void release() { asm volatile("tilerelease"); }

template <int kTile>
inline void zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Loads 16 rows of 64 bytes, `stride` bytes apart.
template <int kTile>
inline void load(const void* from, std::size_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(from), "r"(stride) : "memory");
}
template <int kTile>
inline void store(void* to, std::size_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(to), "r"(stride) : "memory");
}
// Computes C += A B: floats in C, pairs along the rows of A and down the columns of B.
template <DType kType, int kC, int kA, int kB>
inline void multiply_pairs() {
  if constexpr (kType == DType::bf16) {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  } else {
    // tdpfp16ps, VEX.128.F2.0F38.W0 5C /r, which assemblers before binutils 2.40 do not know.
    asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1"
                 :
                 : "i"(0x03 | (15 ^ kB) << 3), "i"(0xc0 | kC << 3 | kA));
  }
}

}  // namespace isentrope::amx

#endif
