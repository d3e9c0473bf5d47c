// The emulator alone: the effect of each instruction on tiles, and the operands that it rejects.

#include "tests/support/amx_emulator.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

#include "isentrope/attention.h"
#include "src/cpu/product/amx_tiles.h"
#include "src/cpu/product/pair_kernels.h"

namespace isentrope {
namespace {

using Tile = std::array<float, 256>;  // 16 rows of 16
constexpr std::size_t kStride = 64;

template <typename T>
struct alignas(64) PairsOf {
  T at[16][32] = {};
};
using Pairs = PairsOf<BFloat16>;

template <typename T>
constexpr DType kTypeOf = std::is_same_v<T, BFloat16> ? DType::bf16 : DType::f16;

class AmxEmulator : public ::testing::Test {
 protected:
  void SetUp() override { amx::configure(configuration_); }
  void TearDown() override { amx::release(); }

  // Returns C, initially `c` everywhere, after a product.
  template <typename T>
  static Tile product(const PairsOf<T>& a, const PairsOf<T>& b, float c = 0) {
    alignas(64) Tile tile;
    tile.fill(c);
    amx::load<0>(tile.data(), kStride);
    amx::load<1>(&a, kStride);
    amx::load<2>(&b, kStride);
    amx::multiply_pairs<kTypeOf<T>, 0, 1, 2>();
    amx::store<0>(tile.data(), kStride);
    return tile;
  }

  amx::Configuration configuration_;
};

// For both types.
template <typename T>
class AmxProduct : public AmxEmulator {};
using Types = ::testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(AmxProduct, Types, );

TYPED_TEST(AmxProduct, MultipliesPairs) {
  PairsOf<TypeParam> a, b;
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 32; ++j) {
      a.at[i][j] = from_float<TypeParam>(static_cast<float>(i + 2 * j % 7));
      b.at[i][j] = from_float<TypeParam>(static_cast<float>(3 * i % 5) - static_cast<float>(j % 4));
    }
  }
  const Tile c = this->product(a, b, 7);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 16; ++column) {
      float want = 7;
      for (std::size_t k = 0; k < 16; ++k) {
        for (std::size_t half = 0; half < 2; ++half)
          want += to_float(a.at[row][2 * k + half]) * to_float(b.at[k][2 * column + half]);
      }
      EXPECT_EQ(c[row * 16 + column], want) << row << " " << column;
    }
  }
}

// First and second numbers of pairs are summed separately and joined at the end.
TYPED_TEST(AmxProduct, SumsInThePublishedOrder) {
  PairsOf<TypeParam> a, b;
  const auto number = [](float x) { return from_float<TypeParam>(x); };
  for (std::size_t k = 0; k < 3; ++k) b.at[k][0] = b.at[k][1] = number(1);
  // firsts: 2^24 + 1 + 1 = 2^24, each 1 lost to the even neighbour; seconds: 1 + 1 = 2.
  a.at[0][0] = b.at[0][0] = number(0x1p12f), a.at[0][2] = number(1), a.at[0][4] = number(1);
  a.at[0][1] = number(1), a.at[0][3] = number(1);
  EXPECT_EQ(this->product(a, b)[0], 0x1p24f + 2);
}

TEST_F(AmxEmulator, TakesAndLeavesDenormalsAsZeroAndKeepsNaN) {
  Pairs a, b;
  a.at[0][0] = std::bit_cast<BFloat16>(std::uint16_t{0x0040});  // a denormal
  b.at[0][0] = from_float<BFloat16>(0x1p100f);
  EXPECT_EQ(product(a, b)[0], 0);
  a.at[0][0] = from_float<BFloat16>(0x1p-100f);
  b.at[0][0] = from_float<BFloat16>(0x1p-30f);
  EXPECT_EQ(product(a, b)[0], 0);
  EXPECT_EQ(product(Pairs(), Pairs(), 0x1p-130f)[0], 0);
  a.at[0][0] = from_float<BFloat16>(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(product(a, Pairs())[0]));
  EXPECT_EQ(product(a, Pairs())[16], 0);
}

// Floats as above. In f16 the smallest number counts, and products of two are normal floats.
TEST_F(AmxEmulator, TakesDenormalsOfF16) {
  PairsOf<Float16> a, b;
  a.at[0][1] = b.at[0][1] = std::bit_cast<Float16>(std::uint16_t{0x0001});
  b.at[0][3] = from_float<Float16>(65504);
  a.at[1][1] = std::bit_cast<Float16>(std::uint16_t{0x8001});
  a.at[2][1] = from_float<Float16>(65504);
  const Tile c = product(a, b);
  EXPECT_EQ(c[0], 0x1p-48f);
  EXPECT_EQ(c[16 + 1], -65504 * 0x1p-24f);
  EXPECT_EQ(c[2 * 16 + 1], 65504.0f * 65504.0f);
  EXPECT_EQ(product(PairsOf<Float16>(), PairsOf<Float16>(), 0x1p-130f)[0], 0);
  a.at[0][0] = from_float<Float16>(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(product(a, b)[0]));  // inf times 0
}

// Returns a number with an exponent within `exponents` of `exponent`, of either sign.
std::uint32_t number_near(std::mt19937& draw, unsigned exponent, unsigned exponents) {
  const auto drawn = static_cast<std::uint32_t>(draw());
  return (drawn & 0x807fffff) | (exponent + (drawn >> 24 & 0x7f) % exponents) << 23;
}

// bf16 products of 2^-130 to 2^-126, whose sums become denormals, and f16 products of denormals.
// Then random bits: signalling and quiet NaN, infinities, denormals.
TYPED_TEST(AmxProduct, ComputesTheBitsOfTheCpu) {
  constexpr bool kF16 = kTypeOf<TypeParam> == DType::f16;
  if (is_emulated(kTypeOf<TypeParam>)) GTEST_SKIP();
  amx::configure(this->configuration_);
  std::mt19937 draw;
  for (int repetition = 0; repetition < 300; ++repetition) {
    alignas(64) std::uint32_t a[256], b[256], c[256], want[256];
    for (std::size_t i = 0; i < 256; ++i) {
      const bool any = repetition % 3 == 0, small = repetition % 3 == 1;
      const auto number = [&](unsigned exponent) {
        const auto bits = static_cast<std::uint32_t>(draw());
        return any && bits % 4 == 0 ? static_cast<std::uint32_t>(draw())
                                    : number_near(draw, exponent, 3);
      };
      // The upper half of a float is a bf16 number. Its sign, 5 bits of its exponent and the next
      // 10 bits form an f16 number with this exponent.
      const auto half = [&]() -> std::uint32_t {
        if (!kF16) return number(small ? 62 : 126) >> 16;
        const std::uint32_t bits = number(small ? 0 : 14);
        return (bits >> 16 & 0x8000) | (bits >> 13 & 0x7fff);
      };
      const auto pair = [&] { return half() | half() << 16; };
      a[i] = pair(), b[i] = pair();
      want[i] = c[i] = number(!small ? 126 : kF16 ? 80 : 0);
    }
    emulate_product(kTypeOf<TypeParam>, a, b, want);
    amx::load<0>(c, kStride), amx::load<1>(a, kStride), amx::load<2>(b, kStride);
    amx::multiply_pairs<kTypeOf<TypeParam>, 0, 1, 2>();
    amx::store<0>(c, kStride);
    for (std::size_t i = 0; i < 256; ++i) ASSERT_EQ(c[i], want[i]) << repetition << " " << i;
  }
}

TEST_F(AmxEmulator, SmallTilesAreZeroBeyondTheirExtents) {
  alignas(64) Tile from, to;
  from.fill(1), to.fill(5);
  amx::load<3>(from.data(), kStride);
  amx::configure(amx::Configuration());  // clears all tiles
  amx::store<3>(to.data(), kStride);
  EXPECT_EQ(to[0], 0);
  configuration_.rows[0] = 3;
  configuration_.row_bytes[0] = 8;
  amx::configure(configuration_);
  amx::load<0>(from.data(), kStride);
  to.fill(5);
  amx::store<0>(to.data(), kStride);
  EXPECT_EQ(to[1], 1);
  EXPECT_EQ(to[2], 5);  // memory past the row is unchanged
  EXPECT_EQ(to[2 * 16 + 1], 1);
  EXPECT_EQ(to[3 * 16], 5);
}

TEST_F(AmxEmulator, ReadsRowsAtAnyStride) {
  alignas(64) Tile from, to;
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  amx::load<5>(from.data() + 16 * 15, static_cast<std::size_t>(-64));
  amx::store<5>(to.data(), kStride);
  EXPECT_EQ(to[0], 240);
  EXPECT_EQ(to[16 * 15 + 3], 3);
  amx::zero<5>();
  amx::store<5>(to.data(), kStride);
  EXPECT_EQ(to[0], 0);
}

TEST_F(AmxEmulator, TheConfigurationCanBeReadAndReleased) {
  amx::Configuration read;
  EXPECT_FALSE(tiles_are_released());
  asm volatile("sttilecfg %0" : "=m"(read));
  EXPECT_EQ(std::memcmp(&read, &configuration_, sizeof(read)), 0);
  amx::release();
  EXPECT_TRUE(tiles_are_released());
  asm volatile("sttilecfg %0" : "=m"(read));
  EXPECT_EQ(read.palette, 0);
}

// Emulator only: a CPU reports no more than an illegal instruction.
class AmxEmulatorDeathTest : public AmxEmulator {
  void SetUp() override {
    if (!is_emulated(DType::bf16)) GTEST_SKIP();
    AmxEmulator::SetUp();
  }
};

void configure_with(void (*change)(amx::Configuration&)) {
  amx::Configuration configuration;
  change(configuration);
  amx::configure(configuration);
}

TEST_F(AmxEmulatorDeathTest, IllegalConfigurationsAreRefused) {
  EXPECT_DEATH(configure_with([](auto& c) { c.palette = 2; }), "palette");
  EXPECT_DEATH(configure_with([](auto& c) { c.reserved[3] = 1; }), "reserved");
  EXPECT_DEATH(configure_with([](auto& c) { c.rows[1] = 17; }), "too large");
  EXPECT_DEATH(configure_with([](auto& c) { c.row_bytes[1] = 68; }), "too large");
  EXPECT_DEATH(configure_with([](auto& c) { c.rows[2] = 0; }), "one extent");
  EXPECT_DEATH(configure_with([](auto& c) { c.row_bytes[8] = c.rows[8] = 16; }), "more than 8");
}

TEST_F(AmxEmulatorDeathTest, TilesThatDoNotFitAreRefused) {
  const auto multiply = [](void (*change)(amx::Configuration&)) {
    configure_with(change);
    amx::multiply_pairs<DType::bf16, 0, 1, 2>();
  };
  EXPECT_DEATH(multiply([](auto& c) { c.rows[1] = 8; }), "A and C");
  EXPECT_DEATH(multiply([](auto& c) { c.row_bytes[2] = 32; }), "B and C");
  EXPECT_DEATH(multiply([](auto& c) { c.rows[2] = 8; }), "as B has rows");
  EXPECT_DEATH(multiply([](auto& c) { c.row_bytes[1] = 62; }), "whole floats");
  // tdpbf16ps %tmm1, %tmm1, %tmm0, which assemblers reject as well.
  EXPECT_DEATH(asm volatile(".byte 0xc4, 0xe2, 0x72, 0x5c, 0xc1"), "three different");
}

TEST_F(AmxEmulatorDeathTest, NothingRunsWithoutAConfiguration) {
  amx::release();
  EXPECT_DEATH(amx::zero<0>(), "not configured");
  EXPECT_DEATH((amx::multiply_pairs<DType::bf16, 0, 1, 2>()), "not configured");
}

}  // namespace
}  // namespace isentrope
