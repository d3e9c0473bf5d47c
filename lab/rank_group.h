// RankGroup: the ranks that train one model together. They hold the same weights, and each computes
// the gradients of its share of every batch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace c10d {
class Store;
}

namespace isentrope::lab {

class RankGroup {
 public:
  // Every rank of the group calls it, with a store that no other group has. It and all below throw
  // Error when a rank is gone, and Interrupted when this one is to end.
  RankGroup(const c10::intrusive_ptr<c10d::Store>& store, std::int64_t rank, std::int64_t size);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  // The one that tells of the training and saves it.
  [[nodiscard]] bool is_first() const { return rank_ == 0; }

  // Every rank calls these, and gets the same bits.
  [[nodiscard]] double sum(double value) const;
  [[nodiscard]] bool any(bool value) const { return sum(value ? 1 : 0) > 0; }

 private:
  friend class GradientAverage;
  struct Connection;

  std::int64_t rank_, size_;
  std::unique_ptr<Connection> connection_;
};

// Makes the gradients of a backward pass their average over the group, in buckets that travel while
// the pass goes on: what DistributedDataParallel is made of. The order of the sums follows from the
// shapes and the size of the group.
class GradientAverage {
 public:
  // Parameters in the order in which the forward pass uses them.
  GradientAverage(const RankGroup& group, const std::vector<at::Tensor>& parameters);
  GradientAverage(const GradientAverage&) = delete;
  GradientAverage& operator=(const GradientAverage&) = delete;
  ~GradientAverage();

  // As loss.backward().
  void backward(const at::Tensor& loss);

 private:
  struct Reducer;

  std::int64_t size_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace isentrope::lab
