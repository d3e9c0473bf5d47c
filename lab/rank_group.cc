#include "lab/rank_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace isentrope::lab {
namespace {

constexpr std::size_t kBucket = std::size_t{1} << 20;  // bytes
constexpr auto kPatience = std::chrono::minutes(5);

}  // namespace

struct RankGroup::Connection {
  c10::intrusive_ptr<c10d::ProcessGroup> ranks;
};

RankGroup::RankGroup(const c10::intrusive_ptr<c10d::Store>& store, std::int64_t rank,
                     std::int64_t size)
    : rank_(rank), size_(size) {
  const auto ranks = c10::make_intrusive<c10d::ProcessGroup>(store, static_cast<int>(rank),
                                                             static_cast<int>(size));
  constexpr auto kGloo = c10d::ProcessGroup::BackendType::GLOO;
  ranks->setBackend(c10::DeviceType::CPU, kGloo,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(
                        store, static_cast<int>(rank), static_cast<int>(size),
                        c10d::ProcessGroupGloo::Options::create_default(kPatience)));
  ranks->setDefaultBackend(kGloo);
  connection_ = std::make_unique<Connection>(ranks);
}

RankGroup::~RankGroup() = default;

double RankGroup::sum(double value) const {
  std::vector<at::Tensor> values{at::scalar_tensor(value, at::kDouble)};
  connection_->ranks->allreduce(values)->wait();
  return values.front().item<double>();
}

struct GradientAverage::Reducer {
  c10d::Reducer reducer;
};

GradientAverage::GradientAverage(const RankGroup& group,
                                 const std::vector<at::Tensor>& parameters) {
  // The backward pass has the last parameters first.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {kBucket});
  std::ranges::reverse(buckets);
  reducer_.reset(new Reducer{c10d::Reducer(
      parameters, buckets, group.connection_->ranks, std::vector<bool>(parameters.size(), false),
      kBucket, /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false,
      /*param_names=*/{}, kBucket, /*skip_all_reduce_unused_params=*/false,
      /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/{})});
}

GradientAverage::~GradientAverage() = default;

void GradientAverage::backward(const at::Tensor& loss) {
  reducer_->reducer.prepare_for_forward();
  reducer_->reducer.prepare_for_backward({loss});
  loss.backward();
}

}  // namespace isentrope::lab
