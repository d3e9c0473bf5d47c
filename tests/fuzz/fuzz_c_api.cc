// Fuzz target: the C interface. With any arguments a call works or reports an error, writes only
// its outputs and no place twice, and throws nothing.

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <vector>

#include "isentrope/isentrope.h"
#include "tests/fuzz/byte_source.h"

namespace isentrope::fuzz {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(),
                       kLeast = std::numeric_limits<std::int64_t>::min();

std::int64_t number_from(ByteSource& bytes) {
  return bytes.one_of<std::int64_t>({0, 1, 2, 3, 4, 5, 17, -1, -2, 100, std::int64_t{1} << 31,
                                     std::int64_t{1} << 62, kMost, kLeast});
}

// Memory for the arrays of one call; an array that would exceed it gets none.
class Arena {
 public:
  Arena() : memory_(1 << 15) {}

  isentrope_array array_from(ByteSource& bytes, isentrope_dtype type,
                             std::vector<std::int64_t> shape, bool written) {
    isentrope_array array = isentrope_array_contiguous(
        nullptr, type, static_cast<std::int32_t>(shape.size()), shape.data());
    const std::uint8_t faults = bytes.byte();
    if (faults % 16 == 1) array.dtype = bytes.byte() % 9 - 1;
    if (faults % 16 == 2) array.rank = bytes.byte() % 8 - 2;
    if (faults % 16 == 3) array.extents[bytes.byte() % 4] = number_from(bytes);
    if (faults % 16 == 4) array.strides[bytes.byte() % 4] = number_from(bytes);
    if (faults % 16 == 5) array = {};
    if (faults % 16 != 6) place(array, written);
    // Placed within the arrays placed before.
    if (faults % 16 == 7 && array.data != nullptr) {
      const std::ptrdiff_t last = static_cast<std::byte*>(array.data) - memory_.data();
      array.data = memory_.data() + std::min<std::ptrdiff_t>(4 * bytes.byte(), last);
    }
    return array;
  }

  // Returns whether no written byte is also read, or written as part of another element.
  [[nodiscard]] bool are_apart(std::initializer_list<isentrope_array> read,
                               std::initializer_list<isentrope_array> written) const {
    std::vector<bool> taken(memory_.size());
    for (const isentrope_array& array : read) take_bytes(array, taken);
    return std::ranges::all_of(
        written, [&](const isentrope_array& array) { return take_bytes(array, taken); });
  }

  [[nodiscard]] void* words(const std::vector<std::int64_t>& values) {
    void* at = take(values.size() * sizeof(std::int64_t));
    if (at != nullptr) std::memcpy(at, values.data(), values.size() * sizeof(std::int64_t));
    return at;
  }

 private:
  void* take(std::size_t size) {
    size = (size + 7) / 8 * 8;
    if (size > memory_.size() - used_) return nullptr;
    used_ += size;
    return memory_.data() + used_ - size;
  }

  static std::int64_t size_of(std::int32_t dtype) {
    constexpr std::int64_t kSizes[] = {8, 4, 2, 2, 1, 4, 8};
    return dtype >= 0 && dtype < 7 ? kSizes[dtype] : 8;
  }

  // Marks the bytes of all elements; returns false if one was already marked.
  bool take_bytes(const isentrope_array& array, std::vector<bool>& taken) const {
    if (array.data == nullptr) return true;
    std::int64_t count = 1;
    // Without elements the other extents may be of any size.
    for (int axis = 0; axis < array.rank; ++axis) {
      if (array.extents[axis] <= 0) return true;
    }
    for (int axis = 0; axis < array.rank; ++axis) count *= array.extents[axis];
    bool apart = true;
    for (std::int64_t element = 0; element < count; ++element) {
      std::int64_t rest = element, offset = 0;
      for (int axis = array.rank; axis-- > 0; rest /= array.extents[axis])
        offset += rest % array.extents[axis] * array.strides[axis];
      const std::int64_t size = size_of(array.dtype);
      const std::ptrdiff_t at =
          static_cast<const std::byte*>(array.data) - memory_.data() + offset * size;
      for (std::ptrdiff_t byte = at; byte < at + size; ++byte) {
        apart = apart && !taken[static_cast<std::size_t>(byte)];
        taken[static_cast<std::size_t>(byte)] = true;
      }
    }
    return apart;
  }

  void place(isentrope_array& array, bool written) {
    double low = 0, high = 0, count = 1;
    for (int axis = 0; axis < 4; ++axis) {
      const auto extent = static_cast<double>(array.extents[axis]),
                 stride = static_cast<double>(array.strides[axis]);
      if (axis >= array.rank) break;
      if (extent > 0) (stride < 0 ? low : high) += (extent - 1) * stride;
      count *= extent;
    }
    // Broadcast calls may be valid at any length, so lengths are limited.
    if (count > 2000 || high - low > 2000 || (written && low < 0)) return;
    std::byte* memory =
        static_cast<std::byte*>(take(static_cast<std::size_t>(8 * (high - low + 1))));
    if (memory == nullptr) return;
    if (!written) {
      for (int i = 0; i < static_cast<int>(8 * (high - low + 1)); ++i)
        memory[i] = static_cast<std::byte>(i * 37 % 61);
    }
    array.data = memory - static_cast<std::int64_t>(low) * size_of(array.dtype);
  }

  std::vector<std::byte> memory_;
  std::size_t used_ = 0;
};

struct Shape {
  std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
};

void expect_message(isentrope_status status) {
  require(status == ISENTROPE_OK || *isentrope_last_error() == '[', "a failure without a message");
}

enum class MaskList { begin, end, documents };

void set_list(MaskList kind, ByteSource& bytes, Arena& arena, const Shape& s,
              isentrope_options* options) {
  const auto list = [&](std::vector<std::int64_t> values) {
    if (bytes.byte() % 4 == 0) values[bytes.byte() % values.size()] = number_from(bytes);
    isentrope_array array =
        arena.array_from(bytes, ISENTROPE_I64, {static_cast<std::int64_t>(values.size())}, false);
    if (array.data != nullptr && array.strides[0] == 1) array.data = arena.words(values);
    return array;
  };
  const auto set = [&](const char* name, const isentrope_array& array) {
    expect_message(isentrope_options_set_array(options, name, &array));
  };
  if (kind == MaskList::documents) {
    set("cu_seqlens_q", list({0, s.queries / 2, s.queries}));
    set("cu_seqlens_k", list({0, s.keys / 2, s.keys}));
    return;
  }
  const bool is_end = kind == MaskList::end;
  isentrope_array array =
      list(std::vector<std::int64_t>(static_cast<std::size_t>(s.batch + 1), is_end ? 3 : 1));
  array.extents[0] = s.batch;
  set(is_end ? "key_end" : bytes.one_of({"key_begin", "prefix_keys"}), array);
}

void set_options(ByteSource& bytes, Arena& arena, const Shape& s, isentrope_options* options) {
  const auto floats = [&](std::vector<std::int64_t> shape) {
    return arena.array_from(bytes, ISENTROPE_F32, shape, false);
  };
  const auto set = [&](const char* name, const isentrope_array& array) {
    expect_message(isentrope_options_set_array(options, name, &array));
  };
  static const char* const rules[] = {"standard", "entropy_invariant(base=512)",
                                      "ssmax(s=[1,2],b=[0,0])", "nonsense(", ""};
  const auto set_integer = [&](const char* name) {
    expect_message(isentrope_options_set_integer(options, name, number_from(bytes)));
  };
  const std::function<void()> choices[] = {
      [&] { expect_message(isentrope_options_set_rule(options, bytes.one_of(rules))); },
      [&] { expect_message(isentrope_options_set_causal(options, bytes.byte() % 5 - 1)); },
      [&] { set_integer(bytes.one_of({"window_left", "window_right", "bias"})); },
      [&] {
        set_integer(bytes.one_of(
            {"query_offset", "key_offset", "sequence_keys", "chunk_size", "dilation"}));
      },
      [&] { set_list(MaskList::begin, bytes, arena, s, options); },
      [&] { set_list(MaskList::end, bytes, arena, s, options); },
      [&] { set_list(MaskList::documents, bytes, arena, s, options); },
      [&] {
        set("attn_mask",
            arena.array_from(bytes, ISENTROPE_U8, {s.batch, s.heads, s.queries, s.keys}, false));
      },
      [&] { set("bias", floats({s.batch, s.heads, s.queries, s.keys})); },
      [&] { set("sinks", floats({s.heads})); },
      [&] { set("lambda", floats({s.batch, s.heads, s.queries})); },
      [&] {
        const float p = bytes.one_of({0.1f, 0.9f, 1.0f, -1.0f, 1e-20f});
        const auto seed = static_cast<std::uint64_t>(number_from(bytes));
        expect_message(isentrope_options_set_dropout(options, p, seed));
      },
      [&] {
        expect_message(
            isentrope_options_set_soft_cap(options, bytes.one_of({0.0f, 1.0f, -1.0f, 3e38f})));
      }};
  for (int i = bytes.byte() % 5; i > 0; --i) choices[bytes.byte() % std::size(choices)]();
}

// The arrays of one call: inputs and outputs of random types, strides and damage.
struct CallArrays {
  ByteSource& bytes;
  Arena& arena;
  const Shape& s;
  isentrope_statistics statistics{}, upstream{};

  isentrope_array in(isentrope_dtype type, std::vector<std::int64_t> shape) {
    return arena.array_from(bytes, type, std::move(shape), false);
  }
  isentrope_array out(isentrope_dtype type, std::vector<std::int64_t> shape) {
    return arena.array_from(bytes, type, std::move(shape), true);
  }
  std::vector<std::int64_t> rows() const { return {s.batch, s.heads, s.queries}; }
  std::vector<std::int64_t> output() const { return {s.batch, s.heads, s.queries, s.value_dim}; }

  isentrope_forward_call forward();
  isentrope_backward_call backward(const isentrope_forward_call& call);
};

isentrope_forward_call CallArrays::forward() {
  const isentrope_dtype type =
      bytes.one_of<isentrope_dtype>({ISENTROPE_F32, ISENTROPE_BF16, ISENTROPE_F16});
  isentrope_forward_call call{};
  call.struct_size =
      bytes.byte() % 16 == 1 ? static_cast<std::size_t>(number_from(bytes)) & 255 : sizeof call;
  call.q = in(type, {s.batch, s.heads, s.queries, s.dim});
  call.k = in(type, {s.batch, s.kv_heads, s.keys, s.dim});
  call.v = in(type, {s.batch, s.kv_heads, s.keys, s.value_dim});
  if (bytes.byte() % 4 == 1) {
    call.block_table = in(ISENTROPE_I32, {s.batch, 2});
    call.paged_keys = number_from(bytes);
    if (call.block_table.data != nullptr && bytes.flag()) std::memset(call.block_table.data, 0, 8);
  }
  call.output = out(ISENTROPE_F32, output());
  statistics.struct_size = sizeof statistics;
  statistics.lse = out(ISENTROPE_F32, rows());
  statistics.entropy = out(ISENTROPE_F32, rows());
  statistics.collision = out(ISENTROPE_F32, rows());
  statistics.variance = out(ISENTROPE_F32, rows());
  statistics.support = out(ISENTROPE_I64, rows());
  call.statistics = &statistics;
  return call;
}

isentrope_backward_call CallArrays::backward(const isentrope_forward_call& call) {
  isentrope_backward_call back{};
  back.struct_size = sizeof back;
  back.q = call.q, back.k = call.k, back.v = call.v;
  back.output = call.output, back.statistics = &statistics;
  back.d_output = in(ISENTROPE_F32, output());
  upstream.struct_size = sizeof upstream;
  upstream.entropy = in(ISENTROPE_F32, rows());
  upstream.variance = in(ISENTROPE_F32, rows());
  back.d_statistics = &upstream;
  back.dq = out(ISENTROPE_F32, {s.batch, s.heads, s.queries, s.dim});
  back.dk = out(ISENTROPE_F32, {s.batch, s.kv_heads, s.keys, s.dim});
  back.dv = out(ISENTROPE_F32, {s.batch, s.kv_heads, s.keys, s.value_dim});
  back.d_bias = out(ISENTROPE_F32, {s.batch, s.heads, s.queries, s.keys});
  back.d_sinks = out(ISENTROPE_F32, {s.heads});
  return back;
}

void run(ByteSource bytes) {
  Arena arena;
  Shape s{bytes.one_of({1, 2, 0}), bytes.one_of({2, 4, 1}), bytes.one_of({2, 1, 3}),
          bytes.one_of({2, 3, 0}), bytes.one_of({4, 5, 0}), bytes.one_of({2, 3, 0}),
          bytes.one_of({2, 1, 0})};
  isentrope_options* options = isentrope_options_create();
  set_options(bytes, arena, s, options);
  CallArrays arrays{bytes, arena, s};
  const isentrope_forward_call call = arrays.forward();
  const isentrope_status status = isentrope_forward(options, &call);
  expect_message(status);
  const auto &of = arrays.statistics, &upstream = arrays.upstream;
  require(
      status != ISENTROPE_OK || call.struct_size != sizeof call ||
          arena.are_apart({call.q, call.k, call.v, call.block_table},
                          {call.output, of.lse, of.entropy, of.collision, of.variance, of.support}),
      "what is written by a forward pass overlaps");
  const isentrope_backward_call back = arrays.backward(call);
  const isentrope_status backward = isentrope_backward(options, &back);
  expect_message(backward);
  require(
      backward != ISENTROPE_OK ||
          arena.are_apart({back.q, back.k, back.v, back.output, back.d_output, of.lse, of.entropy,
                           of.collision, of.variance, upstream.entropy, upstream.variance},
                          {back.dq, back.dk, back.dv, back.d_bias, back.d_sinks}),
      "what is written by a backward pass overlaps");
  isentrope_options_destroy(options);
}

}  // namespace
}  // namespace isentrope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size <= 256) isentrope::fuzz::run({data, size});
  return 0;
}
