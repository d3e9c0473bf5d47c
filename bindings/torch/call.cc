#include "bindings/torch/call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bindings/torch/threads.h"
#include "src/call/arguments.h"

namespace isentrope::stable {
namespace {

// For each type of argument: its name in a schema, reading, conversion for the core, and default.
template <typename T, std::size_t Rank>
const char* schema_type(const View<T, Rank>&) {
  return "Tensor?";
}
const char* schema_type(const ConstTensor&) { return "Tensor?"; }
const char* schema_type(const ScaleRule&) { return "str"; }
const char* schema_type(Causal) { return "int"; }
const char* schema_type(std::int64_t) { return "SymInt"; }  // torch.compile may not know its value
// torch draws seeds, which are tensors in compiled code or on a device.
const char* schema_type(std::uint64_t) { return "Tensor?"; }
const char* schema_type(float) { return "float"; }

template <typename T, std::size_t Rank>
TorchTensor take(Arguments& from, const View<T, Rank>&) {
  return OptionalTensor(from);
}
TorchTensor take(Arguments& from, const ConstTensor&) { return OptionalTensor(from); }
TorchText take(Arguments& from, const ScaleRule&) { return TorchText(from); }
std::int64_t take(Arguments& from, Causal) { return from.integer(); }
std::int64_t take(Arguments& from, std::int64_t) { return from.integer(); }
TorchTensor take(Arguments& from, std::uint64_t) { return OptionalTensor(from); }
double take(Arguments& from, float) { return from.number(); }

template <typename T, std::size_t Rank>
void assign(View<const T, Rank>& to, const TorchTensor& tensor, std::string_view name) {
  to = view_of<T, Rank>(name_in_python(name).c_str(), tensor);
  // An address for empty tensors, because a view without one means that the argument is missing.
  static constexpr T kNothing{};
  if (tensor && !to) to.data = &kNothing;
}
void assign(ConstTensor& to, const TorchTensor& tensor, std::string_view name) {
  static constexpr float kNothing{};
  to = number_view(name_in_python(name).c_str(), tensor);
  if (tensor && !to) to.data = &kNothing;
}
void assign_shape(ConstTensor& to, const TorchTensor& tensor, std::string_view name) {
  const auto view = view_of<double, 4>(name_in_python(name).c_str(), tensor);
  to = {view.data, DType::f32, view.extents, view.strides};
}
template <std::size_t Rank>
void assign_shape(View<const float, Rank>& to, const TorchTensor& tensor, std::string_view name) {
  const auto view = view_of<double, Rank>(name_in_python(name).c_str(), tensor);
  to = {reinterpret_cast<const float*>(view.data), view.extents, view.strides};
}
void assign(ScaleRule& to, const TorchText& text, std::string_view) {
  to = parsed_rule(text.view());
}
void assign(Causal& to, std::int64_t number, std::string_view) { to = causal_of(number); }
void assign(std::int64_t& to, std::int64_t number, std::string_view) { to = number; }
void assign(std::uint64_t& to, const TorchTensor& tensor, std::string_view name) {
  if (tensor) to = static_cast<std::uint64_t>(integer_of(name_in_python(name).c_str(), tensor));
}
void assign(float& to, double number, std::string_view) { to = static_cast<float>(number); }

template <typename T, std::size_t Rank>
nlohmann::json default_of(const View<T, Rank>&) {
  return nullptr;
}
nlohmann::json default_of(const ConstTensor&) { return nullptr; }
nlohmann::json default_of(const ScaleRule& rule) { return rule.text(); }
nlohmann::json default_of(Causal causal) { return static_cast<std::int64_t>(causal); }
nlohmann::json default_of(std::int64_t number) { return number; }
nlohmann::json default_of(std::uint64_t) { return nullptr; }
nlohmann::json default_of(float number) { return number; }

// Options whose types define the schema. Created at loading, as memory may be exhausted later.
const AttentionOptions& types() {
  static const AttentionOptions options;
  return options;
}

// Returns the dimensions of an argument; none for a number.
constexpr std::array kPairs = {"batch", "heads", "queries", "keys"};
template <typename T>
nlohmann::json axes_of(const View<T, 4>&, std::string_view) {
  return kPairs;
}
nlohmann::json axes_of(const ConstTensor&, std::string_view) { return kPairs; }
template <typename T>
nlohmann::json axes_of(const View<T, 3>&, std::string_view) {
  return {"batch", "heads", "queries"};
}
nlohmann::json axes_of(const View<const float, 1>&, std::string_view) {
  return nlohmann::json::array({"heads"});
}
nlohmann::json axes_of(const View<const std::int64_t, 1>&, std::string_view name) {
  const auto part = std::ranges::find(kMaskLists, name, &MaskList::name);
  return nlohmann::json::array({part->by_batch ? "batch" : "documents"});
}
template <typename T>
nlohmann::json axes_of(const T&, std::string_view) {
  return nlohmann::json::array();
}

// Returns whether the argument is a part of the mask.
bool is_of_mask(std::string_view name) {
  return name == "causal" || std::ranges::count(kMaskNumbers, name, &MaskNumber::name) +
                                     std::ranges::count(kMaskLists, name, &MaskList::name) >
                                 0;
}

}  // namespace

Causal causal_of(std::int64_t number) {
  if (number < 0 || number > 2) {
    throw Error("[attention] causal must be 0 (none), 1 (top left) or 2 (bottom right); got " +
                std::to_string(number));
  }
  return static_cast<Causal>(number);
}

AttentionInput input_of(const TorchTensor& q, const TorchTensor& k, const TorchTensor& v) {
  return {number_view("q", q), number_view("k", k), number_view("v", v)};
}

CallArguments::CallArguments(Arguments& from)
    : q(from), k(from), v(from), compiled_scale_(from), compiled_soft_cap_(from) {
  std::size_t next = 0;
  for_each_argument(types(), [&](std::string_view, const auto& member) {
    values_.at(next++) = take(from, member);
  });
}

AttentionInput CallArguments::input() const { return input_of(q, k, v); }

reference::Input CallArguments::input_in_float64() const {
  reference::Input input{view_of<double, 4>("q", q), view_of<double, 4>("k", k),
                         view_of<double, 4>("v", v)};
  auto value = values_.begin();
  for_each_argument(types(), [&](std::string_view name, const auto&) {
    const auto* tensor = std::get_if<TorchTensor>(&*value++);
    if (name == "bias") input.bias = view_of<double, 4>("bias", *tensor);
    if (name == "sinks") input.sinks = view_of<double, 1>("sinks", *tensor);
    if (name == "lambda") input.lambda = view_of<double, 3>("lambda_", *tensor);
  });
  return input;
}

AttentionOptions CallArguments::options() const {
  AttentionOptions options;
  options.parallel_for = run_on_torch_threads;
  const bool in_float64 = is_float64(q);
  auto value = values_.begin();
  for_each_argument(options, [&]<typename T>(std::string_view name, T& member) {
    using Taken = decltype(take(std::declval<Arguments&>(), member));
    const Taken& given = std::get<Taken>(*value++);
    if constexpr (requires { assign_shape(member, given, name); }) {
      if (in_float64) return assign_shape(member, given, name);
    }
    assign(member, given, name);
  });
  if (compiled_scale_) {
    options.rule = ScaleRule::constant(number_of("compiled_scale", compiled_scale_)) * options.rule;
  }
  if (compiled_soft_cap_) {
    options.soft_cap = static_cast<float>(number_of("compiled_soft_cap", compiled_soft_cap_));
  }
  return options;
}

std::string call_schema() {
  std::string schema =
      "Tensor q, Tensor k, Tensor v, Tensor? compiled_scale, Tensor? compiled_soft_cap";
  for_each_argument(types(), [&](std::string_view name, const auto& member) {
    schema += std::string(", ") + schema_type(member) + " " + name_in_python(name);
  });
  return schema;
}

std::string call_arguments() {
  nlohmann::ordered_json list;
  const auto tell = [&](std::string_view name, nlohmann::json fallback, nlohmann::json axes) {
    list.push_back({{"name", name_in_python(name)},
                    {"default", std::move(fallback)},
                    {"axes", std::move(axes)},
                    {"mask", is_of_mask(name)}});
  };
  for (const char* compiled : {"compiled_scale", "compiled_soft_cap"})
    tell(compiled, nullptr, nlohmann::json::array());
  const AttentionOptions options;
  for_each_argument(options, [&](std::string_view name, const auto& member) {
    tell(name, default_of(member), axes_of(member, name));
  });
  return list.dump();
}

const ScaleRule& parsed_rule(std::string_view text) {
  thread_local std::pair<std::string, ScaleRule> last{ScaleRule().text(), ScaleRule()};
  if (last.first != text) last = {std::string(text), ScaleRule::parse(text)};
  return last.second;
}

}  // namespace isentrope::stable
