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

HWY_BEFORE_NAMESPACE();
namespace isentrope::HWY_NAMESPACE {

// Results of one row; 0 if they are not needed.
using RowNumbers = StatisticFields<float>;

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

static_assert(
    [] {
      bool all = true;
      for_each_statistic(
          [&](const Statistic& statistic, const AddGradient& add) {
            all &= statistic.differentiable() == (add != nullptr);
          },
          kAddGradient);
      return all;
    }(),
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
    RowNumbers results;
    for_each_statistic(
        [&]<typename T>(const Statistic&, const View<const T, 3>& view, float& number) {
          if constexpr (std::is_same_v<T, float>) number = view ? view(batch, head, query) : 0;
        },
        results_, results);
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
