// Dealing: which of torchrun's ranks trains what.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lab/experiment_options.h"
#include "lab/model_config.h"
#include "lab/rank_group.h"
#include "lab/ranks.h"

namespace isentrope::lab {

// Each rank trains one model at a time, the next one as soon as it is free. Where there are more
// ranks than trainings, each training is that of a group of neighbouring ranks.
struct Deal {
  std::vector<std::size_t> left;  // trainings that are not done, in the order in which they begin
  std::int64_t ranks = 1;
  std::int64_t batch = 1;  // windows of a step: no group has more ranks

  struct Seat {
    std::int64_t group, member, members;
  };

  [[nodiscard]] std::int64_t groups() const;
  // A rank whose `member` is not below `members` has nothing to do. Some training must be left.
  [[nodiscard]] Seat seat(std::int64_t rank) const;
};

// Calls `run` with each training that falls to this rank, and with the group it is trained by.
// Throws what that throws, and Error when a rank of the group is lost.
void run_dealt(Ranks& ranks, const Deal& deal,
               const std::function<void(std::size_t, const RankGroup*)>& run);

// Throws Error when the ranks of this machine need more memory than it has.
void require_memory_of_ranks(const Ranks& ranks, const Deal& deal, const ExperimentOptions& options,
                             const ModelConfig& model);

}  // namespace isentrope::lab
