// BFMMLA in the mode of FEAT_EBF16, which does not round to odd: within the same budget.

#include <arm_neon.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "src/cpu/product/pair_kernels.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

namespace isentrope::check {
namespace {

std::uint64_t fpcr() {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_fpcr(std::uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }

// Enables the mode during its lifetime, if the CPU has it. Threads started meanwhile inherit it.
class ExtendedMode {
 public:
  ExtendedMode() { set_fpcr(before_ | kEbf); }
  ~ExtendedMode() { set_fpcr(before_); }
  ExtendedMode(const ExtendedMode&) = delete;
  ExtendedMode& operator=(const ExtendedMode&) = delete;

  // Without FEAT_EBF16 the bit stays 0.
  static bool is_on() { return (fpcr() & kEbf) != 0; }

 private:
  static constexpr std::uint64_t kEbf = 1u << 13;
  std::uint64_t before_ = fpcr();
};

// Returns 1 + 2^-26 as BFMMLA rounds it. Not inlined, because the compiler does not know the mode.
__attribute__((noipa, target("+bf16"))) float rounded_sum() {
  const auto number = vreinterpretq_bf16_u16(vsetq_lane_u16(0x3900, vdupq_n_u16(0), 0));  // 2^-13
  return vgetq_lane_f32(vbfmmlaq_f32(vdupq_n_f32(1), number, number), 0);
}

TEST(ExtendedBf16, IsWithinTheSameBudget) {
  if (!pair_kernels(DType::bf16)) GTEST_SKIP() << "this CPU has no BFMMLA";
  ASSERT_EQ(rounded_sum(), 1 + 0x1p-23f);  // rounded to odd
  const ExtendedMode mode;
  if (!mode.is_on()) GTEST_SKIP() << "this CPU has no FEAT_EBF16";
  ASSERT_EQ(rounded_sum(), 1);
  int passed = 0;
  for (std::int64_t index = 0; index < 60; ++index) {
    Problem problem = generated_problem(5, index, 50'000);
    problem.key_type.reset();
    problem.type = DType::bf16;
    for (std::int64_t* dim : {&problem.dim, &problem.value_dim}) *dim = (*dim + 31) / 32 * 32;
    const Verdict verdict = Judge(problem).judge();
    EXPECT_NE(verdict.outcome, Outcome::failed)
        << text_of(problem) << ": " << verdict.worst().worst << " " << verdict.worst().where;
    passed += verdict.outcome == Outcome::passed;
  }
  EXPECT_GE(passed, 45);
}

}  // namespace
}  // namespace isentrope::check
