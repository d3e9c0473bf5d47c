// Allocation failures inside the kernels for PyTorch. Whichever allocation fails, in the library or
// in torch on its behalf, there is an error, nothing leaks, and the thread's next call is right.
// python/long_failing_allocations.py tests the errors in Python.

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "bindings/torch/shim.h"
#include "tests/support/failing_allocator.h"

// torch allocates tensors with this function.
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  if (isentrope::until_failure.load() >= 0 && isentrope::until_failure.fetch_sub(1) == 0)
    return ENOMEM;
  *memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  return *memory == nullptr ? ENOMEM : 0;
}

namespace isentrope {
namespace {

using Kernel = void(StableIValue*, std::uint64_t, std::uint64_t);
using Stack = torch::jit::Stack;

constexpr std::int64_t kNone = std::int64_t{1} << 40, kMost = 300;
// Index of the allocation to fail inside the kernel, and the number of allocations.
std::int64_t planned = kNone, allocations = 0;

// Allocations that torch 2.10 to 2.13 leaks: strings returned by kernels (ToImpl<std::string>).
std::int64_t lost_by_torch = 0;

std::array<Kernel*, 64> kernels;
std::size_t registered = 0;

// Kernel as registered with torch. Allocations of torch before and after it do not count.
template <std::size_t Index>
void watched(StableIValue* stack, std::uint64_t arguments, std::uint64_t results) {
  struct Counted {
    const FailingAllocation failure{planned};
    ~Counted() { allocations = planned - 1 - until_failure; }
  } const counted;
  kernels[Index](stack, arguments, results);
}

template <std::size_t... Index>
constexpr std::array<Kernel*, sizeof...(Index)> all_watched(std::index_sequence<Index...>) {
  return {watched<Index>...};
}
constexpr auto kWatched = all_watched(std::make_index_sequence<64>());

}  // namespace
}  // namespace isentrope

// Replaces libtorch's function, which the operators' library calls when it is loaded.
extern "C" __attribute__((visibility("default"))) AOTITorchError
torch_library_impl(TorchLibraryHandle library, const char* name, isentrope::Kernel* kernel,
                   std::uint64_t version) {
  static auto* const real =
      reinterpret_cast<decltype(&torch_library_impl)>(dlsym(RTLD_NEXT, "torch_library_impl"));
  isentrope::kernels.at(isentrope::registered) = kernel;
  return real(library, name, isentrope::kWatched[isentrope::registered++], version);
}

namespace isentrope {
namespace {

using Given = std::map<std::string, c10::IValue>;

// Runs an operator with arguments by schema name; missing ones are none, 0, or the standard rule.
Stack run(const std::string& name, const Given& given) {
  const auto dot = name.find('.');
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("isentrope::" + name.substr(0, dot)).c_str(),
      dot == std::string::npos ? "" : name.substr(dot + 1).c_str());
  const std::map<c10::TypeKind, c10::IValue> absent = {
      {c10::TypeKind::IntType, std::int64_t{0}}, {c10::TypeKind::SymIntType, std::int64_t{0}},
      {c10::TypeKind::FloatType, 0.0},           {c10::TypeKind::BoolType, false},
      {c10::TypeKind::StringType, "standard"},   {c10::TypeKind::OptionalType, c10::IValue()}};
  Stack stack;
  for (const c10::Argument& argument : op.schema().arguments()) {
    const auto found = given.find(argument.name());
    const bool window = argument.name().starts_with("window_");
    stack.push_back(found != given.end() ? found->second
                    : window             ? c10::IValue(std::int64_t{-1})
                                         : absent.at(argument.type()->kind()));
  }
  op.callBoxed(&stack);
  for (const c10::IValue& result : stack) {
    if (result.isString()) lost_by_torch += 1 + (result.toStringRef().size() > 15);
  }
  return stack;
}

bool same(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensorList()) {
    const auto left = a.toTensorVector(), right = b.toTensorVector();
    return std::ranges::equal(
        left, right, [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
  }
  return a.isTensor() ? at::equal(a.toTensor(), b.toTensor()) : a == b;
}

void expect_same(const Stack& got, const Stack& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t at = 0; at < want.size(); ++at) EXPECT_TRUE(same(got[at], want[at])) << at;
}

struct Case {
  std::string name;
  Given given, next;  // next: arguments of the next call on the same thread
};

// On a new thread, allocation `which` fails, and the next call succeeds. Returns whether it threw.
bool fails_at(const Case& one, std::int64_t which, const Stack& want, const Stack& want_next) {
  bool failed = false;
  std::thread([&] {
    planned = which;
    try {
      expect_same(run(one.name, one.given), want);
    } catch (const std::exception&) {
      failed = true;
    }
    planned = kNone;
    Given next = one.next;
    next.insert(one.given.begin(), one.given.end());
    expect_same(run(one.name, next), want_next);
  }).join();
  return failed;
}

void expect_that_every_allocation_may_fail(const Case& one) {
  SCOPED_TRACE(one.name);
  Given next = one.next;
  next.insert(one.given.begin(), one.given.end());
  const Stack want = run(one.name, one.given), want_next = run(one.name, next);
  EXPECT_FALSE(fails_at(one, kNone, want, want_next));
  // As in the first call of a thread.
  std::thread([&] { (void)run(one.name, one.given); }).join();
  const std::int64_t count = allocations, step = std::max<std::int64_t>(1, count / kMost);
  ASSERT_GT(count, 0);
  std::int64_t failed = 0, tried = 0;
  for (std::int64_t which = 1; which <= count; which += step, ++tried) {
    SCOPED_TRACE("allocation " + std::to_string(which) + " of " + std::to_string(count));
    const std::int64_t before = live_allocations - lost_by_torch;
    failed += fails_at(one, which, want, want_next);
    EXPECT_LE(live_allocations - lost_by_torch, before) << "something is lost";
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(failed, tried);
}

at::Tensor normal(at::IntArrayRef shape) { return at::randn(shape); }

class TorchAllocation : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    at::set_num_threads(1);
    ASSERT_NE(dlopen(OPERATORS, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    ASSERT_GT(registered, 20u);
  }
  static Given call() {
    return {{"q", normal({2, 4, 9, 8})},
            {"k", normal({2, 2, 11, 8})},
            {"v", normal({2, 2, 11, 8})},
            {"rule", "log_length(length=total)"},
            {"causal", 2}};
  }
  static Given with(Given base, const Given& more) {
    for (const auto& [name, value] : more) base[name] = value;
    return base;
  }
  const Given standard_ = {{"rule", "standard"}};
};

TEST_F(TorchAllocation, Attention) {
  const std::int64_t all = (1 << 9) - 1;
  const Given optional = {{"wanted", all},
                          {"bias", normal({2, 4, 9, 11})},
                          {"attn_mask", normal({2, 4, 9, 11}) > -1},
                          {"sinks", normal({4})},
                          {"key_begin", at::zeros({2}, at::kLong)},
                          {"compiled_scale", at::full({}, 0.3, at::kDouble)},
                          {"dropout_p", 0.1},
                          {"dropout_seed", at::full({}, 3, at::kLong)}};
  expect_that_every_allocation_may_fail({"attention", with(call(), optional), standard_});
  expect_that_every_allocation_may_fail(
      {"attention.plain", with(call(), {{"wanted", 3}}), standard_});
  expect_that_every_allocation_may_fail({"row_lengths", call(), standard_});
  expect_that_every_allocation_may_fail({"check_call", call(), standard_});
  const at::Tensor rows = at::tensor({0, 3, 3, 9}, at::kLong).view({2, 2});
  expect_that_every_allocation_may_fail({"keys_seen", with(call(), {{"rows", rows}}), standard_});
}

TEST_F(TorchAllocation, InFloat64) {
  Given given = with(call(), {{"wanted", 3}});
  for (const char* name : {"q", "k", "v"}) given[name] = given[name].toTensor().to(at::kDouble);
  expect_that_every_allocation_may_fail({"attention", given, standard_});
}

TEST_F(TorchAllocation, Gradients) {
  const Given given = with(call(), {{"wanted", 3}});
  const Stack forward = run("attention", given);
  const Given upstream = {{"output", forward[0]},
                          {"statistics", forward[1]},
                          {"d_output", normal({2, 4, 9, 8})},
                          {"d_statistics", normal({2, 2, 4, 9})},
                          {"wants_lambda", true}};
  expect_that_every_allocation_may_fail({"attention_backward", with(given, upstream), {}});
  const Stack plain = run("attention.plain", with(given, {{"wanted", 1}}));
  const Given plain_upstream = {{"output", plain[0].toTensorVector()[0]},
                                {"lse", plain[0].toTensorVector()[1]},
                                {"d_output", normal({2, 4, 9, 8})}};
  expect_that_every_allocation_may_fail(
      {"attention_backward.plain", with(given, plain_upstream), {}});
}

TEST_F(TorchAllocation, Caches) {
  const Given pages = {{"k", normal({6, 2, 4, 8})},
                       {"v", normal({6, 2, 4, 8})},
                       {"wanted", 3},
                       {"block_table", at::tensor({0, 1, 2, 3, 4, 5}, at::kLong).view({2, 3})},
                       {"seqused_k", at::tensor({9, 12}, at::kLong)}};
  expect_that_every_allocation_may_fail({"decode", with(call(), pages), standard_});
  expect_that_every_allocation_may_fail(
      {"quantize", {{"rows", normal({6, 2, 4, 8})}, {"groups", 2}}, {}});
  const Stack k = run("quantize", {{"rows", pages.at("k")}, {"groups", 2}});
  const Given codes = {{"k", k[0]}, {"v", k[0]}, {"k_scale", k[1]}, {"v_scale", k[1]}};
  expect_that_every_allocation_may_fail(
      {"decode_codes", with(with(call(), pages), codes), standard_});
}

// Except those that write lists as JSON: nlohmann-json 3.11 allocates in a destructor, and ends the
// program if that fails.
TEST_F(TorchAllocation, Rules) {
  const Given rule = {{"rule", "ssmax(s=[0.1,0.2,0.3],b=0.5)"}};
  for (const char* name :
       {"rule_text", "rule_heads", "rule_reads_length", "rule_reads_position", "rule_to_json"})
    expect_that_every_allocation_may_fail({name, rule, standard_});
  const Given json = {{"json", run("rule_to_json", rule)[0]}};
  expect_that_every_allocation_may_fail({"rule_from_json", json, {}});
  expect_that_every_allocation_may_fail(
      {"rule_lambda", with(rule, {{"n", 9}, {"d", 64}, {"head", 1}}), {}});
  expect_that_every_allocation_may_fail(
      {"rule_of_heads", with(rule, {{"first", 1}, {"count", 2}}), {}});
  expect_that_every_allocation_may_fail(
      {"rule_table", with(rule, {{"d", 8}, {"first", 1}, {"count", 9}}), {}});
}

}  // namespace
}  // namespace isentrope
