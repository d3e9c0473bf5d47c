// Pairs: arithmetic of bf16 and f16 rows, whose numbers enter dot products in pairs.

#if defined(ISENTROPE_PAIRS_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_PAIRS_ARITHMETIC_INL_H_
#undef ISENTROPE_PAIRS_ARITHMETIC_INL_H_
#else
#define ISENTROPE_PAIRS_ARITHMETIC_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/cpu/product/operand.h"
#include "src/cpu/product/pack-inl.h"
#include "src/cpu/product/pair_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

class Pairs {
 public:
  using Element = Pair;
  static constexpr std::size_t kNumbers = 2;  // numbers in an element

  explicit Pairs(DType type) : kernels_(pair_kernels(type)) {}

  // Requires serves().
  [[nodiscard]] const PairKernels& kernels() const { return *kernels_; }

  // Calls begin and end of the kernels around all products of a task.
  class Session {
   public:
    Session(const Pairs& pairs, bool needed) : kernels_(needed ? pairs.kernels_ : nullptr) {
      if (kernels_ && kernels_->begin) kernels_->begin();
    }
    ~Session() {
      if (kernels_ && kernels_->end) kernels_->end();
    }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

   private:
    const PairKernels* kernels_;
  };

  // Returns the pairs of neighbouring rows for `rows` rows, padded to the kernels' depth.
  [[nodiscard]] std::size_t pairs_of(std::size_t rows) const {
    return rows == 0 ? 0 : round_up((rows + 1) / 2, kernels().depth);
  }

  // Returns whether the CPU's dot products have this target's tiles, and the tensor's rows are
  // whole vectors. Rows could be padded, but few models have other head dimensions.
  [[nodiscard]] HWY_INLINE bool serves(const ConstTensor& tensor) const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<std::uint16_t>()));
    return kernels_ && kernels_->columns == panel_width() && tensor.type == kernels_->type &&
           tensor.extents[3] % lanes == 0;
  }

  // Returns whether the tensor's rows may be queries: those of f32 are rounded to bf16 when packed.
  [[nodiscard]] HWY_INLINE bool serves_queries(const ConstTensor& q) const {
    ConstTensor packed = q;
    if (kernels_ && kernels_->type == DType::bf16 && q.type == DType::f32)
      packed.type = DType::bf16;
    return serves(packed);
  }

  // Returns whether the dot product supports every number. bf16 products drop denormals, and sums
  // of numbers of 2^60 or more may overflow before lambda scales them. NaN and Inf are kept.
  // Products of f16 numbers are 0 or 2^-48 to 2^32, so their sums always fit.
  [[nodiscard]] HWY_INLINE bool fits(const Operand& from) const {
    if (kernels().type == DType::f16) return true;
    return from.type() == DType::f32 ? bits_fit<std::int32_t>(from) : bits_fit<std::int16_t>(from);
  }

  // Same as F32's, but pairs are not scaled: products take the factors instead.
  HWY_INLINE void pack_transposed(const Operand& from, const float* /*factors*/, Pair* to) const {
    from.type() == DType::f32 ? transpose_panels<TwoFloats>(from, nullptr, as_floats(to))
                              : transpose_panels<float>(from, nullptr, as_floats(to));
    if (kernels().arrange)
      kernels().arrange(to, round_up(from.count(), panel_width()) * from.columns() / kNumbers);
  }
  HWY_INLINE Strided<Pair> read_rows(const Operand& from, std::size_t stride, Pair* memory) const {
    if (const auto rows = from.in_place<Pair>()) return *rows;
    copy_rows<float>(from, stride, as_floats(memory));
    return {memory, static_cast<std::ptrdiff_t>(stride)};
  }
  HWY_INLINE bool pack_both(const Operand& from, const float* /*factors*/, Pair* left,
                            Pair* right) const {
    pack_left(from, nullptr, left);
    return pack_turned(from, right);
  }
  [[nodiscard]] std::size_t right_rows_of(std::size_t rows) const { return pairs_of(rows); }
  static Pair* right_of(Pair* /*left*/, Pair* right) { return right; }

  // Packs pairs of neighbouring columns in panels: to[panel][row][pair].
  static HWY_INLINE void pack_left(const Operand& from, const float* /*factors*/, Pair* to) {
    const Floats d;
    const std::size_t lanes = hn::Lanes(d), width = panel_width(), rows = from.count();
    for (std::size_t row = 0; row < rows; ++row) {
      prefetch_row(from, row + kRowsAhead);
      const auto* source = reinterpret_cast<const float*>(from.row(row));
      for (std::size_t c = 0; c < from.columns() / 2; c += lanes) {
        hn::Store(hn::LoadU(d, source + c), d,
                  as_floats(to) + c / width * width * rows + row * width + c % width);
      }
    }
  }

  // Packs pairs of neighbouring rows, in panels of columns: to[panel][pair][column]. Non-finite
  // numbers and rows past the end become 0, because a dot product would pass NaN through a weight
  // of 0. Returns whether everything was finite.
  HWY_INLINE bool pack_right(const Operand& from, Pair* to) const {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<std::uint16_t, decltype(d)> narrow;
    const std::size_t lanes = hn::Lanes(d), width = panel_width();
    const std::size_t pairs = pairs_of(from.count());
    const auto exponent = hn::Set(d, kernels().type == DType::bf16 ? 0x7f80u : 0x7c00u);
    auto nonfinite = hn::Zero(d);
    const auto load = [&](std::size_t row, std::size_t column) HWY_ATTR {
      if (row >= from.count()) return hn::Zero(d);
      const auto* bits = reinterpret_cast<const std::uint16_t*>(from.row(row)) + column;
      const auto x = hn::PromoteTo(d, hn::LoadU(narrow, bits));
      const auto is_nonfinite = hn::VecFromMask(d, hn::Eq(hn::And(x, exponent), exponent));
      nonfinite = hn::Or(nonfinite, is_nonfinite);
      return hn::AndNot(is_nonfinite, x);
    };
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      prefetch_row(from, 2 * pair + kRowsAhead);
      prefetch_row(from, 2 * pair + 1 + kRowsAhead);
      for (std::size_t c = 0; c < from.columns(); c += lanes) {
        const auto both = hn::Or(load(2 * pair, c), hn::ShiftLeft<16>(load(2 * pair + 1, c)));
        hn::Store(hn::BitCast(Floats(), both), Floats(),
                  as_floats(to) + (c / width * pairs + pair) * width + c % width);
      }
    }
    return hn::AllTrue(d, hn::Eq(nonfinite, hn::Zero(d)));
  }

  // Same, transposed for kernels that need it.
  HWY_INLINE bool pack_turned(const Operand& from, Pair* to) const {
    const bool finite = pack_right(from, to);
    if (kernels().is_turned)
      turn_blocks(as_floats(to), pairs_of(from.count()) * from.columns() / panel_width(),
                  panel_width());
    return finite;
  }

  // Granularity of the first key of a sum over pairs of keys.
  [[nodiscard]] std::size_t key_step() const {
    return HWY_MAX(std::size_t{4}, 2 * kernels().depth);
  }

  void multiply_rows(const TileProduct<Pair>& product) const { kernels().multiply_rows(product); }
  void multiply_packed(const TileProduct<Pair>& product) const {
    kernels().multiply_packed(product);
  }
  [[nodiscard]] std::size_t rows_at_once() const { return kernels().rows; }

 private:
  // Checks numbers whose upper 16 bits are those of a bf16.
  template <typename Bits>
  static HWY_INLINE bool bits_fit(const Operand& from) {
    const hn::ScalableTag<Bits> d;
    constexpr int kShift = 8 * sizeof(Bits) - 16;
    const auto upper = [&](int bits) HWY_ATTR {
      return hn::Set(d, static_cast<Bits>(static_cast<Bits>(bits) << kShift));
    };
    const std::size_t lanes = hn::Lanes(d);
    const auto zero = hn::Zero(d), one = hn::Set(d, Bits{1}), normal = upper(0x0080);
    const auto huge = upper((127 + 60) << 7), infinity = upper(0x7f80);
    const auto magnitude = hn::Set(d, std::numeric_limits<Bits>::max());
    // Collected without a branch and tested once at the end, because unfit blocks are rare.
    auto unfit = zero;
    for (std::size_t row = 0; row < from.count(); ++row) {
      const auto* bits = reinterpret_cast<const Bits*>(from.row(row));
      for (std::size_t c = 0; c < from.columns(); c += lanes) {
        const auto size = hn::And(hn::LoadU(d, bits + c), magnitude);
        const auto is_denormal = hn::And(hn::Lt(zero, size), hn::Lt(size, normal));
        const auto is_huge = hn::AndNot(hn::Lt(size, huge), hn::Lt(size, infinity));
        unfit = hn::Or(unfit, hn::IfThenElseZero(hn::Or(is_denormal, is_huge), one));
      }
    }
    return hn::AllTrue(d, hn::Eq(unfit, zero));
  }

  // Pairs are moved as floats, whose bits do not matter.
  static float* as_floats(Pair* pairs) { return reinterpret_cast<float*>(pairs); }

  const PairKernels* kernels_;  // null if the CPU has none
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
