// Study: what scripts/study collected, judged: the primary family that the experiment declared
// before it ran by Holm, and the secondary one, if any, by Holm within itself, once every training
// is done; everything else, which is exploratory, by Benjamini and Hochberg.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/analysis/leads.h"

namespace isentrope::analysis {

struct Cell {
  std::string name, options;
  std::int64_t planned = 0;
  std::vector<nlohmann::json> records;
};

// A row of a cell.
struct Side {
  std::string cell;
  RowName row;
};

// A lead of a declared family.
struct Contrast {
  std::string hypothesis;
  Side of, against;
  Lead lead{};
};

// A row's leads averaged over cells, seed by seed: those of the same positions and objective that
// have it over the same seeds, the most there are. What the cells have in common shows in fewer
// seeds; they are no cells drawn from others.
struct PooledLead {
  std::vector<std::string> cells;  // at least two
  Lead lead{};
};

struct Study {
  std::string question;  // empty where nothing was declared
  std::vector<Cell> cells;
  std::int64_t done = 0, planned = 0;
  std::vector<Contrast> primary, secondary;  // verdicts only of a study that is complete
  std::vector<std::vector<Lead>> leads;      // of each cell; judged together
  std::vector<PooledLead> pooled;            // judged by themselves

  [[nodiscard]] bool complete() const { return done >= planned; }
};

// Throws Error when the document is no study, or its primary family names a row that no cell plans.
[[nodiscard]] Study read_study(const nlohmann::ordered_json& document);

}  // namespace isentrope::analysis
