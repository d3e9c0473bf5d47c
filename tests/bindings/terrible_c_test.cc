// Every argument of every function of the C interface with invalid values: a status and a message
// with its name, or success. The same values reach the functions of C++.

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>

#include "isentrope/isentrope.h"
#include "src/call/arguments.h"
#include "tests/support/terrible.h"

namespace isentrope {
namespace {

using Extents = std::vector<std::int64_t>;

void expect_answer(const std::string& names, isentrope_status status) {
  if (status == ISENTROPE_OK) return;
  EXPECT_EQ(status, ISENTROPE_BAD_ARGUMENT) << isentrope_last_error();
  EXPECT_TRUE(says(isentrope_last_error(), names));
}

class Arrays {
 public:
  isentrope_array operator()(const Extents& shape, isentrope_dtype dtype = ISENTROPE_F32) {
    return isentrope_array_contiguous(memory_.emplace_back(2048).data(), dtype,
                                      static_cast<std::int32_t>(shape.size()), shape.data());
  }

 private:
  std::list<std::vector<std::int64_t>> memory_;
};

// Calls use(damaged) with each possible damage of an array.
void for_each_damage(const isentrope_array& right,
                     const std::function<void(const isentrope_array&)>& use) {
  const auto with = [&](const std::string& what, const auto& change) {
    SCOPED_TRACE(what);
    isentrope_array damaged = right;
    change(damaged);
    use(damaged);
  };
  with("nothing", [](isentrope_array& a) { a = {}; });
  with("no data", [](isentrope_array& a) { a.data = nullptr; });
  with("no aligned data", [](isentrope_array& a) { a.data = static_cast<char*>(a.data) + 1; });
  for (const std::int32_t number : {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1 << 30}) {
    if (number != right.dtype)
      with("type " + std::to_string(number), [&](isentrope_array& a) { a.dtype = number; });
    if (number != right.rank)
      with("rank " + std::to_string(number), [&](isentrope_array& a) { a.rank = number; });
  }
  for (std::int32_t axis = 0; axis < right.rank; ++axis) {
    for (const std::int64_t extent : kTerribleIntegers) {
      with("extent " + std::to_string(extent) + " of axis " + std::to_string(axis),
           [&](isentrope_array& a) { a.extents[axis] = extent; });
    }
  }
}

// Calls visit(statistic, array) for each array of statistics.
template <typename Visit>
void for_each_array(isentrope_statistics& statistics, const Visit& visit) {
  isentrope_array* array = &statistics.lse;
  for_each_statistic([&](const Statistic& statistic) { visit(statistic, *array++); });
}

class TerribleC : public testing::Test {
 protected:
  TerribleC() {
    statistics.struct_size = d_statistics.struct_size = sizeof statistics;
    for_each_array(statistics, [&](const Statistic& statistic, isentrope_array& array) {
      array = arrays({2, 4, 5}, statistic.name == "support" ? ISENTROPE_I64 : ISENTROPE_F32);
    });
    for_each_array(d_statistics, [&](const Statistic& statistic, isentrope_array& array) {
      if (statistic.differentiable()) array = arrays({2, 4, 5});
    });
    for (isentrope_array* array : {&forward.q, &forward.output, &backward.d_output, &backward.dq})
      *array = arrays({2, 4, 5, 8});
    for (isentrope_array* array : {&forward.k, &forward.v, &backward.dk, &backward.dv})
      *array = arrays({2, 2, 7, 8});
    forward.struct_size = sizeof forward;
    forward.statistics = &statistics;
    backward.struct_size = sizeof backward;
    backward.q = forward.q;
    backward.k = forward.k;
    backward.v = forward.v;
    backward.output = forward.output;
    backward.statistics = &statistics;
    backward.d_statistics = &d_statistics;
    backward.d_bias = arrays({2, 4, 5, 7});
    backward.d_lambda = arrays({2, 4, 5});
    backward.d_sinks = arrays({4});
  }
  ~TerribleC() override { isentrope_options_destroy(options); }

  void expect_answers(const std::string& names) const {
    expect_answer(names, isentrope_forward(options, &forward));
    expect_answer(names, isentrope_backward(options, &backward));
  }
  void damage(isentrope_array& array, const std::function<void()>& expect) const {
    const isentrope_array right = array;
    for_each_damage(right, [&](const isentrope_array& damaged) {
      array = damaged;
      expect();
    });
    array = right;
  }
  void damage(const std::string& names, isentrope_array& array) const {
    SCOPED_TRACE(names);
    damage(array, [&] { expect_answers(names + kTogether); });
  }

  // Arguments that must match each other: either may be named.
  const std::string kTogether = "|q|k|v|output|lse|d_output|dq|dk|dv|block_table|k_scale|v_scale";
  Arrays arrays;
  isentrope_options* options = isentrope_options_create();
  isentrope_statistics statistics{}, d_statistics{};
  isentrope_forward_call forward{};
  isentrope_backward_call backward{};
};

TEST_F(TerribleC, OfARightCallThereIsNothing) {
  EXPECT_EQ(isentrope_forward(options, &forward), ISENTROPE_OK) << isentrope_last_error();
  EXPECT_EQ(isentrope_backward(options, &backward), ISENTROPE_OK) << isentrope_last_error();
}

TEST_F(TerribleC, ArraysOfCalls) {
  for (isentrope_array* array :
       {&forward.q, &forward.k, &forward.v, &forward.output, &backward.q, &backward.k, &backward.v,
        &backward.output, &backward.d_output, &backward.dq, &backward.dk, &backward.dv,
        &backward.d_bias, &backward.d_lambda, &backward.d_sinks})
    damage("d_bias|d_lambda|d_sinks", *array);
  for (isentrope_statistics* of : {&statistics, &d_statistics}) {
    for_each_array(*of, [&](const Statistic& statistic, isentrope_array& array) {
      const std::string name(statistic.name);
      damage(name + "|d_" + name, array);
    });
  }
  forward.block_table = arrays({2, 1}, ISENTROPE_I32);
  forward.paged_keys = 7;
  damage("block_table|pages.keys", forward.block_table);
  for (const std::int64_t page : kTerribleIntegers) {
    SCOPED_TRACE(page);
    static_cast<std::int32_t*>(forward.block_table.data)[1] = static_cast<std::int32_t>(page);
    expect_answers("block_table");
  }
}

TEST_F(TerribleC, PagesAndSizes) {
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    forward.paged_keys = value;
    expect_answer("block_table|pages.keys", isentrope_forward(options, &forward));
    forward.paged_keys = 0;
    const auto size = static_cast<std::size_t>(value);
    for (std::size_t* one : {&forward.struct_size, &backward.struct_size, &statistics.struct_size,
                             &d_statistics.struct_size}) {
      const std::size_t right = *one;
      *one = size;
      expect_answers("struct_size");
      *one = right;
    }
  }
}

TEST_F(TerribleC, IntegersOfOptions) {
  const AttentionOptions listed;
  for_each_host_argument(listed, [&]<typename Member>(const char* name, const Member& right) {
    if constexpr (std::is_same_v<Member, std::int64_t> || std::is_same_v<Member, bool>) {
      SCOPED_TRACE(name);
      for (const std::int64_t value : kTerribleIntegers) {
        SCOPED_TRACE(value);
        expect_answer(name, isentrope_options_set_integer(options, name, value));
        expect_answers(name);
      }
      EXPECT_EQ(isentrope_options_set_integer(options, name, right), ISENTROPE_OK);
    }
  });
  for (const std::int64_t value : kTerribleIntegers) {
    SCOPED_TRACE(value);
    expect_answer("causal",
                  isentrope_options_set_causal(options, static_cast<std::int32_t>(value)));
    (void)isentrope_target(static_cast<std::int32_t>(value));
    double lambda = 0;
    const char* const rule = "ssmax(s=[1,2])";
    expect_answer("keys", isentrope_rule_lambda(rule, value, 64, 0, &lambda));
    expect_answer("dim", isentrope_rule_lambda(rule, 1, value, 0, &lambda));
    expect_answer("head", isentrope_rule_lambda(rule, 1, 64, value, &lambda));
  }
}

TEST_F(TerribleC, NumbersOfOptions) {
  for (const double value : kTerribleNumbers) {
    SCOPED_TRACE(value);
    const auto number = static_cast<float>(value);
    expect_answer("soft_cap", isentrope_options_set_soft_cap(options, number));
    expect_answers("soft_cap");
    EXPECT_EQ(isentrope_options_set_soft_cap(options, 0), ISENTROPE_OK);
    expect_answer("p|dropout_p", isentrope_options_set_dropout(options, number, 3));
    expect_answers("p|dropout_p");
    EXPECT_EQ(isentrope_options_set_dropout(options, 0, 0), ISENTROPE_OK);
  }
}

TEST_F(TerribleC, ArraysOfOptions) {
  int arguments = 0;
  const AttentionOptions listed;
  for_each_host_argument(listed, [&]<typename Member>(const char* name, const Member& member) {
    if constexpr (requires { member.strides; }) {
      SCOPED_TRACE(name);
      ++arguments;
      using Data = std::remove_const_t<std::remove_pointer_t<decltype(member.data)>>;
      const std::string named(name);
      Extents shape = {2, 4, 5, 7};
      shape.resize(member.strides.size());
      if (shape.size() == 1) shape = {std::is_same_v<Data, float> ? 4 : named[0] == 'c' ? 3 : 2};
      isentrope_array right = arrays(shape, std::is_same_v<Data, std::int64_t>   ? ISENTROPE_I64
                                            : std::is_same_v<Data, std::uint8_t> ? ISENTROPE_U8
                                                                                 : ISENTROPE_F32);
      const auto set = [&](const isentrope_array& array) {
        expect_answer(named, isentrope_options_set_array(options, name, &array));
        expect_answers(named + "|cu_seqlens_q|cu_seqlens_k|documents|key_begin|key_end");
        EXPECT_EQ(isentrope_options_set_array(options, name, nullptr), ISENTROPE_OK);
      };
      for_each_damage(right, set);
      for (const std::int64_t value : kTerribleIntegers) {
        SCOPED_TRACE(value);
        std::memcpy(right.data, &value, sizeof value);
        set(right);
      }
    }
  });
  EXPECT_GE(arguments, 10);
}

TEST_F(TerribleC, HeadsOfRules) {
  for (const char* rule : {"ssmax(s=[1,2,3])", "per_row(lambda=[1,2,3],heads=3)"}) {
    EXPECT_EQ(isentrope_options_set_rule(options, rule), ISENTROPE_OK);
    expect_answers("rule");
  }
}

TEST_F(TerribleC, Texts) {
  for (const std::string& text : kTerribleTexts) {
    SCOPED_TRACE(text.substr(0, 40));
    const char* const word = text.c_str();
    double lambda = 0;
    isentrope_array array = arrays({2}, ISENTROPE_I64);
    expect_answer("rule|rules|train_len|s", isentrope_rule_lambda(word, 1, 64, 0, &lambda));
    expect_answer("rule|rules|train_len|s", isentrope_options_set_rule(options, word));
    expect_answer("name", isentrope_options_set_integer(options, word, 0));
    expect_answer("name", isentrope_options_set_array(options, word, &array));
    expect_answer("name|target|targets", isentrope_use_target(word));
  }
}

TEST_F(TerribleC, Quantize) {
  isentrope_array rows = arrays({2, 2, 7, 8}), codes = arrays({2, 2, 7, 8}, ISENTROPE_I8),
                  scales = arrays({2, 2, 7, 2});
  ASSERT_EQ(isentrope_quantize(&rows, &codes, &scales), ISENTROPE_OK) << isentrope_last_error();
  for (isentrope_array* one : {&rows, &codes, &scales})
    damage(*one,
           [&] { expect_answer("rows|codes|scales", isentrope_quantize(&rows, &codes, &scales)); });
  forward.k = forward.v = codes;
  forward.k_scale = forward.v_scale = scales;
  ASSERT_EQ(isentrope_forward(options, &forward), ISENTROPE_OK) << isentrope_last_error();
  for (isentrope_array* one : {&forward.k_scale, &forward.v_scale})
    damage(*one, [&] { expect_answer("k_scale|v_scale", isentrope_forward(options, &forward)); });
}

}  // namespace
}  // namespace isentrope
