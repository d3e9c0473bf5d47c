#pragma once

#include <vector>

#include "isentrope/reference.h"
#include "tools/check/problem.h"

namespace isentrope::check {

// Contiguous inputs of a call. Floats hold values representable in the problem's type, so kernel
// and reference see the same numbers. Views point into the object, so it cannot move.
class Data {
 public:
  explicit Data(const Problem& problem);
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  // Updates derived data; must be called after changing q, k or v.
  void refresh();

  [[nodiscard]] AttentionInput input() const;
  // Returns keys and values in the problem's type; those of an 8-bit cache before quantization.
  [[nodiscard]] AttentionInput input_as_drawn() const;
  [[nodiscard]] reference::Input reference_input() const;
  [[nodiscard]] AttentionOptions options(const ParallelFor& parallel_for = run_serially) const;

  const Problem problem;
  std::vector<float> q, k, v;
  std::vector<float> row_weights;  // by which rows count in received(); some are 0
  // Keys of each row for weights_at(), kChosenKeys of them; some are past the call's keys.
  std::vector<std::int64_t> chosen_keys;
  static constexpr std::int64_t kChosenKeys = 3;
  [[nodiscard]] View<const std::int64_t, 4> chosen() const;

 private:
  void make_mask();
  void make_bias();
  void make_special();
  [[nodiscard]] ConstTensor tensor(const std::vector<float>& floats,
                                   const std::vector<std::uint16_t>& bits16, DType type,
                                   const std::array<std::int64_t, 4>& shape) const;
  // Keys or values in 8 bits.
  struct Codes {
    std::vector<std::int8_t> codes;
    std::vector<float> scales;
  };
  void quantize_cache();

  std::vector<std::uint16_t> q16_, k16_, v16_, bias16_;
  std::vector<double> q64_, k64_, v64_;
  std::vector<float> paged_k_, paged_v_;
  Codes k8_, v8_;
  std::vector<std::int32_t> page_table_;
  std::vector<std::int64_t> seqused_k_, cu_seq_q_;
  std::vector<std::int64_t> key_begin_, key_end_, cu_seqlens_q_, cu_seqlens_k_;
  std::array<std::vector<std::int64_t>, kMaskWords.size()> lists_;  // of mask words that have one
  std::vector<std::uint8_t> admitted_;
  std::vector<float> bias_, slopes_, sink_, lambda_;
};

// Returns standard normal upstream gradients in the problem's type for differentiable results.
[[nodiscard]] reference::GradientInput random_gradient(const Problem& problem);

[[nodiscard]] float rounded_to(DType type, float x);

// Returns the bits of numbers in a type of 16; none for f32.
[[nodiscard]] std::vector<std::uint16_t> bits16_of(DType type, const std::vector<float>& values);

}  // namespace isentrope::check
