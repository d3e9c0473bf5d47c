#include "tools/analysis/study.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "isentrope/error.h"
#include "tools/analysis/statistics.h"

namespace isentrope::analysis {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const Cell& cell_named(const std::vector<Cell>& cells, const std::string& name) {
  const auto cell = std::ranges::find(cells, name, &Cell::name);
  if (cell == cells.end())
    throw Error("[study] a declared family must be of cells of the plan; got \"" + name + "\"");
  return *cell;
}

// Members that a side omits are taken from `like`.
Side side_of(const ordered_json& side, const Side& like) {
  return {side.value("cell", like.cell),
          {side.value("rule", like.row.rule), side.value("kind", like.row.kind)}};
}

std::size_t place_of(const json& lengths, std::int64_t length) {
  const auto at = std::ranges::find(lengths, json(length));
  if (at == lengths.end()) {
    throw Error("[study] a declared family must be of lengths that were measured; got " +
                std::to_string(length));
  }
  return static_cast<std::size_t>(at - lengths.begin());
}

std::vector<Contrast> contrasts_of(const ordered_json& family, const std::vector<Cell>& cells) {
  std::vector<Contrast> contrasts;
  const std::string metric = family.at("metric");
  for (const ordered_json& declared : family.at("contrasts")) {
    const Side of = side_of(declared, {}), against = side_of(declared.at("against"), of);
    const Row row = row_named(cell_named(cells, of.cell).records, of.row);
    const Row other = row_named(cell_named(cells, against.cell).records, against.row);
    for (const std::int64_t length : family.at("lengths")) {
      Contrast contrast{declared.at("hypothesis"), of, against};
      contrast.lead.metric = metric;
      contrast.lead.length = length;
      contrast.lead.seeds = paired({});
      if (!row.records.empty()) {
        const json& lengths = row.records.front()->at("evaluation").at("lengths");
        contrast.lead = lead_over(row, other, metric, place_of(lengths, length));
      }
      contrasts.push_back(std::move(contrast));
    }
  }
  return contrasts;
}

std::set<std::int64_t> seeds_of(const Row& row) {
  std::set<std::int64_t> seeds;
  for (const json* record : row.records) seeds.insert(record->at("seed").get<std::int64_t>());
  return seeds;
}

// Properties that cells must share for their leads to be averaged.
using PoolingKey = std::pair<std::string, std::string>;
PoolingKey pooling_key_of(const Cell& cell) {
  const json& model = cell.records.front().at("configuration");
  return {model.at("positions"), model.at("objective")};
}

// A row of a cell, and the row that it is compared with.
struct Part {
  const Cell* cell;
  Row row, standard;
};

// Returns the parts with the largest number of seeds, and the same seeds as the first such part.
std::vector<Part> of_most_seeds(const std::vector<Part>& parts) {
  std::size_t most = 0;
  for (const Part& part : parts) most = std::max(most, seeds_of(part.row).size());
  std::vector<Part> chosen;
  for (const Part& part : parts) {
    const std::set<std::int64_t> seeds = seeds_of(part.row);
    if (seeds.size() == most && (chosen.empty() || seeds == seeds_of(chosen.front().row)))
      chosen.push_back(part);
  }
  return chosen;
}

// Returns the mean over the parts of their differences, seed by seed.
Lead mean_lead(const std::vector<Part>& parts, const std::string& metric, std::size_t at) {
  std::map<std::int64_t, double> sum;
  for (const Part& part : parts) {
    for (std::size_t i = 0; i < part.row.seeds.size(); ++i) {
      const std::int64_t seed = part.row.records[i]->at("seed");
      for (std::size_t j = 0; j < part.standard.seeds.size(); ++j) {
        if (part.standard.records[j]->at("seed") != seed) continue;
        sum[seed] += number_in(part.row.seeds[i]->at(metric).at(at)) -
                     number_in(part.standard.seeds[j]->at(metric).at(at));
      }
    }
  }
  std::vector<double> means;
  for (const auto& [seed, value] : sum) means.push_back(value / static_cast<double>(parts.size()));
  const Row& first = parts.front().row;
  Lead lead{.rule = first.name.rule, .kind = first.name.kind, .also = first.also, .metric = metric};
  lead.length = first.records.front()->at("evaluation").at("lengths").at(at);
  lead.seeds = paired(means);
  return lead;
}

std::vector<PooledLead> pooled_of(const std::vector<Cell>& cells) {
  const RowName baseline{"standard", "trained"};
  std::vector<std::tuple<PoolingKey, RowName, std::vector<Part>>> groups;
  for (const Cell& cell : cells) {
    const Row standard = row_named(cell.records, baseline);
    if (standard.seeds.empty()) continue;
    for (const Row& row : rows_of(cell.records)) {
      if (row.name == baseline) continue;
      const auto is_its = [&](const auto& group) {
        return std::get<0>(group) == pooling_key_of(cell) && std::get<1>(group) == row.name;
      };
      auto group = std::ranges::find_if(groups, is_its);
      if (group == groups.end())
        group = groups.insert(group, {pooling_key_of(cell), row.name, std::vector<Part>{}});
      std::get<2>(*group).push_back({&cell, row, standard});
    }
  }
  std::vector<PooledLead> pooled;
  for (const auto& [likeness, name, parts] : groups) {
    const std::vector<Part> chosen = of_most_seeds(parts);
    if (chosen.size() < 2) continue;
    std::vector<std::string> names;
    for (const Part& part : chosen) names.push_back(part.cell->name);
    const json& lengths = chosen.front().row.records.front()->at("evaluation").at("lengths");
    for (const char* metric : {"accuracy", "cross_entropy"}) {
      for (std::size_t at = 0; at < lengths.size(); ++at)
        pooled.push_back({names, mean_lead(chosen, metric, at)});
    }
  }
  return pooled;
}

template <typename Holder>
std::vector<Lead*> leads_in(std::vector<Holder>& holders) {
  std::vector<Lead*> leads;
  for (Holder& holder : holders) leads.push_back(&holder.lead);
  return leads;
}

Study study_of(const ordered_json& document) {
  Study study;
  for (const auto& [name, cell] : document.at("cells").items()) {
    study.cells.push_back({name, cell.at("options"), cell.at("planned"), {}});
    Cell& read = study.cells.back();
    for (const ordered_json& record : cell.at("records")) read.records.push_back(record);
    study.done += static_cast<std::int64_t>(read.records.size());
    study.planned += read.planned;
  }
  std::vector<Lead*> family;
  for (const Cell& cell : study.cells) study.leads.push_back(leads_of(cell.records));
  for (std::vector<Lead>& leads : study.leads) {
    for (Lead& lead : leads) family.push_back(&lead);
  }
  if (document.contains("experiment")) {
    const ordered_json& experiment = document.at("experiment");
    study.question = experiment.at("question");
    study.primary = contrasts_of(experiment.at("primary"), study.cells);
    if (experiment.contains("secondary"))
      study.secondary = contrasts_of(experiment.at("secondary"), study.cells);
    // Verdicts wait for completion, because the experiment declared when it would give them.
    if (!study.complete()) return study;
  }
  judge_by_kind(family);
  study.pooled = pooled_of(study.cells);
  judge_by_kind(leads_in(study.pooled));
  judge(leads_in(study.primary), holm);
  judge(leads_in(study.secondary), holm);
  return study;
}

}  // namespace

Study read_study(const ordered_json& document) {
  try {
    return study_of(document);
  } catch (const ordered_json::exception& error) {
    throw Error("[study] the document must be one that scripts/study writes; got " +
                std::string(error.what()));
  }
}

}  // namespace isentrope::analysis
