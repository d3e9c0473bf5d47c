#include "bindings/torch/float64.h"

#include <utility>
#include <vector>

#include "bindings/torch/results.h"
#include "isentrope/reference.h"
#include "src/call/sequences.h"
#include "src/call/validate.h"

namespace isentrope::stable {
namespace {

using Statistics64 = StatisticFields<View<double, 3>, View<std::int64_t, 3>>;
using ConstStatistics64 = StatisticFields<View<const double, 3>, View<const std::int64_t, 3>>;

ConstTensor shape_of(const View<const double, 4>& view) {
  return {view.data, DType::f32, view.extents, view.strides};
}

View<double, 4> written(const TorchTensor& tensor) {
  View<double, 4> view{static_cast<double*>(tensor.write())};
  std::ranges::copy(tensor.sizes(), view.extents.begin());
  std::ranges::copy(tensor.strides(), view.strides.begin());
  return view;
}

template <typename Visit>
void for_each_index(const std::array<std::int64_t, 4>& extents, const Visit& visit) {
  for (std::int64_t a = 0; a < extents[0]; ++a)
    for (std::int64_t b = 0; b < extents[1]; ++b)
      for (std::int64_t c = 0; c < extents[2]; ++c)
        for (std::int64_t d = 0; d < extents[3]; ++d) visit(a, b, c, d);
}

void copy(const std::vector<double>& from, const View<double, 4>& to) {
  auto next = from.begin();
  for_each_index(to.extents, [&](auto... at) { to(at...) = *next++; });
}

// Copies results of a forward pass.
void copy(const reference::Result& from, const Results& to) {
  copy(from.output, written(to.output));
  const std::size_t rows = from.statistics.size();
  auto views = slices_of<Statistics64>(static_cast<double*>(to.shared.write()), to.wanted, to.rows);
  for_each_statistic(
      [&](const Statistic& statistic, auto& view) {
        if constexpr (std::is_same_v<decltype(view.data), double*>) {
          for (std::size_t row = 0; view && row < rows; ++row)
            view.data[row] =
                statistic.of_row ? from.statistics[row].*statistic.of_row : from.lambda[row];
        }
      },
      views);
  auto* support = static_cast<std::int64_t*>(to.support.write());
  for (std::size_t row = 0; (to.wanted & kSupport) && row < rows; ++row)
    support[row] = from.statistics[row].support;
}

// Gathers keys or values of all sequences from their pages, [sequences, kv_heads, keys, columns];
// 0 past the keys of a sequence.
std::vector<double> gathered(const View<const double, 4>& pages, const AttentionInput& in,
                             const std::array<std::int64_t, 4>& extents) {
  std::vector<double> rows;
  for_each_index(extents, [&](std::int64_t s, std::int64_t head, std::int64_t key, std::int64_t c) {
    const std::int64_t page_size = pages.extents[2];
    rows.push_back(key < keys_of(in, s)
                       ? pages(in.pages.block_table(s, key / page_size), head, key % page_size, c)
                       : 0);
  });
  return rows;
}

template <typename View>
void must_have_shape(const char* name, const View& view, const decltype(View::extents)& extents) {
  if (view.extents != extents)
    throw Error(std::string("[attention_backward] ") + name + " must have the shape of its result");
}

}  // namespace

reference::GradientInput upstream_of(const CallArguments& call, std::int64_t wanted,
                                     const TorchTensor& d_output, const TorchTensor& d_statistics) {
  const Rows rows{call.q.size(0), call.q.size(1), call.q.size(2)};
  reference::GradientInput upstream;
  if (d_output) {
    const auto view = view_of<double, 4>("d_output", d_output);
    must_have_shape("d_output", view, {rows[0], rows[1], rows[2], call.v.size(3)});
    for_each_index(view.extents, [&](auto... at) { upstream.d_output.push_back(view(at...)); });
  }
  if (d_statistics) {
    const std::int64_t count = Results(call.q, 1, wanted).shared.size(0);
    must_have_shape("d_statistics", view_of<double, 4>("d_statistics", d_statistics),
                    {count, rows[0], rows[1], rows[2]});
    const auto slices = slices_of<ConstStatistics64>(
        row_major_statistics<double>("d_statistics", d_statistics), wanted, rows);
    for_each_statistic(
        [&](const Statistic& statistic, const auto& view, auto& to) {
          if (view && statistic.differentiable())
            to.assign(view.data, view.data + rows[0] * rows[1] * rows[2]);
        },
        slices, upstream.d_statistics);
  }
  return upstream;
}

GradientResults results_of(const reference::Gradients& from, const CallArguments& call,
                           const std::array<bool, 3>& wants) {
  GradientResults results(call, wants);
  copy(from.dq, written(results.tensors[0]));
  copy(from.dk, written(results.tensors[1]));
  copy(from.dv, written(results.tensors[2]));
  std::size_t at = 3;
  for (const auto* numbers : {&from.d_bias, &from.d_lambda, &from.d_sinks}) {
    if (wants[at - 3])
      std::ranges::copy(*numbers, static_cast<double*>(results.tensors[at].write()));
    ++at;
  }
  return results;
}

TangentResults results_of(const reference::TangentFields& from, const CallArguments& call,
                          std::int64_t wanted) {
  TangentResults results(call, wanted);
  copy(from.output, written(results.output));
  const Rows rows{call.q.size(0), call.q.size(1), call.q.size(2)};
  const auto slices = slices_of<Statistics64>(static_cast<double*>(results.statistics.write()),
                                              wanted & (kSupport - 1), rows);
  for_each_statistic(
      [](const Statistic& statistic, const auto& view, const auto& numbers) {
        if constexpr (std::is_same_v<decltype(view.data), double*>) {
          if (view && statistic.differentiable()) std::ranges::copy(numbers, view.data);
        }
      },
      slices, from.statistics);
  return results;
}

AttentionOptions validated_options(const char* function, const CallArguments& call) {
  AttentionOptions options = call.options();
  validate_input(function, shapes_of(call), options);
  validate_tables(function, shapes_of(call), options);
  return options;
}

AttentionInput shapes_of(const CallArguments& call) {
  if (!is_float64(call.q)) return call.input();
  const reference::Input in = call.input_in_float64();
  return {shape_of(in.q), shape_of(in.k), shape_of(in.v)};
}

InputInFloat64::InputInFloat64(const CallArguments& call, const AttentionInput& in)
    : input(call.input_in_float64()) {
  if (!in.pages) return;
  const std::array k_extents{in.sequences(), in.k.extents[1], in.keys(), in.k.extents[3]};
  const std::array v_extents{in.sequences(), in.v.extents[1], in.keys(), in.v.extents[3]};
  k_ = gathered(input.k, in, k_extents);
  v_ = gathered(input.v, in, v_extents);
  input.k = contiguous_view<const double, 4>(k_.data(), k_extents);
  input.v = contiguous_view<const double, 4>(v_.data(), v_extents);
  input.seqused_k = in.pages.seqused_k;
  input.cu_seq_q = in.pages.cu_seq_q;
}

reference::Input TangentArguments::views_in_float64() const {
  return {.q = view_of<double, 4>("tangent of q", q),
          .k = view_of<double, 4>("tangent of k", k),
          .v = view_of<double, 4>("tangent of v", v),
          .bias = view_of<double, 4>("tangent of bias", bias),
          .sinks = view_of<double, 1>("tangent of sinks", sinks),
          .lambda = view_of<double, 3>("tangent of lambda", lambda)};
}

Results forward_in_float64(const CallArguments& call, const AttentionInput& in,
                           std::int64_t wanted) {
  const AttentionOptions options = call.options();
  validate_input("attention", in, options);
  validate_tables("attention", in, options);
  Results results(call.q, call.v.size(3), wanted);
  copy(reference::attention_forward(InputInFloat64(call, in).input, options), results);
  return results;
}

}  // namespace isentrope::stable
