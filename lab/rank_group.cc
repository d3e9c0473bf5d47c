#include "lab/rank_group.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "isentrope/error.h"
#include "lab/interrupt.h"

namespace isentrope::lab {
namespace {

constexpr std::size_t kBucket = std::size_t{1} << 20;  // bytes
constexpr auto kPatience = std::chrono::minutes(5);

[[noreturn]] void refuse(std::int64_t size, const char* reason) {
  throw_if_interrupted();
  throw Error(fmt::format("[ranks] the {} ranks that train together must all be there; got {}",
                          size, reason));
}

// c10d and Gloo have errors of their own for a rank that is gone.
template <typename Use>
void with_all(std::int64_t size, const Use& use) {
  try {
    use();
  } catch (const c10::Error& error) {
    refuse(size, error.what_without_backtrace());
  } catch (const std::exception& error) {
    refuse(size, error.what());
  }
}

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
  with_all(size, [&] {
    ranks->setBackend(c10::DeviceType::CPU, kGloo,
                      c10::make_intrusive<c10d::ProcessGroupGloo>(
                          store, static_cast<int>(rank), static_cast<int>(size),
                          c10d::ProcessGroupGloo::Options::create_default(kPatience)));
  });
  ranks->setDefaultBackend(kGloo);
  connection_ = std::make_unique<Connection>(ranks);
}

RankGroup::~RankGroup() = default;

double RankGroup::sum(double value) const {
  std::vector<at::Tensor> values{at::scalar_tensor(value, at::kDouble)};
  with_all(size_, [&] { connection_->ranks->allreduce(values)->wait(); });
  return values.front().item<double>();
}

struct GradientAverage::Reducer {
  c10d::Reducer reducer;
};

GradientAverage::GradientAverage(const RankGroup& group, const std::vector<at::Tensor>& parameters)
    : size_(group.size()) {
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
  with_all(size_, [&] {
    reducer_->reducer.prepare_for_forward();
    reducer_->reducer.prepare_for_backward({loss});
    loss.backward();
  });
}

}  // namespace isentrope::lab
