#include "tools/analysis/differences.h"

#include <algorithm>
#include <map>

#include "tools/analysis/statistics.h"

namespace isentrope::analysis {
namespace {

using nlohmann::json;

constexpr double kLevel = 0.05;
constexpr const char* kMetrics[] = {"accuracy", "cross_entropy"};

// Adds the block sums of one seed's row minus those of another: correct predictions in points,
// losses in nats.
void add_blocks(std::vector<double>& sum, const json& blocks, const std::string& metric,
                std::size_t at, double factor) {
  const bool accuracy = metric == "accuracy";
  const json& values = blocks.at(accuracy ? "right" : "loss").at(at);
  sum.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    sum[i] += factor * (accuracy ? 100 : 1) * number_in(values[i]);
}

struct Pairs {
  std::vector<double> differences;
  std::vector<double> blocks, predictions;  // blocks: mean over the seeds; may be empty
};

Pairs pairs_of(const Row& row, const Row& other, const std::string& metric, std::size_t at) {
  Pairs pairs;
  bool blocks = true;
  for (std::size_t i = 0; i < row.seeds.size(); ++i) {
    for (std::size_t j = 0; j < other.seeds.size(); ++j) {
      const json &seed = *row.seeds[i], &other_seed = *other.seeds[j];
      if (row.records[i]->at("seed") != other.records[j]->at("seed")) continue;
      pairs.differences.push_back(number_in(seed.at(metric).at(at)) -
                                  number_in(other_seed.at(metric).at(at)));
      blocks = blocks && seed.contains("blocks") && other_seed.contains("blocks");
      if (!blocks) continue;
      add_blocks(pairs.blocks, seed["blocks"], metric, at, 1);
      add_blocks(pairs.blocks, other_seed["blocks"], metric, at, -1);
      pairs.predictions = row.records[i]->at("block_predictions").at(at).get<std::vector<double>>();
    }
  }
  if (!blocks) pairs.blocks.clear();
  for (double& block : pairs.blocks) block /= static_cast<double>(pairs.differences.size());
  return pairs;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view kNames[] = {"helps", "hurts", "undecided"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Lead lead_over(const Row& row, const Row& other, const std::string& metric, std::size_t at) {
  const Pairs pairs = pairs_of(row, other, metric, at);
  Lead lead{.rule = row.name.rule, .kind = row.name.kind, .also = row.also, .metric = metric};
  lead.length = row.records.front()->at("evaluation").at("lengths").at(at);
  lead.seeds = paired(pairs.differences);
  if (!pairs.blocks.empty()) lead.text = text_interval(pairs.blocks, pairs.predictions);
  return lead;
}

std::vector<Lead> leads_of(const std::vector<json>& records) {
  std::vector<Lead> leads;
  const std::vector<Row> rows = rows_of(records);
  const auto baseline = std::ranges::find(rows, RowName{"standard", "trained"}, &Row::name);
  if (baseline == rows.end()) return leads;
  const std::size_t lengths = baseline->records.front()->at("evaluation").at("lengths").size();
  for (const Row& row : rows) {
    if (&row == &*baseline) continue;
    for (const char* metric : kMetrics) {
      for (std::size_t at = 0; at < lengths; ++at) {
        Lead lead = lead_over(row, *baseline, metric, at);
        if (lead.seeds.pairs > 0) leads.push_back(std::move(lead));
      }
    }
  }
  return leads;
}

void judge(const std::vector<Lead*>& family, Adjustment adjust) {
  std::vector<double> p;
  for (const Lead* lead : family) p.push_back(lead->seeds.p);
  const std::vector<double> adjusted = adjust(p);
  for (std::size_t i = 0; i < family.size(); ++i) {
    Lead& lead = *family[i];
    lead.adjusted_p = adjusted[i];
    if (!(adjusted[i] < kLevel)) continue;
    const bool better = (lead.seeds.mean > 0) == (lead.metric == "accuracy");
    lead.verdict = better ? Verdict::helps : Verdict::hurts;
  }
}

void judge_by_kind(const std::vector<Lead*>& leads) {
  std::map<std::string, std::vector<Lead*>> families;
  for (Lead* lead : leads) families[lead->kind].push_back(lead);
  for (const auto& [kind, family] : families) judge(family, benjamini_hochberg);
}

std::vector<Lead> exploratory_leads(const std::vector<json>& records) {
  std::vector<Lead> leads = leads_of(records);
  std::vector<Lead*> family;
  for (Lead& lead : leads) family.push_back(&lead);
  judge_by_kind(family);
  return leads;
}

json leads_json(const std::vector<Lead>& leads) {
  json result = json::array();
  for (const Lead& lead : leads) {
    const Paired& seeds = lead.seeds;
    json object = {{"rule", lead.rule},
                   {"kind", lead.kind},
                   {"against", "standard"},
                   {"length", lead.length},
                   {"metric", lead.metric},
                   {"mean", seeds.mean},
                   {"sd", seeds.sd},
                   {"se", seeds.se},
                   {"seeds", seeds.pairs},
                   {"df", seeds.df()},
                   {"low", seeds.low},
                   {"high", seeds.high},
                   {"p", seeds.p},
                   {"adjusted_p", lead.adjusted_p},
                   {"verdict", name_of(lead.verdict)}};
    if (!seeds.undecided.empty()) object["reason"] = seeds.undecided;
    if (lead.text) object["text"] = {{"low", lead.text->low}, {"high", lead.text->high}};
    for (const auto& [rule, kind] : lead.also)
      object["also"].push_back({{"rule", rule}, {"kind", kind}});
    result.push_back(std::move(object));
  }
  return result;
}

}  // namespace isentrope::analysis
