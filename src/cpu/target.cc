#include "isentrope/target.h"

#include <atomic>

#include "hwy/highway.h"
#include "isentrope/error.h"

namespace isentrope {
namespace {

// Returns the targets that this CPU runs, best first: Highway numbers better ones lower.
const std::vector<std::int64_t>& targets_of_this_cpu() {
  static const std::vector<std::int64_t> targets = [] {
    const std::int64_t compiled = HWY_TARGETS;
    std::vector<std::int64_t> result;
    for (int bit = 0; bit < 63; ++bit) {
      const std::int64_t target = std::int64_t{1} << bit;
      if (compiled & hwy::SupportedTargets() & target) result.push_back(target);
    }
    return result;
  }();
  return targets;
}

// Target set by use_target(); 0 for Highway's own choice, the best.
std::atomic<std::int64_t> chosen_target = 0;

}  // namespace

std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : targets_of_this_cpu()) names.push_back(hwy::TargetName(target));
  return names;
}

// Highway returns the set of targets it may choose from; the best of them is active.
std::string active_target() {
  const std::int64_t target = chosen_target;
  return hwy::TargetName(target != 0 ? target : targets_of_this_cpu().front());
}

void use_target(std::string_view name) {
  std::string known;
  for (const std::int64_t target : targets_of_this_cpu()) {
    if (hwy::TargetName(target) == name) {
      chosen_target = target;
      // Every dispatch in every thread reads this choice.
      hwy::GetChosenTarget().Update(target);
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  }
  throw Error("[use_target] the target must be one of " + known + "; got \"" +
              std::string(name.substr(0, 60)) + "\"");
}

}  // namespace isentrope
