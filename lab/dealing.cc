#include "lab/dealing.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lab/memory.h"

namespace isentrope::lab {

std::int64_t Deal::groups() const {
  return std::min(ranks, static_cast<std::int64_t>(left.size()));
}

Deal::Seat Deal::seat(std::int64_t rank) const {
  const auto first_of = [&](std::int64_t group) {
    return (group * ranks + groups() - 1) / groups();
  };
  const std::int64_t group = rank * groups() / ranks, first = first_of(group);
  return {group, rank - first, std::min(first_of(group + 1) - first, batch)};
}

void run_dealt(Ranks& ranks, const Deal& deal,
               const std::function<void(std::size_t, const RankGroup*)>& run) {
  if (deal.left.empty()) return;
  const auto [group, member, members] = deal.seat(ranks.rank());
  if (member >= members) return;
  std::optional<RankGroup> together;
  if (members > 1) together.emplace(ranks.store(fmt::format("group/{}", group)), member, members);
  // With more ranks than trainings no rank takes a second one.
  for (auto i = static_cast<std::size_t>(group); i < deal.left.size();
       i = static_cast<std::size_t>(deal.groups() + ranks.take()))
    run(deal.left[i], together ? &*together : nullptr);
}

void require_memory_of_ranks(const Ranks& ranks, const Deal& deal, const ExperimentOptions& options,
                             const ModelConfig& model) {
  if (deal.left.empty()) return;
  ExperimentOptions share = options;
  const std::int64_t members = std::min(deal.ranks / deal.groups(), deal.batch);
  share.batch = (deal.batch + members - 1) / members;
  require_memory(share, model, ranks.on_this_machine());
}

}  // namespace isentrope::lab
