// Conformance checks of external results: a C interface by which another program reads a problem's
// numbers, passes its results and gets the verdict.
//
// Strings and data live as long as the problem. Errors are in isentrope_check_error(), not thrown.

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isentrope/error.h"
#include "src/call/mask_parts.h"
#include "tools/check/generate.h"
#include "tools/check/judge.h"

#define ISENTROPE_EXPORT extern "C" __attribute__((visibility("default")))

namespace isentrope::check {
namespace {

// Message of the last failed call in this thread.
thread_local std::string last_error;

bool has_host_fields(const Problem& p) {
  return p.key_type || p.bias_type != DType::f32 || p.slopes || p.bias_hides;
}
// Returns the problem without the fields that only this library's C++ has.
Problem for_others(Problem p) {
  p.key_type.reset();
  p.bias_type = DType::f32;
  p.slopes = p.bias_hides = false;
  return p;
}

struct OpenProblem {
  explicit OpenProblem(const Problem& problem) : line(text_of(problem)), judge(problem) {
    if (problem.cache_group > 0 || has_host_fields(problem)) {
      throw Error(
          "[check] cache, kv, bias_dt, slopes and bias_hides must be absent for the results of "
          "other implementations; got " +
          line);
    }
  }

  std::string line, rule, verdict;
  Judge judge;
  std::map<std::string, std::vector<float>> results;
};

// A contiguous tensor.
struct Description {
  const void* data = nullptr;
  const char* type = "f32";
  std::int64_t rank = 0;
  std::array<std::int64_t, 4> extents{};
};

Description described(const ConstTensor& tensor) {
  return {tensor.data, name_of(tensor.type), 4, tensor.extents};
}

template <typename T, std::size_t Rank>
Description described(const View<const T, Rank>& view, const char* type) {
  Description result{view.data, type, view ? static_cast<std::int64_t>(Rank) : 0};
  std::copy_n(view.extents.begin(), Rank, result.extents.begin());
  return result;
}

Description find_input(const OpenProblem& open, const std::string& name) {
  const AttentionInput in = open.judge.data().input();
  const AttentionOptions options = open.judge.data().options();
  if (name == "q") return described(in.q);
  if (name == "k") return described(in.k);
  if (name == "v") return described(in.v);
  if (name == "block_table") return described(in.pages.block_table, "i32");
  if (name == "seqused_k") return described(in.pages.seqused_k, "i64");
  if (name == "cu_seq_q") return described(in.pages.cu_seq_q, "i64");
  for (const MaskList& part : kMaskLists) {
    if (name == part.name) return described(options.mask.*part.member, "i64");
  }
  if (name == "attn_mask") return described(options.attn_mask, "u8");
  if (name == "bias") return options.bias ? described(options.bias) : Description{};
  if (name == "sinks") return described(options.sinks, "f32");
  if (name == "lambda") return described(options.lambda, "f32");
  throw Error("[check] a tensor must be one of a problem's inputs; got " + name);
}

const std::vector<double>* upstream(const OpenProblem& open, const std::string& name) {
  const reference::GradientInput* all = open.judge.upstream();
  if (all == nullptr) return nullptr;
  if (name == "d_output") return &all->d_output;
  const std::vector<double>* found = nullptr;
  for_each_statistic(
      [&](const Statistic& statistic, const std::vector<double>& values) {
        if (statistic.differentiable() && name == "d_" + std::string(statistic.name))
          found = &values;
      },
      all->d_statistics);
  if (found != nullptr) return found;
  throw Error("[check] an upstream gradient must be that of a result; got " + name);
}

double number_of(const Data& data, const std::string& name) {
  const Problem& p = data.problem;
  const Mask mask = data.options().mask;
  for (const MaskNumber& part : kMaskNumbers) {
    if (name == part.name) return static_cast<double>(mask.*part.member);
  }
  if (name == "causal") return static_cast<double>(p.causal);
  if (name == "keys") return static_cast<double>(p.keys);
  if (name == "soft_cap") return static_cast<double>(p.soft_cap);
  if (name == "dropout_p") return p.dropout;
  if (name == "dropout_seed") return static_cast<double>(p.dropout_seed);
  if (name == "backward") return p.backward ? 1 : 0;
  throw Error("[check] a number must be one of a problem; got " + name);
}

nlohmann::json json_of(const Ratio& ratio) {
  // JSON has no infinity, so an unexpectedly non-finite result has the ratio null.
  return {
      {"error_over_budget", ratio.worst}, {"worst", ratio.where}, {"of_result", ratio.of_result}};
}

template <typename Result, typename Body>
Result guarded(Result failed, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

OpenProblem* as_open(void* problem) { return static_cast<OpenProblem*>(problem); }

}  // namespace

// Returns a problem; null for an invalid line, or one that the operator rejects.
ISENTROPE_EXPORT void* isentrope_check_open(const char* line) {
  return guarded<void*>(nullptr, [&] { return new OpenProblem(parse_problem(line)); });
}
ISENTROPE_EXPORT void* isentrope_check_generate(std::uint64_t seed, std::int64_t index,
                                                std::int64_t most_work) {
  return guarded<void*>(nullptr, [&] {
    return new OpenProblem(for_others(generated_problem(seed, index, most_work)));
  });
}
ISENTROPE_EXPORT void isentrope_check_close(void* problem) { delete as_open(problem); }
ISENTROPE_EXPORT const char* isentrope_check_error() { return last_error.c_str(); }

ISENTROPE_EXPORT const char* isentrope_check_line(void* problem) {
  return as_open(problem)->line.c_str();
}
ISENTROPE_EXPORT const char* isentrope_check_rule(void* problem) {
  OpenProblem& open = *as_open(problem);
  open.rule = open.judge.data().problem.rule.text();
  return open.rule.c_str();
}
// Returns the name of the only statistic that the problem asks for; "" for all.
ISENTROPE_EXPORT const char* isentrope_check_statistic(void* problem) {
  return as_open(problem)->judge.data().problem.statistic.c_str();
}
ISENTROPE_EXPORT double isentrope_check_number(void* problem, const char* name) {
  return guarded(0.0, [&] { return number_of(as_open(problem)->judge.data(), name); });
}

// Returns an input's rank and data; rank 0 if the problem has no input of that name.
ISENTROPE_EXPORT std::int64_t isentrope_check_input(void* problem, const char* name,
                                                    const void** data, const char** type,
                                                    std::int64_t* extents) {
  return guarded(std::int64_t{-1}, [&] {
    const Description found = find_input(*as_open(problem), name);
    *data = found.data;
    *type = found.type;
    std::copy_n(found.extents.begin(), found.rank, extents);
    return found.rank;
  });
}

// Returns the size of an upstream gradient, in its result's order; 0 without a backward pass.
ISENTROPE_EXPORT std::int64_t isentrope_check_upstream(void* problem, const char* name,
                                                       const double** data) {
  return guarded(std::int64_t{-1}, [&] {
    const std::vector<double>* found = upstream(*as_open(problem), name);
    *data = found == nullptr ? nullptr : found->data();
    return found == nullptr ? std::int64_t{0} : static_cast<std::int64_t>(found->size());
  });
}

// Passes a result as floats, row-major: output, the statistics that the problem asks for; dq, dk,
// dv, d_bias, d_lambda, d_sinks.
ISENTROPE_EXPORT void isentrope_check_put(void* problem, const char* name, const float* data,
                                          std::int64_t count) {
  as_open(problem)->results[name].assign(data, data + count);
}

// Returns JSON: outcome, reason, and for forward and backward error_over_budget, its place, and the
// largest of each result. Null if results are missing. on_tensor_cores: their budget (budget.h).
ISENTROPE_EXPORT const char* isentrope_check_verdict(void* problem, bool on_tensor_cores) {
  return guarded<const char*>(nullptr, [&] {
    OpenProblem& open = *as_open(problem);
    const Problem& p = open.judge.data().problem;
    const std::int64_t rows = p.batch * p.heads * p.queries,
                       key_rows = p.batch * p.kv_heads * p.keys;
    const auto take = [&](std::string_view name, std::int64_t count, auto& to) {
      const std::vector<float> values = std::move(open.results[std::string(name)]);
      if (values.size() != static_cast<std::size_t>(count))
        throw Error("[check] " + std::string(name) + " must have " + std::to_string(count) +
                    " elements; got " + std::to_string(values.size()));
      to.assign(values.begin(), values.end());
    };
    ForwardResult forward;
    take("output", rows * p.value_dim, forward.output);
    for_each_statistic(
        [&](const Statistic& statistic, auto& to) {
          if (asks_for(p, statistic.name)) take(statistic.name, rows, to);
        },
        forward);
    BackwardResult backward;
    const bool has_backward = open.judge.upstream() != nullptr;
    if (has_backward) {
      take("dq", rows * p.dim, backward.dq);
      take("dk", key_rows * p.dim, backward.dk);
      take("dv", key_rows * p.value_dim, backward.dv);
      if (p.bias) take("d_bias", rows * p.keys, backward.d_bias);
      if (p.lambda_table) take("d_lambda", rows, backward.d_lambda);
      if (p.sink) take("d_sinks", p.heads, backward.d_sinks);
    }
    const Verdict verdict = open.judge.judge(forward, has_backward ? &backward : nullptr,
                                             {.rounds_f16_weights = on_tensor_cores,
                                              .rounds_f16_gradients = on_tensor_cores,
                                              .separates_equal_keys = on_tensor_cores});
    nlohmann::json json{{"outcome", name_of(verdict.outcome)}, {"reason", verdict.reason}};
    json["forward"] = json_of(verdict.forward);
    if (has_backward) json["backward"] = json_of(verdict.backward);
    open.verdict = json.dump();
    return open.verdict.c_str();
  });
}

}  // namespace isentrope::check
