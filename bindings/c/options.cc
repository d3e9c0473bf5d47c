#include "bindings/c/options.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "isentrope/error.h"
#include "src/call/arguments.h"

namespace isentrope::c_api {
namespace {

// A fixed buffer, because storing the message must not fail.
thread_local char last_error[4096];

void keep(const char* message) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", message);
}

struct ElementType {
  const char* name;
  std::uintptr_t size;
};

ElementType element_type(isentrope_dtype type) {
  constexpr std::array kTypes = {
      ElementType{"none", 1}, ElementType{"F32", 4}, ElementType{"BF16", 2}, ElementType{"F16", 2},
      ElementType{"U8", 1},   ElementType{"I32", 4}, ElementType{"I64", 8},  ElementType{"I8", 1}};
  return type >= 0 && type < static_cast<isentrope_dtype>(kTypes.size())
             ? kTypes[static_cast<std::size_t>(type)]
             : ElementType{"no type of Isentrope", 1};
}

}  // namespace

isentrope_status guarded(const std::function<void()>& body) noexcept {
  try {
    body();
    return ISENTROPE_OK;
  } catch (const Error& error) {
    keep(error.what());
    return ISENTROPE_BAD_ARGUMENT;
  } catch (const std::bad_alloc&) {
    keep("[isentrope] memory must suffice for the call; got less");
    return ISENTROPE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep(error.what());
  } catch (...) {
    keep("[isentrope] an unknown exception");
  }
  return ISENTROPE_FAILED;
}

void fail(const std::string& function, const std::string& name, const std::string& required,
          const std::string& got) {
  throw Error("[" + function + "] " + name + " must " + required + "; got " + got);
}

bool is_given(const isentrope_array& array) {
  return array.data != nullptr || array.dtype != 0 || array.rank != 0;
}

void check_array(const char* function, const char* name, const isentrope_array& array,
                 isentrope_dtype type, std::int32_t rank) {
  if (array.dtype != type)
    fail(function, name, std::string("be ") + element_type(type).name,
         element_type(array.dtype).name);
  if (array.rank != rank) {
    fail(function, name, "have rank " + std::to_string(rank), std::to_string(array.rank));
  }
  const std::uintptr_t size = element_type(type).size,
                       misaligned = reinterpret_cast<std::uintptr_t>(array.data) % size;
  if (misaligned != 0) {
    fail(function, name, "be aligned to " + std::to_string(size) + " bytes",
         "an address " + std::to_string(misaligned) + " past a multiple");
  }
  if (array.data != nullptr) return;
  for (std::int32_t axis = 0; axis < rank; ++axis) {
    if (array.extents[axis] == 0) return;
  }
  fail(function, name, "have data", "a null pointer");
}

Tensor tensor_of(const char* function, const char* name, const isentrope_array& array) {
  if (!is_given(array)) return {};
  Tensor tensor;
  switch (array.dtype) {
    case ISENTROPE_F32:
      tensor.type = DType::f32;
      break;
    case ISENTROPE_BF16:
      tensor.type = DType::bf16;
      break;
    case ISENTROPE_F16:
      tensor.type = DType::f16;
      break;
    case ISENTROPE_I8:  // rejected by the validator unless supported
      tensor.type = DType::i8;
      break;
    default:
      fail(function, name, "be F32, BF16 or F16", element_type(array.dtype).name);
  }
  check_array(function, name, array, array.dtype, 4);
  tensor.data = array.data;
  std::memcpy(tensor.extents.data(), array.extents, sizeof array.extents);
  std::memcpy(tensor.strides.data(), array.strides, sizeof array.strides);
  return tensor;
}

}  // namespace isentrope::c_api

using namespace isentrope;  // NOLINT: the C interface follows, name by name
using namespace isentrope::c_api;

namespace {

// Returns the caller's array as a member of the options; nothing if it is not given.
template <typename Array>
Array array_as(const char* function, const char* name, const isentrope_array& array) {
  if constexpr (std::is_same_v<Array, ConstTensor>) {
    return tensor_of(function, name, array);
  } else {
    using T = std::remove_pointer_t<decltype(Array::data)>;
    return view_of<T, std::tuple_size_v<decltype(Array::extents)>>(function, name, array);
  }
}

// Calls assign(name, member) for the argument of that name, if it is of a kind that assign takes.
template <typename Assign>
void set_argument(const char* function, isentrope_options* options, const char* name,
                  const Assign& assign) {
  const std::string_view wanted = &required(function, "name", name);
  std::string names;
  bool found = false;
  for_each_host_argument(required(function, "options", options).options,
                         [&]<typename Member>(const char* known, Member& member) {
                           if constexpr (std::is_invocable_v<Assign, const char*, Member&>) {
                             names += (names.empty() ? "" : ", ") + std::string(known);
                             if (wanted != known) return;
                             assign(known, member);
                             found = true;
                           }
                         });
  if (!found) fail(function, "name", "be one of " + names, '"' + std::string(wanted) + '"');
}

// Tasks of one job. The thread that waits for all tasks rethrows the first exception of a task,
// because an exception must neither unwind the caller's C code nor end a thread.
class Job {
 public:
  explicit Job(const std::function<void(std::int64_t)>& body) : body_(body) {}

  void run(std::int64_t index) noexcept {
    try {
      body_(index);
    } catch (...) {
      if (!failed_.exchange(true)) first_ = std::current_exception();
    }
    ran_.fetch_add(1);
  }

  void finish(std::int64_t tasks) const {
    if (first_) std::rethrow_exception(first_);
    // Missing tasks would silently leave results unwritten.
    if (ran_ != tasks) {
      throw std::runtime_error("[parallel_for] every task must run once; got " +
                               std::to_string(ran_.load()) + " of " + std::to_string(tasks));
    }
  }

 private:
  const std::function<void(std::int64_t)>& body_;
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> ran_ = 0;
  std::exception_ptr first_;
};

ParallelFor through_c(isentrope_parallel_for parallel_for, void* user) {
  return [parallel_for, user](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    Job job(body);
    parallel_for(
        user, tasks, [](void* task, std::int64_t index) { static_cast<Job*>(task)->run(index); },
        &job);
    job.finish(tasks);
  };
}

}  // namespace

const char* isentrope_last_error(void) { return last_error; }

isentrope_array isentrope_array_contiguous(void* data, isentrope_dtype dtype, int32_t rank,
                                           const int64_t* extents) {
  isentrope_array array{data, dtype, extents == nullptr ? -1 : rank, {}, {}};
  std::uint64_t stride = 1;  // may overflow; the validator rejects such extents
  for (std::int32_t axis = std::min(array.rank, 4) - 1; axis >= 0; --axis) {
    array.extents[axis] = extents[axis];
    array.strides[axis] = static_cast<std::int64_t>(stride);
    stride *= static_cast<std::uint64_t>(extents[axis]);
  }
  return array;
}

isentrope_options* isentrope_options_create(void) {
  isentrope_options* options = nullptr;
  guarded([&] { options = new isentrope_options; });
  return options;
}

void isentrope_options_destroy(isentrope_options* options) { delete options; }

isentrope_status isentrope_options_set_rule(isentrope_options* options, const char* text) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_options_set_rule";
    required(kFunction, "options", options).options.rule =
        ScaleRule::parse(&required(kFunction, "text", text));
  });
}

isentrope_status isentrope_options_set_causal(isentrope_options* options, isentrope_causal causal) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_options_set_causal";
    if (causal < ISENTROPE_CAUSAL_NONE || causal > ISENTROPE_CAUSAL_BOTTOM_RIGHT) {
      fail(kFunction, "causal", "be one of the three ISENTROPE_CAUSAL", std::to_string(causal));
    }
    required(kFunction, "options", options).options.mask.causal = static_cast<Causal>(causal);
  });
}

isentrope_status isentrope_options_set_integer(isentrope_options* options, const char* name,
                                               int64_t value) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_options_set_integer";
    set_argument(kFunction, options, name,
                 [&]<typename Member>(const char* known, Member& member)
                   requires(std::is_same_v<Member, std::int64_t> || std::is_same_v<Member, bool>)
                 {
                   if constexpr (std::is_same_v<Member, bool>) {
                     if (value != 0 && value != 1)
                       fail(kFunction, known, "be 0 or 1", std::to_string(value));
                   }
                   member = static_cast<Member>(value);
                 });
  });
}

isentrope_status isentrope_options_set_array(isentrope_options* options, const char* name,
                                             const isentrope_array* array) {
  return guarded([&] {
    constexpr const char* kFunction = "isentrope_options_set_array";
    const isentrope_array given = array == nullptr ? isentrope_array{} : *array;
    set_argument(
        kFunction, options, name,
        [&]<typename Array>(const char* known, Array& member)
          requires requires { member.strides; }
        { member = array_as<Array>(kFunction, known, given); });
  });
}

isentrope_status isentrope_options_set_soft_cap(isentrope_options* options, float soft_cap) {
  return guarded([&] {
    required("isentrope_options_set_soft_cap", "options", options).options.soft_cap = soft_cap;
  });
}

isentrope_status isentrope_options_set_dropout(isentrope_options* options, float p, uint64_t seed) {
  return guarded([&] {
    AttentionOptions& to = required("isentrope_options_set_dropout", "options", options).options;
    to.dropout_p = p;
    to.dropout_seed = seed;
  });
}

isentrope_status isentrope_options_set_parallel_for(isentrope_options* options,
                                                    isentrope_parallel_for parallel_for,
                                                    void* user) {
  return guarded([&] {
    required("isentrope_options_set_parallel_for", "options", options).options.parallel_for =
        parallel_for == nullptr ? ParallelFor{} : through_c(parallel_for, user);
  });
}
