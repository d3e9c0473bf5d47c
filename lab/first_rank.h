// The first rank: it alone touches the output folder. It deals out the trainings, keeps what the
// other ranks send, and shows their progress.
#pragma once

#include <string>
#include <vector>

#include "lab/dealing.h"
#include "lab/progress.h"
#include "lab/ranks.h"
#include "lab/training.h"

namespace isentrope::lab {

// Returns when all trainings have their records in the folder. `pieces` is the tokenizer's model,
// if it has one. Throws Divergence, RankFailure, Error when a rank is lost, and Interrupted after
// waiting for what the others save.
void lead(Ranks& ranks, const Deal& deal, const std::vector<Training>& trainings,
          const std::string& pieces, Progress& progress);

}  // namespace isentrope::lab
