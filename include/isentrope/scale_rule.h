// ScaleRule: the softmax scale lambda of a row, as a function of how many keys the row sees.
//
//   logits z_j = lambda(n, d) q.k_j
//
// A rule is a plain value: it compares, prints and round-trips through text. It is resolved once per
// call into one lambda per row and head (scale_table.h); kernels see numbers, never rules.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace isentrope {

// What a rule may know of a row's length.
struct RowLength {
  std::int64_t visible = 0;   // keys the row sees: position + 1 when causal
  std::int64_t position = 0;  // of the query, from 0, counted in keys
  std::int64_t total = 0;     // keys of the call
};

class ScaleRule {
 public:
  ScaleRule() = default;  // standard

  // 1 / sqrt(d): unit variance of q.k for independent components (Vaswani et al. 2017).
  static ScaleRule standard() { return {}; }
  // The given scale, whatever n and d.
  static ScaleRule constant(double scale);
  // ln n / (ln base sqrt(d)): constant entropy as n grows (Su 2021). base > 1. 0 at n = 1, where any
  // scale gives the same row; n below n_min counts as n_min.
  static ScaleRule entropy_invariant(double base = 512, double n_min = 1);
  // ln n / sqrt(d) (Chiang and Cholak 2022).
  static ScaleRule log_length();

  // "standard", "constant(scale=0.5)", "entropy_invariant(base=512)", ...: parse(text()) == *this.
  [[nodiscard]] std::string text() const;
  // Throws Error naming the rules there are when the text is not one.
  [[nodiscard]] static ScaleRule parse(std::string_view text);

  // The softmax scale of a row of head dimension dim. Finite and >= 0; 0 for a row without keys.
  [[nodiscard]] double lambda(const RowLength& length, std::int64_t dim) const;

  bool operator==(const ScaleRule&) const = default;

 private:
  enum class Kind { standard, constant, entropy_invariant, log_length };
  Kind kind_ = Kind::standard;
  double parameter_ = 0;  // scale or base
  double n_min_ = 1;
};

}  // namespace isentrope
