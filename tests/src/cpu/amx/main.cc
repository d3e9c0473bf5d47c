// Test program with AMX's products of bf16 and f16: the CPU's own, or emulated. With --avx512 those
// of bf16 are AVX-512's, which a CPU with AMX would not choose.

#include <gtest/gtest.h>

#include <string_view>

#include "src/cpu/product/pair_kernels.h"
#include "tests/support/amx_emulator.h"

namespace isentrope {
namespace {

class Avx512 : public ::testing::Environment {
 public:
  void SetUp() override {
    ASSERT_EQ(avx512_pair_kernels()->why_not(), nullptr);
    use_pair_kernels(DType::bf16, avx512_pair_kernels());
  }
};

class Amx : public ::testing::Environment {
 public:
  void SetUp() override {
    ASSERT_NE(amx_pair_kernels(DType::bf16), nullptr);
    ASSERT_EQ(avx512_pair_kernels()->why_not(), nullptr);
    is_emulated_ = amx_pair_kernels(DType::bf16)->why_not();
    emulate_amx(/*cpu_has_tiles=*/!is_emulated_);
    for (const DType type : {DType::bf16, DType::f16})
      use_pair_kernels(type, amx_pair_kernels(type));
  }
  void TearDown() override {
    // Otherwise nothing was tested.
    if (is_emulated_) {
      EXPECT_GT(emulated_instructions(), 0);
    }
    std::printf("AMX's instructions emulated: %lld\n",
                static_cast<long long>(emulated_instructions()));
  }

 private:
  bool is_emulated_ = false;  // of bf16, and therefore all
};

}  // namespace
}  // namespace isentrope

int main(int argc, char** argv) {
  using isentrope::Amx, isentrope::Avx512;
  ::testing::InitGoogleTest(&argc, argv);
  const bool avx512 = argc > 1 && argv[1] == std::string_view("--avx512");
  ::testing::AddGlobalTestEnvironment(avx512 ? static_cast<::testing::Environment*>(new Avx512)
                                             : new Amx);
  return RUN_ALL_TESTS();
}
