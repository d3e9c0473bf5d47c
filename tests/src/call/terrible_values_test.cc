// Every argument of a call in C++ with invalid values: an Error with its name, or success.

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <utility>

#include "isentrope/attention_state.h"
#include "isentrope/quantize.h"
#include "src/call/arguments.h"
#include "tests/support/terrible.h"

namespace isentrope {
namespace {

// A valid call: 2 sequences, 4 heads on 2, 5 queries, 7 keys, 8 columns.
class Call {
 public:
  template <typename T, std::size_t Rank>
  View<T, Rank> array(const std::array<std::int64_t, Rank>& shape, float value = 0.5f) {
    using Number = std::remove_const_t<T>;
    auto& memory = memory_.emplace_back(2048 * sizeof(Number));
    auto* const data = reinterpret_cast<Number*>(memory.data());
    std::fill_n(data, 2048, static_cast<Number>(value));
    return contiguous_view<T, Rank>(data, shape);
  }

  Call() {
    input = {.q = array<const float, 4>({2, 4, 5, 8}),
             .k = array<const float, 4>({2, 2, 7, 8}),
             .v = array<const float, 4>({2, 2, 7, 8})};
    output.output = array<float, 4>({2, 4, 5, 8});
    for_each_statistic(
        [&]<typename T>(const Statistic&, View<T, 3>& of_forward) {
          of_forward = array<T, 3>({2, 4, 5});
        },
        output.statistics);
    gradient = {.output = array<const float, 4>({2, 4, 5, 8}),
                .d_output = array<const float, 4>({2, 4, 5, 8})};
    for_each_statistic(
        [&]<typename T>(const Statistic& statistic, View<T, 3>& of_forward, View<T, 3>& upstream) {
          of_forward = array<T, 3>({2, 4, 5});
          if (statistic.differentiable()) upstream = array<T, 3>({2, 4, 5});
        },
        gradient.statistics, gradient.d_statistics);
    gradients = {.dq = array<float, 4>({2, 4, 5, 8}),
                 .dk = array<float, 4>({2, 2, 7, 8}),
                 .dv = array<float, 4>({2, 2, 7, 8}),
                 .d_bias = array<float, 4>({2, 4, 5, 7}),
                 .d_lambda = array<float, 3>({2, 4, 5}),
                 .d_sinks = array<float, 1>({4})};
    options.parallel_for = [](std::int64_t tasks, const std::function<void(std::int64_t)>& run) {
      for (std::int64_t task = 0; task < tasks; ++task) run(task);
    };
  }

  void forward() const { attention_forward(input, options, output); }
  void backward() const { attention_backward(input, options, gradient, gradients); }

  AttentionInput input;
  AttentionOptions options;
  AttentionOutput output;
  AttentionGradientInput gradient;
  AttentionGradients gradients;

 private:
  std::list<std::vector<std::byte>> memory_;
};

template <std::size_t Rank>
std::array<std::int64_t, Rank> right_shape(const std::string& name) {
  if constexpr (Rank == 4) return {2, 4, 5, 7};
  if constexpr (Rank == 3) return {2, 4, 5};
  if constexpr (Rank == 1)
    return {name == "sinks" || name == "bias_slopes" ? 4 : name.starts_with("cu_") ? 3 : 2};
}

// Arguments that must match each other: either may be named.
const std::string kTogether = "|cu_seqlens_q|cu_seqlens_k|documents";
const std::string kTensors =
    "q|k|v|output|lse|bias|attn_mask|dq|dk|dv|d_output|d_bias|d_lambda|block_table|k_scale|v_scale";

// Changes one argument of a valid call, and runs both passes.
template <typename Change>
void expect_answers(const std::string& names, const Change& change) {
  Call call;
  change(call);
  expect_an_answer(names, [&] { call.forward(); });
  expect_an_answer(names, [&] { call.backward(); });
}

// Visits the same member of another call's options: `which` counts them.
template <typename Member, typename Visit>
void with_member(AttentionOptions& options, const char* wanted, const Visit& visit) {
  for_each_host_argument(options, [&]<typename M>(const char* name, M& member) {
    if constexpr (std::is_same_v<M, Member>) {
      if (std::string_view(name) == wanted) visit(member);
    }
  });
}

TEST(TerribleValues, OfARightCallThereAreNone) {
  Call call;
  call.forward();
  call.backward();
}

TEST(TerribleValues, OfOptions) {
  int arguments = 0;
  AttentionOptions listed;
  for_each_host_argument(listed, [&]<typename Member>(const char* name, Member&) {
    SCOPED_TRACE(name);
    ++arguments;
    const std::string names = std::string(name) + kTogether;
    const auto set = [&](const auto& value) {
      expect_answers(names, [&](Call& call) {
        with_member<Member>(call.options, name, [&](Member& member) { member = value; });
      });
    };
    if constexpr (std::is_same_v<Member, std::int64_t>) {
      for (const std::int64_t value : kTerribleIntegers) {
        SCOPED_TRACE(value);
        set(value);
      }
    } else if constexpr (std::is_same_v<Member, float>) {
      for (const double value : kTerribleNumbers) {
        SCOPED_TRACE(value);
        set(static_cast<float>(value));
      }
    } else if constexpr (std::is_same_v<Member, ScaleRule>) {
      for (const char* rule : {"ssmax(s=[1,2,3])", "per_row(lambda=[1,2,3],heads=3)"})
        set(ScaleRule::parse(rule));
    }
  });
  EXPECT_GT(arguments, 15);
}

TEST(TerribleValues, OfArraysAmongTheOptions) {
  AttentionOptions listed;
  for_each_host_argument(listed, [&]<typename Member>(const char* name, Member&) {
    if constexpr (requires(Member m) { m.strides; }) {
      SCOPED_TRACE(name);
      using Data = std::remove_pointer_t<decltype(Member{}.data)>;
      using T = std::conditional_t<std::is_void_v<Data>, const float, Data>;
      constexpr std::size_t kRank = std::tuple_size_v<decltype(Member{}.extents)>;
      const std::string names = std::string(name) + kTogether + "|key_begin|key_end";
      const auto changed = [&](const auto& change) {
        expect_answers(names, [&](Call& call) {
          with_member<Member>(call.options, name, [&](Member& member) {
            member = call.array<T, kRank>(right_shape<kRank>(name));
            change(member);
          });
        });
      };
      for (std::size_t axis = 0; axis < kRank; ++axis) {
        for (const std::int64_t extent : kTerribleIntegers) {
          SCOPED_TRACE(extent);
          changed([&](Member& member) { member.extents[axis] = extent; });
        }
      }
      // Contents of the lists.
      if constexpr (std::is_same_v<std::remove_const_t<T>, std::int64_t>) {
        for (const std::int64_t value : kTerribleIntegers) {
          SCOPED_TRACE(value);
          changed([&](Member& member) { const_cast<std::int64_t*>(member.data)[1] = value; });
        }
      }
    }
  });
}

// Each axis of an array gets invalid extents, and its type changes.
template <typename Array>
void expect_shapes_are_checked(const std::string& name, const std::function<Array*(Call&)>& of) {
  SCOPED_TRACE(name);
  for (std::size_t axis = 0; axis < Array{}.extents.size(); ++axis) {
    for (const std::int64_t extent : kTerribleIntegers) {
      SCOPED_TRACE(extent);
      expect_answers(name + "|" + kTensors, [&](Call& call) { of(call)->extents[axis] = extent; });
    }
  }
  expect_answers(name + "|" + kTensors, [&](Call& call) { of(call)->data = nullptr; });
  if constexpr (requires(Array a) { a.type; }) {
    for (const DType type : {DType::bf16, DType::f16, DType::i8})
      expect_answers(name + "|" + kTensors, [&](Call& call) { of(call)->type = type; });
  }
}

TEST(TerribleValues, OfTensors) {
  expect_shapes_are_checked<ConstTensor>("q", [](Call& c) { return &c.input.q; });
  expect_shapes_are_checked<ConstTensor>("k", [](Call& c) { return &c.input.k; });
  expect_shapes_are_checked<ConstTensor>("v", [](Call& c) { return &c.input.v; });
  expect_shapes_are_checked<Tensor>("output", [](Call& c) { return &c.output.output; });
  expect_shapes_are_checked<ConstTensor>("output", [](Call& c) { return &c.gradient.output; });
  expect_shapes_are_checked<ConstTensor>("d_output", [](Call& c) { return &c.gradient.d_output; });
  expect_shapes_are_checked<Tensor>("dq", [](Call& c) { return &c.gradients.dq; });
  expect_shapes_are_checked<Tensor>("dk", [](Call& c) { return &c.gradients.dk; });
  expect_shapes_are_checked<Tensor>("dv", [](Call& c) { return &c.gradients.dv; });
  using View4 = View<float, 4>;
  using View3 = View<float, 3>;
  using View1 = View<float, 1>;
  expect_shapes_are_checked<View4>("d_bias", [](Call& c) { return &c.gradients.d_bias; });
  expect_shapes_are_checked<View3>("d_lambda", [](Call& c) { return &c.gradients.d_lambda; });
  expect_shapes_are_checked<View1>("d_sinks", [](Call& c) { return &c.gradients.d_sinks; });
}

TEST(TerribleValues, OfStatistics) {
  const auto walk = [](const auto& of) {
    std::size_t index = 0;
    Call listed;
    for_each_statistic(
        [&]<typename T>(const Statistic& statistic, View<T, 3>&) {
          const auto its = [&of, index](Call& call) {
            View<T, 3>* found = nullptr;
            std::size_t at = 0;
            for_each_statistic(
                [&]<typename U>(const Statistic&, View<U, 3>& view) {
                  if constexpr (std::is_same_v<T, U>) {
                    if (at == index) found = &view;
                  }
                  ++at;
                },
                of(call));
            return found;
          };
          expect_shapes_are_checked<View<T, 3>>(
              std::string(statistic.name) + "|d_" + std::string(statistic.name), its);
          ++index;
        },
        of(listed));
  };
  walk([](Call& call) -> RowStatistics& { return call.output.statistics; });
  walk([](Call& call) -> ConstRowStatistics& { return call.gradient.statistics; });
  walk([](Call& call) -> ConstRowStatistics& { return call.gradient.d_statistics; });
}

TEST(TerribleValues, OfPages) {
  const std::string names = "block_table|pages.keys|" + kTensors;
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    const auto paged = [&](const auto& change) {
      Call call;
      call.input.pages = {call.array<const std::int32_t, 2>({2, 1}, 1), 7};
      change(call);
      expect_an_answer(names, [&] { call.forward(); });
    };
    paged([&](Call& call) { call.input.pages.keys = value; });
    for (std::size_t axis = 0; axis < 2; ++axis)
      paged([&](Call& call) { call.input.pages.block_table.extents[axis] = value; });
    paged([&](Call& call) {
      const_cast<std::int32_t*>(call.input.pages.block_table.data)[1] =
          static_cast<std::int32_t>(value);
    });
    expect_answers(names, [&](Call& call) { call.input.pages.keys = value; });
  }
}

TEST(TerribleValues, OfCodes) {
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    for (std::size_t axis = 0; axis < 4; ++axis) {
      Call call;
      auto rows = call.array<const float, 4>({2, 2, 7, 8});
      auto codes = call.array<std::int8_t, 4>({2, 2, 7, 8});
      auto scales = call.array<float, 4>({2, 2, 7, 2});
      const std::string names = "rows|codes|scales|group";
      for (auto* extents : {&rows.extents, &codes.extents, &scales.extents}) {
        const std::int64_t right = std::exchange((*extents)[axis], value);
        expect_an_answer(names, [&] { quantize(rows, codes, scales); });
        (*extents)[axis] = right;
      }
      call.input.k = call.input.v = View<const std::int8_t, 4>(codes);
      call.input.k_scale = call.input.v_scale = scales;
      call.forward();
      for (View<const float, 4>* scale : {&call.input.k_scale, &call.input.v_scale}) {
        const std::int64_t right = std::exchange(scale->extents[axis], value);
        expect_an_answer(kTensors, [&] { call.forward(); });
        scale->extents[axis] = right;
      }
    }
  }
}

TEST(TerribleValues, OfStates) {
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    for (std::size_t axis = 0; axis < 4; ++axis) {
      std::array<std::int64_t, 4> shape{1, 1, 1, 1};
      shape[axis] = value;
      // In between, only memory is the limit.
      if (value < 0 || value > std::int64_t{1} << 48) {
        EXPECT_THROW(AttentionState{shape}, Error);
      } else if (value < 10) {
        expect_an_answer("shape|a|b",
                         [&] { (void)merge(AttentionState(shape), AttentionState({1, 1, 1, 1})); });
      }
    }
    const Call call;
    const AttentionState state = attention_state(call.input, call.options);
    const std::array<float, 4> sinks{};
    auto view = contiguous_view<const float, 1>(sinks.data(), {4});
    view.extents[0] = value;
    expect_an_answer("sinks", [&] { (void)with_sinks(state, view); });
    std::vector<std::byte> bytes = to_bytes(state);
    for (std::size_t at = 0; at < 48; at += 8) {
      std::vector<std::byte> damaged = bytes;
      std::memcpy(damaged.data() + at, &value, sizeof value);
      expect_an_answer("bytes|state|version|extent|row|elements",
                       [&] { (void)state_from_bytes(damaged); });
    }
  }
}

}  // namespace
}  // namespace isentrope
