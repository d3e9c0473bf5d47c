// Contribution of each statistic to the gradient of its row's logits.

#if defined(ISENTROPE_STATISTIC_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISENTROPE_STATISTIC_GRADIENT_INL_H_
#undef ISENTROPE_STATISTIC_GRADIENT_INL_H_
#else
#define ISENTROPE_STATISTIC_GRADIENT_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "isentrope/attention.h"
#include "src/cpu/steps/gradient_tile-inl.h"
#include "src/cpu/steps/second_order_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Results of one row; 0 if they are not needed.
using RowNumbers = StatisticFields<float>;

HWY_INLINE RowNumbers row_numbers(const ConstRowStatistics& results, std::int64_t batch,
                                  std::int64_t head, std::int64_t query) {
  RowNumbers numbers;
  for_each_statistic(
      [&]<typename T>(const Statistic&, const View<const T, 3>& view, float& number) {
        if constexpr (std::is_same_v<T, float>) number = view ? view(batch, head, query) : 0;
      },
      results, numbers);
  return numbers;
}

// Adds one statistic's terms. d: its upstream gradient. results: those that the list names.
using AddGradient = void (*)(float d, const RowNumbers& results, RowGradient& to);

// In the order of the list; null for statistics without a gradient.
inline constexpr StatisticFields<AddGradient> kAddGradient = {
    .lse = [](float d, const RowNumbers&, RowGradient& to) HWY_ATTR { to.base += d; },
    .entropy =
        [](float d, const RowNumbers& results, RowGradient& to) HWY_ATTR {
          to.entropy = results.entropy;
          to.linear -= d;
        },
    .collision =
        [](float d, const RowNumbers& results, RowGradient& to) HWY_ATTR {
          to.base -= 2 * d * results.collision;
          to.collision = 2 * d;
        },
    .variance =
        [](float d, const RowNumbers& results, RowGradient& to) HWY_ATTR {
          to.entropy = results.entropy;
          to.base -= d * results.variance;
          to.linear += 2 * d;
          to.quadratic = d;
        },
    .distance =
        [](float d, const RowNumbers& results, RowGradient& to) HWY_ATTR {
          to.d_distance = d;
          to.distance = results.distance;
        },
    .max_probability =
        [](float d, const RowNumbers& results, RowGradient& to) HWY_ATTR {
          to.base -= d * results.max_probability;
          to.d_largest = d;
        },
};

// Adds the tangents of one statistic's terms, for a constant d. tangents: of the results.
using AddGradientTangent = void (*)(float d, const RowNumbers& tangents, RowGradientTangent& to);

inline constexpr StatisticFields<AddGradientTangent> kAddGradientTangent = {
    .lse = [](float, const RowNumbers&, RowGradientTangent&) HWY_ATTR {},
    .entropy = [](float, const RowNumbers& tangents, RowGradientTangent& to)
                   HWY_ATTR { to.entropy = tangents.entropy; },
    .collision = [](float d, const RowNumbers& tangents, RowGradientTangent& to)
                     HWY_ATTR { to.base -= 2 * d * tangents.collision; },
    .variance =
        [](float d, const RowNumbers& tangents, RowGradientTangent& to) HWY_ATTR {
          to.entropy = tangents.entropy;
          to.base -= d * tangents.variance;
        },
    .distance = [](float d, const RowNumbers& tangents, RowGradientTangent& to)
                    HWY_ATTR { to.base -= d * tangents.distance; },
    .max_probability = [](float d, const RowNumbers& tangents, RowGradientTangent& to)
                           HWY_ATTR { to.base -= d * tangents.max_probability; },
};

// Returns whether the statistics with a function are those that have a gradient.
template <typename Function>
constexpr bool has_each_gradient(const StatisticFields<Function>& functions) {
  bool all = true;
  for_each_statistic(
      [&](const Statistic& statistic, const Function& function) {
        all &= statistic.differentiable() == (function != nullptr);
      },
      functions);
  return all;
}
static_assert(
    has_each_gradient(kAddGradient) && has_each_gradient(kAddGradientTangent),
    "a statistic that has a gradient in statistics.h adds it here, and no other one does");

// Statistics of a call whose upstream gradients are given.
class StatisticGradients {
 public:
  explicit StatisticGradients(const AttentionGradientInput& gradient)
      : results_(gradient.statistics) {
    for_each_statistic(
        [&]<typename T>(const Statistic& statistic, const View<const T, 3>& d,
                        const AddGradient& add) {
          if constexpr (std::is_same_v<T, float>) {
            if (!d) return;
            requested_[count_++] = {d, add};
            terms_ |= statistic.gradient;
          }
        },
        gradient.d_statistics, kAddGradient);
  }

  // GradientTerms of all of them.
  [[nodiscard]] unsigned terms() const { return terms_; }

  void add(std::int64_t batch, std::int64_t head, std::int64_t query, RowGradient& to) const {
    if (count_ == 0) return;
    const RowNumbers results = row_numbers(results_, batch, head, query);
    for (std::size_t i = 0; i < count_; ++i)
      requested_[i].add(requested_[i].d(batch, head, query), results, to);
  }

 private:
  struct Given {
    View<const float, 3> d;
    AddGradient add;
  };
  const ConstRowStatistics& results_;
  std::array<Given, sizeof(kAddGradient) / sizeof(AddGradient)> requested_{};
  std::size_t count_ = 0;
  unsigned terms_ = kNoGradient;
};

}  // namespace isentrope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
