#include "bindings/jax/call.h"

#include <array>
#include <utility>

#include "src/call/arguments.h"
#include "src/call/checks.h"

namespace isentrope::jax {
namespace {

const Checks kCheck("attention");

template <typename T>
constexpr std::string_view kName = "";
template <>
constexpr std::string_view kName<float> = "float32";
template <>
constexpr std::string_view kName<double> = "float64";
template <>
constexpr std::string_view kName<std::uint8_t> = "bool";
template <>
constexpr std::string_view kName<std::int32_t> = "int32";

constexpr std::array kNumbers = {std::pair{kName<float>, DType::f32},
                                 std::pair{std::string_view("bfloat16"), DType::bf16},
                                 std::pair{std::string_view("float16"), DType::f16}};

// An address for empty arrays, because a view without one means that the array is missing.
alignas(16) char nothing[16];

void* address(const Array& array) { return array.data == nullptr ? nothing : array.data; }

void must_be(const std::string& name, const Array& array, std::string_view type) {
  if (array.type != type) kCheck.fail(name, "be " + std::string(type), std::string(array.type));
}

std::string_view without_prefix(std::string_view name) {
  return name.substr(name.starts_with("d_") || name.starts_with("t_") ? 2 : 0);
}

}  // namespace

Call::Call(std::string_view text, const std::vector<Array>& arrays)
    : text_(nlohmann::json::parse(text)),
      names_(text_["names"]),
      arrays_(arrays),
      batch_(text_["batch"]),
      parts_(text_["parts"]),
      on_device_(text_.contains("kernels")) {
  for (const char* name : {"q", "k", "v"}) {
    const std::vector<std::int64_t>& extents = array(name)->extents;
    if (extents.size() != 4) kCheck.fail(name, "have 4 dimensions", std::to_string(extents.size()));
  }
  queries_ = array("q")->extents[1];
  heads_ = array("q")->extents[2];
  keys_ = array("k")->extents[1];
  kv_heads_ = array("k")->extents[2];
}

const Array* Call::array(const std::string& name) const {
  const std::size_t at = std::ranges::find(names_, name) - names_.begin();
  return at < arrays_.size() ? &arrays_[at] : nullptr;
}

// Returns the shape in the library's order of axes, of which an array of fewer takes the first.
Shape<4> Call::shape_of(std::string_view name) const {
  const std::string_view base = without_prefix(name);
  const auto columns = [&](const char* of) { return array(of)->extents[3]; };
  if (base == "q") return {batches(), heads_, queries_, columns("q")};
  if (base == "k") return {batches(), kv_heads_, keys_, columns("k")};
  if (base == "v") return {batches(), kv_heads_, keys_, columns("v")};
  if (base == "output") return {batches(), heads_, queries_, columns("v")};
  return {batches(), heads_, queries_, keys_};
}

template <std::size_t Rank>
void Call::place(const std::string& name, const Array& from, const Shape<Rank>& wanted,
                 Shape<Rank>& extents, Shape<Rank>& strides, std::int64_t& offset) const {
  if (from.extents.size() != Rank) {
    kCheck.fail(name, "have " + std::to_string(Rank) + " dimensions",
                std::to_string(from.extents.size()));
  }
  std::ranges::copy(from.extents, extents.begin());
  strides = contiguous_view(static_cast<char*>(nullptr), extents).strides;
  const std::string_view base = without_prefix(name);
  if (base != "bias" && base != "attn_mask") {
    std::swap(extents[1], extents[2]);
    std::swap(strides[1], strides[2]);
  }
  // XLA lays a device's statistics out with heads outside, because kernels need them so.
  if (on_device_ && Rank == 3)
    strides = contiguous_view(static_cast<char*>(nullptr), extents).strides;
  offset = 0;
  if (extents[0] == batch_) {
    offset = part_ * batches() * strides[0];
    extents[0] = batches();
  }
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (extents[axis] != 1 || wanted[axis] == 1) continue;
    extents[axis] = wanted[axis];
    strides[axis] = 0;
  }
}

Tensor Call::tensor(const std::string& name) const {
  const Array* from = array(name);
  if (from == nullptr) return {};
  const auto type = std::ranges::find(kNumbers, from->type, [](const auto& x) { return x.first; });
  if (type == kNumbers.end()) {
    kCheck.fail(name, "be float32, bfloat16, float16 or float64", std::string(from->type));
  }
  Tensor tensor(address(*from), type->second, {}, {});
  std::int64_t offset = 0;
  place(name, *from, shape_of(name), tensor.extents, tensor.strides, offset);
  tensor.data = static_cast<char*>(tensor.data) + offset * size_of(tensor.type);
  return tensor;
}

template <typename T, std::size_t Rank>
View<T, Rank> Call::view(const std::string& name) const {
  const Array* from = array(name);
  if (from == nullptr) return {};
  must_be(name, *from, kName<std::remove_const_t<T>>);
  View<T, Rank> view{static_cast<T*>(address(*from))};
  if constexpr (Rank == 1) {  // sinks, a row for each part or one for all
    view.extents = {from->extents.at(1)};
    view.strides = {1};
    if (from->extents[0] > 1) view.data += part_ * view.extents[0];
  } else {
    Shape<Rank> wanted;
    std::ranges::copy_n(shape_of(name).begin(), Rank, wanted.begin());
    std::int64_t offset = 0;
    place(name, *from, wanted, view.extents, view.strides, offset);
    view.data += offset;
  }
  return view;
}

template View<float, 1> Call::view(const std::string&) const;
template View<const float, 1> Call::view(const std::string&) const;
template View<float, 3> Call::view(const std::string&) const;
template View<const float, 3> Call::view(const std::string&) const;
template View<float, 4> Call::view(const std::string&) const;
template View<const float, 4> Call::view(const std::string&) const;
template View<double, 1> Call::view(const std::string&) const;
template View<double, 3> Call::view(const std::string&) const;
template View<double, 4> Call::view(const std::string&) const;
template View<std::int32_t, 3> Call::view(const std::string&) const;

AttentionInput Call::input() const {
  if (!in_float64()) return {tensor("q"), tensor("k"), tensor("v")};
  const auto shape = [&](const char* name) {
    const View<double, 4> numbers = view<double, 4>(name);
    return ConstTensor(numbers.data, DType::f32, numbers.extents, numbers.strides);
  };
  return {shape("q"), shape("k"), shape("v")};
}

reference::Input Call::input_in_float64(const std::string& prefix) const {
  return {.q = view<double, 4>(prefix + "q"),
          .k = view<double, 4>(prefix + "k"),
          .v = view<double, 4>(prefix + "v"),
          .bias = view<double, 4>(prefix + "bias"),
          .sinks = view<double, 1>(prefix + "sinks")};
}

// Reads an option: an array by its name, a number or text from the JSON.
template <typename Member>
void Call::read(std::string_view name, Member& member) {
  const std::string key(name);
  if constexpr (requires { member.data; }) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(member.data)>>;
    const Array* from = array(key);
    if (from == nullptr || name == "lambda") return;  // which is a statistic here
    if constexpr (std::is_same_v<T, std::int64_t>) {
      must_be(key, *from, kName<std::int32_t>);
      if (on_device_) kCheck.fail(key, "be absent on a device", "one");
      const auto* first = static_cast<const std::int32_t*>(from->data);
      const std::int64_t count = from->extents.empty() ? 0 : from->extents[0];
      auto& list = lists_.emplace_back(batches());
      for (std::int64_t i = 0; first != nullptr && i < batches(); ++i)
        list[i] = first[count == 1 ? 0 : part_ * batches() + i];
      static constexpr std::int64_t kNone = 0;
      member = {
          list.empty() ? &kNone : list.data(), {count == 1 ? batches() : count / parts_}, {1}};
    } else if constexpr (std::is_same_v<T, std::uint8_t>) {
      member = view<T, 4>(key);
    } else {
      constexpr std::size_t kRank = std::tuple_size_v<decltype(member.extents)>;
      if (!in_float64()) {
        member = view<const float, kRank>(key);
        return;
      }
      const auto numbers = view<double, kRank>(key);
      member = View<const float, kRank>{reinterpret_cast<const float*>(numbers.data),
                                        numbers.extents, numbers.strides};
    }
  } else if (const auto at = text_["options"].find(key); at != text_["options"].end()) {
    if constexpr (std::is_same_v<Member, ScaleRule>) {
      member = ScaleRule::parse(at->template get<std::string>());
    } else if constexpr (std::is_same_v<Member, Causal>) {
      member = static_cast<Causal>(at->template get<int>());
    } else {
      member = at->template get<Member>();
    }
  }
}

AttentionOptions Call::options() {
  AttentionOptions options;
  lists_.clear();
  for_each_argument(options, [&](std::string_view name, auto& member) { read(name, member); });
  return options;
}

}  // namespace isentrope::jax
