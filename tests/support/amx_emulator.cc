#include "tests/support/amx_emulator.h"

#include <cpuid.h>
#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "src/cpu/product/amx_tiles.h"

namespace isentrope {
namespace {

constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;

// Operand of LDTILECFG and STTILECFG.
struct Configuration {
  std::uint8_t palette, start_row, reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(Configuration) == 64);

struct Tile {
  alignas(64) std::uint8_t bytes[kRows][kRowBytes];
};

// One for each thread, accessible from the signal handler without allocation.
thread_local Configuration configuration = {};
thread_local Tile tiles[kTiles] = {};
std::atomic<std::int64_t> instructions = 0;
bool has_tiles = true;  // whether the CPU has tiles

[[noreturn]] void refuse(const char* why) {
  for (const char* part : {"AMX would refuse this instruction: ", why, "\n"})
    static_cast<void>(!write(STDERR_FILENO, part, std::strlen(part)));
  std::abort();
}

// VEX.128.0F38.W0 with its prefix, opcode and ModRM byte, and the address after it.
struct Instruction {
  unsigned prefix, opcode, mod, reg, rm, vvvv;
  std::uint8_t* address = nullptr;  // in memory
  std::int64_t index = 0;           // stride register
  std::int64_t length = 5;
};
enum Prefix : unsigned { kNone, k66, kF3, kF2 };

std::int64_t register_of(const ucontext_t& context, unsigned number) {
  constexpr int kNames[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[kNames[number]];
}

template <typename T>
T read(const std::uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Source: Volume 2, 2.1.5: base, index and displacement.
void decode_address(const std::uint8_t* at, const ucontext_t& context, unsigned x, unsigned b,
                    Instruction& to) {
  const std::uint8_t* next = at + to.length;
  std::int64_t address = 0;
  if (to.rm == 4) {
    const std::uint8_t sib = *next++;
    const unsigned base = (sib & 7) | b << 3, index = (sib >> 3 & 7) | x << 3;
    if (index != 4) to.index = register_of(context, index) << (sib >> 6);
    if ((sib & 7) == 5 && to.mod == 0) {
      address = read<std::int32_t>(next);
      next += 4;
    } else {
      address = register_of(context, base);
    }
  } else if (to.rm == 5 && to.mod == 0) {
    address = reinterpret_cast<std::int64_t>(next + 4) + read<std::int32_t>(next);
    next += 4;
  } else {
    address = register_of(context, to.rm | b << 3);
  }
  if (to.mod == 1) address += static_cast<std::int8_t>(*next++);
  if (to.mod == 2) {
    address += read<std::int32_t>(next);
    next += 4;
  }
  to.address = reinterpret_cast<std::uint8_t*>(address);
  to.length = next - at;
}

// Decodes an instruction; returns whether it may be AMX's.
bool decode(const std::uint8_t* at, const ucontext_t& context, Instruction& to) {
  if (at[0] != 0xc4 || (at[1] & 0x1f) != 2 || (at[2] & 0x84) != 0) return false;
  const unsigned r = ~at[1] >> 7 & 1, x = ~at[1] >> 6 & 1, b = ~at[1] >> 5 & 1;
  to.prefix = at[2] & 3;
  to.vvvv = ~static_cast<unsigned>(at[2]) >> 3 & 15;
  to.opcode = at[3];
  if (to.opcode != 0x49 && to.opcode != 0x4b && to.opcode != 0x5c) return false;
  to.mod = at[4] >> 6;
  to.reg = (at[4] >> 3 & 7) | r << 3;
  to.rm = at[4] & 7;
  if (to.mod != 3) {
    decode_address(at, context, x, b, to);
  } else {
    to.rm |= b << 3;
  }
  return true;
}

void load_configuration(const Instruction& instruction) {
  const auto wanted = read<Configuration>(instruction.address);
  std::memset(tiles, 0, sizeof(tiles));
  configuration = {};
  if (wanted.palette == 0) return;
  if (wanted.palette != 1) refuse("there is no such palette");
  if (wanted.start_row != 0) refuse("loads and stores begin at row 0 in this library");
  for (const std::uint8_t reserved : wanted.reserved)
    if (reserved != 0) refuse("a reserved byte of the configuration is not 0");
  for (int tile = 0; tile < 16; ++tile) {
    const int rows = wanted.rows[tile], row_bytes = wanted.row_bytes[tile];
    if (tile >= kTiles && (rows | row_bytes) != 0) refuse("more than 8 tiles are configured");
    if (rows > kRows || row_bytes > kRowBytes) refuse("a configured tile is too large");
    if ((rows == 0) != (row_bytes == 0)) refuse("a tile is configured with one extent that is 0");
  }
  configuration = wanted;
}

void check_tile(unsigned tile) {
  if (configuration.palette == 0) refuse("tiles are not configured");
  if (tile >= kTiles) refuse("there is no such tile");
  if (configuration.rows[tile] == 0) refuse("this tile is not configured");
}

// Rows and columns beyond the configured ones become 0.
void load_tile(const Instruction& instruction) {
  check_tile(instruction.reg);
  Tile loaded = {};
  for (std::int64_t row = 0; row < configuration.rows[instruction.reg]; ++row)
    std::memcpy(loaded.bytes[row], instruction.address + row * instruction.index,
                configuration.row_bytes[instruction.reg]);
  tiles[instruction.reg] = loaded;
}

void store_tile(const Instruction& instruction) {
  check_tile(instruction.reg);
  for (std::int64_t row = 0; row < configuration.rows[instruction.reg]; ++row)
    std::memcpy(instruction.address + row * instruction.index, tiles[instruction.reg].bytes[row],
                configuration.row_bytes[instruction.reg]);
}

#define ISENTROPE_AVX512 __attribute__((target("avx512f")))

// Masked, because GCC 12 warns of undefined values in the unmasked functions.
constexpr __mmask16 kAll = 0xffff;

// f16 denormals are used as they are: this conversion has no other mode.
template <DType kType>
ISENTROPE_AVX512 inline __m512 firsts_of(__m512i pairs) {
  if constexpr (kType == DType::f16)
    return _mm512_maskz_cvtph_ps(kAll, _mm512_maskz_cvtepi32_epi16(kAll, pairs));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, pairs, 16));
}
template <DType kType>
ISENTROPE_AVX512 inline __m512 seconds_of(__m512i pairs) {
  return firsts_of<kType>(_mm512_maskz_srli_epi32(kAll, pairs, 16));
}

// Returns the first of several NaN, made quiet.
ISENTROPE_AVX512 inline __m512 nan_of(__m512 x, __m512 otherwise) {
  const __m512i quiet = _mm512_or_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x400000));
  return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                            _mm512_castsi512_ps(quiet));
}
ISENTROPE_AVX512 inline __m512 add(__m512 x, __m512 y) {
  return nan_of(x, nan_of(y, _mm512_add_ps(x, y)));
}
ISENTROPE_AVX512 inline __m512 add_product(__m512 sum, __m512 x, __m512 y) {
  return nan_of(x, nan_of(y, nan_of(sum, _mm512_fmadd_ps(x, y, sum))));
}

// Products of first numbers, and of second ones, are summed separately by fused operations from 0,
// added, and added to C. Not inlined: the compiler does not know the caller's rounding mode.
template <DType kType>
ISENTROPE_AVX512 __attribute__((noinline)) void add_products(const Tile& a, const Tile& b,
                                                             std::size_t depth, std::size_t rows,
                                                             __mmask16 columns, Tile& c) {
  for (std::size_t row = 0; row < rows; ++row) {
    __m512 first = _mm512_setzero_ps(), second = first;
    for (std::size_t k = 0; k < depth; ++k) {
      const __m512i left = _mm512_set1_epi32(read<std::int32_t>(a.bytes[row] + 4 * k));
      const __m512i right = _mm512_load_si512(b.bytes[k]);
      first = add_product(first, firsts_of<kType>(left), firsts_of<kType>(right));
      second = add_product(second, seconds_of<kType>(left), seconds_of<kType>(right));
    }
    const __m512 sum = add(_mm512_load_ps(c.bytes[row]), add(first, second));
    _mm512_store_ps(c.bytes[row], _mm512_maskz_mov_ps(columns, sum));
  }
  for (std::size_t row = rows; row < kRows; ++row) std::memset(c.bytes[row], 0, kRowBytes);
}

// Rounds to nearest even, keeps denormal floats, and raises no exception, whatever MXCSR holds.
void add_products_of_amx(DType type, const Tile& a, const Tile& b, std::size_t depth,
                         std::size_t rows, __mmask16 columns, Tile& c) {
  constexpr unsigned kFlushDenormals = 0x8040, kNoExceptions = 0x1f80;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kFlushDenormals | kNoExceptions);
  type == DType::f16 ? add_products<DType::f16>(a, b, depth, rows, columns, c)
                     : add_products<DType::bf16>(a, b, depth, rows, columns, c);
  _mm_setcsr(before);
}

void multiply_pairs(DType type, const Instruction& instruction) {
  const unsigned c = instruction.reg, a = instruction.rm, b = instruction.vvvv;
  for (const unsigned tile : {c, a, b}) check_tile(tile);
  if (a == b || a == c || b == c) refuse("a product takes three different tiles");
  const Configuration& of = configuration;
  for (const unsigned tile : {c, a, b})
    if (of.row_bytes[tile] % 4 != 0) refuse("rows of a product are whole floats or pairs");
  if (of.rows[a] != of.rows[c]) refuse("A and C have as many rows");
  if (of.row_bytes[b] != of.row_bytes[c]) refuse("B and C have as many columns");
  if (of.row_bytes[a] / 4 != of.rows[b]) refuse("A has as many pairs in a row as B has rows");
  add_products_of_amx(type, tiles[a], tiles[b], of.rows[b], of.rows[c],
                      static_cast<__mmask16>((1u << of.row_bytes[c] / 4) - 1), tiles[c]);
}

void of_configuration(const Instruction& instruction) {
  const bool in_memory = instruction.mod != 3;
  if (in_memory && instruction.prefix == kNone) return load_configuration(instruction);
  if (in_memory && instruction.prefix == k66) {
    std::memcpy(instruction.address, &configuration, sizeof(configuration));
  } else if (!in_memory && instruction.prefix == kNone && instruction.reg + instruction.rm == 0) {
    std::memset(tiles, 0, sizeof(tiles));
    configuration = {};
  } else if (!in_memory && instruction.prefix == kF2 && instruction.rm == 0) {
    check_tile(instruction.reg);
    tiles[instruction.reg] = {};
  } else {
    refuse("it has this opcode and is none that the emulator knows");
  }
}

void run(const Instruction& instruction) {
  const bool has_stride = instruction.mod != 3 && instruction.rm == 4;
  switch (instruction.opcode) {
    case 0x49:
      return of_configuration(instruction);
    case 0x4b:  // TILELOADD and TILELOADDT1, TILESTORED
      if (has_stride && (instruction.prefix == kF2 || instruction.prefix == k66))
        return load_tile(instruction);
      if (has_stride && instruction.prefix == kF3) return store_tile(instruction);
      break;
    case 0x5c:
      if (instruction.mod != 3) break;
      if (instruction.prefix == kF3) return multiply_pairs(DType::bf16, instruction);
      if (instruction.prefix == kF2) return multiply_pairs(DType::f16, instruction);
      break;
  }
  refuse("it has this opcode and is none that the emulator knows");
}

// The CPU's own tiles in the signal frame: XSAVE's standard form. Components of bit 0 are initial.
class SavedTiles {
 public:
  explicit SavedTiles(const ucontext_t& context)
      : area_(reinterpret_cast<std::uint8_t*>(context.uc_mcontext.fpregs)) {
    if ((read<std::uint64_t>(area_ + kFeatures) >> kTileData & 1) == 0)
      refuse("the thread has used no tile, so Linux did not save any");
    static const std::size_t configuration_at = offset_of(kConfiguration);
    take(kConfiguration, configuration_at, &configuration, sizeof(configuration));
    take(kTileData, tiles_at(), tiles, sizeof(tiles));
  }
  ~SavedTiles() {
    std::memcpy(area_ + tiles_at(), tiles, sizeof(tiles));
    const std::uint64_t present = bits() | 1u << kTileData;
    std::memcpy(area_ + kBits, &present, sizeof(present));
  }
  SavedTiles(const SavedTiles&) = delete;
  SavedTiles& operator=(const SavedTiles&) = delete;

 private:
  static constexpr unsigned kConfiguration = 17, kTileData = 18, kFeatures = 472, kBits = 512;

  static std::size_t offset_of(unsigned component) {
    unsigned size = 0, offset = 0, c = 0, d = 0;
    __get_cpuid_count(0xd, component, &size, &offset, &c, &d);
    return offset;
  }
  static std::size_t tiles_at() {
    static const std::size_t offset = offset_of(kTileData);
    return offset;
  }
  [[nodiscard]] std::uint64_t bits() const { return read<std::uint64_t>(area_ + kBits); }
  void take(unsigned component, std::size_t at, void* to, std::size_t size) const {
    std::memset(to, 0, size);
    if (bits() >> component & 1) std::memcpy(to, area_ + at, size);
  }

  std::uint8_t* area_;
};

void on_illegal_instruction(int signal, siginfo_t* /*info*/, void* at) {
  auto& context = *static_cast<ucontext_t*>(at);
  auto& next = context.uc_mcontext.gregs[REG_RIP];
  Instruction instruction{};
  if (!decode(reinterpret_cast<const std::uint8_t*>(next), context, instruction)) {
    ::signal(signal, SIG_DFL);  // repeating the instruction then ends the program
    return;
  }
  if (has_tiles) {
    const SavedTiles saved(context);
    run(instruction);
  } else {
    run(instruction);
  }
  instructions.fetch_add(1, std::memory_order_relaxed);
  next += instruction.length;
}

}  // namespace

void emulate_amx(bool cpu_has_tiles) {
  has_tiles = cpu_has_tiles;
  struct sigaction action = {};
  action.sa_sigaction = on_illegal_instruction;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, nullptr);
}

void emulate_product(DType type, const void* a, const void* b, void* c) {
  Tile left, right, sums;
  std::memcpy(&left, a, sizeof(Tile)), std::memcpy(&right, b, sizeof(Tile));
  std::memcpy(&sums, c, sizeof(Tile));
  add_products_of_amx(type, left, right, kRows, kRows, 0xffff, sums);
  std::memcpy(c, &sums, sizeof(Tile));
}

bool is_emulated(DType type) {
  amx::configure(amx::Configuration());
  amx::zero<0>();  // Linux saves a thread's tiles in signal frames from its first use of them on
  const std::int64_t before = instructions;
  type == DType::f16 ? amx::multiply_pairs<DType::f16, 0, 1, 2>()
                     : amx::multiply_pairs<DType::bf16, 0, 1, 2>();
  const bool emulated = instructions > before;
  amx::release();
  return emulated;
}

std::int64_t emulated_instructions() { return instructions; }

bool tiles_are_released() {
  if (!has_tiles) return configuration.palette == 0;
  alignas(64) Configuration of_cpu;
  asm volatile("sttilecfg %0" : "=m"(of_cpu));
  return of_cpu.palette == 0;
}

}  // namespace isentrope
