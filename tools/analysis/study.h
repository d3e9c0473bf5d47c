// Study: the collection of scripts/study with its verdicts. Once every training is done, the
// declared primary family is judged by Holm, and so is the secondary one, if any, by itself.
// Everything else is exploratory and judged by Benjamini and Hochberg.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/analysis/differences.h"

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

// A row's leads averaged over cells, seed by seed: cells of the same positions and objective with
// the same, largest set of seeds. Seeds are the sample; the cells are fixed.
struct PooledLead {
  std::vector<std::string> cells;  // at least two
  Lead lead{};
};

struct Study {
  std::string question;  // empty if nothing was declared
  std::vector<Cell> cells;
  std::int64_t done = 0, planned = 0;
  std::vector<Contrast> primary, secondary;  // verdicts only if the study is complete
  std::vector<std::vector<Lead>> leads;      // for each cell; judged together
  std::vector<PooledLead> pooled;            // judged separately

  [[nodiscard]] bool complete() const { return done >= planned; }
};

// Throws Error for a document that is no study, or whose primary family names an unplanned row.
[[nodiscard]] Study read_study(const nlohmann::ordered_json& document);

}  // namespace isentrope::analysis
