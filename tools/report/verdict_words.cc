#include "tools/report/verdict_words.h"

#include <fmt/core.h>

#include <cmath>
#include <map>

#include "tools/report/text.h"

namespace isentrope::report {
namespace {

using analysis::Contrast;
using analysis::Lead;
using analysis::Verdict;

// Returns "at 128 (+1.0 [0.5, 1.5]) and 256 (+2.0)"; "nowhere" for none.
std::string places(const std::vector<const Lead*>& leads) {
  if (leads.empty()) return "nowhere";
  std::string text = "at ";
  for (std::size_t i = 0; i < leads.size(); ++i) {
    if (i > 0) text += i + 1 == leads.size() ? " and " : ", ";
    text += fmt::format("{} ({})", leads[i]->length, lead_numbers(*leads[i]));
  }
  return text;
}

std::string side_name(const analysis::Side& side) {
  return fmt::format("{} in {}", row_name(side.row.rule, side.row.kind), side.cell);
}

}  // namespace

bool hides_far_keys(std::string_view kind) { return kind.ends_with("near"); }

std::string row_name(const std::string& rule, const std::string& kind) {
  if (kind == "rescaled") return rule + " on the model of standard";
  if (kind == "near") return rule + ", near keys only";
  if (kind == "frozen_near") return rule + ", frozen, near keys only";
  if (kind == "growing_near") return rule + ", growing, near keys only";
  return kind == "trained" ? rule : rule + ", " + kind;
}

std::string row_name(const Lead& lead) {
  std::string name = row_name(lead.rule, lead.kind);
  for (std::size_t i = 0; i < lead.also.size(); ++i) {
    name += (i == 0 ? " (and " : ", ") + row_name(lead.also[i].rule, lead.also[i].kind);
    if (i + 1 == lead.also.size()) name += ")";
  }
  return name;
}

std::string lead_numbers(const Lead& lead) {
  const int digits = lead.metric == "accuracy" ? 1 : 3;
  const analysis::Paired& seeds = lead.seeds;
  std::string text = signed_decimal(seeds.mean, digits);
  if (std::isfinite(seeds.low)) text += " " + interval(seeds.low, seeds.high, digits);
  return text;
}

std::string lead_words(const Lead& lead) {
  std::string text = fmt::format("{} {}", lead_numbers(lead), name_of(lead.verdict));
  if (!lead.seeds.undecided.empty()) text += fmt::format(" ({})", lead.seeds.undecided);
  return text;
}

std::vector<std::string> verdict_sentences(const std::vector<Lead>& leads) {
  std::vector<std::string> names;
  std::map<std::string, std::map<Verdict, std::vector<const Lead*>>> by_name;
  for (const Lead& lead : leads) {
    if (lead.metric != "accuracy" || hides_far_keys(lead.kind)) continue;
    const std::string name = row_name(lead);
    if (!by_name.contains(name)) names.push_back(name);
    by_name[name][lead.verdict].push_back(&lead);
  }
  std::vector<std::string> sentences;
  for (const std::string& name : names) {
    auto& with = by_name[name];
    sentences.push_back(fmt::format("{} helps {}, hurts {}, undecided {}.", name,
                                    places(with[Verdict::helps]), places(with[Verdict::hurts]),
                                    places(with[Verdict::undecided])));
  }
  return sentences;
}

std::string progress_words(const analysis::Study& study) {
  const std::string done = fmt::format("{} of {} trainings are done", study.done, study.planned);
  if (study.question.empty()) return done + ".";
  return done + (study.complete() ? ", and judged as the experiment declared before it ran."
                                  : ": not judged yet.");
}

std::vector<std::string> declared_sentences(const analysis::Study& study) {
  std::vector<std::string> sentences;
  if (!study.complete()) return sentences;
  for (const auto* family : {&study.primary, &study.secondary}) {
    for (const Contrast& test : *family) {
      sentences.push_back(fmt::format(
          "{}: {} over {} at {}: {} (p {}, adjusted {}).", test.hypothesis, side_name(test.of),
          side_name(test.against), test.lead.length, lead_words(test.lead),
          decimal(test.lead.seeds.p, 4), decimal(test.lead.adjusted_p, 4)));
    }
  }
  return sentences;
}

}  // namespace isentrope::report
