// Entry points of the library that Python loads: a handler of XLA for each pass, and two functions.

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/jax/passes.h"
#include "src/call/validate.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace isentrope::jax {
namespace {

std::string_view name_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F64:
      return "float64";
    case ffi::DataType::F32:
      return "float32";
    case ffi::DataType::BF16:
      return "bfloat16";
    case ffi::DataType::F16:
      return "float16";
    case ffi::DataType::S32:
      return "int32";
    case ffi::DataType::PRED:
      return "bool";
    default:
      return "another type";
  }
}

// The tasks of one job. Threads that come after the last task touch nothing but this object, so
// the caller need not wait for them: the pool may be busy with callers that wait.
class Job {
 public:
  Job(std::int64_t tasks, const std::function<void(std::int64_t)>& body)
      : tasks_(tasks), body_(body) {}

  void work() noexcept {
    for (std::int64_t task; (task = next_.fetch_add(1)) < tasks_;) {
      try {
        body_(task);
      } catch (...) {
        if (!failed_.exchange(true)) first_ = std::current_exception();
      }
      if (done_.fetch_add(1) + 1 == tasks_) done_.notify_all();
    }
  }

  void finish() {
    for (std::int64_t done; (done = done_.load()) != tasks_;) done_.wait(done);
    if (first_) std::rethrow_exception(first_);
  }

 private:
  const std::int64_t tasks_;
  const std::function<void(std::int64_t)>& body_;
  std::atomic<std::int64_t> next_ = 0, done_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr first_;
};

// Runs the library's tasks on XLA's threads. The pool must outlive the result. Without a pool in
// the call's context: the library's own.
ParallelFor on_threads_of(xla::ffi::ThreadPool& pool) {
  const std::int64_t threads = pool.num_threads();
  if (threads == 0) return {};
  return [&pool, threads](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    const auto job = std::make_shared<Job>(tasks, body);
    for (std::int64_t helper = 1; helper < std::min(tasks, threads); ++helper)
      pool.Schedule([job] { job->work(); });
    job->work();
    job->finish();
  };
}

Array array_of(const ffi::AnyBuffer& buffer) {
  const auto extents = buffer.dimensions();
  return {name_of(buffer.element_type()), buffer.untyped_data(), {extents.begin(), extents.end()}};
}

template <auto pass, typename Context>
ffi::Error run(const Context& context, std::string_view text, ffi::RemainingArgs arguments,
               ffi::RemainingRets results) noexcept {
  try {
    std::vector<Array> arrays;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      arrays.push_back(array_of(*arguments.get<ffi::AnyBuffer>(i)));
    for (std::size_t i = 0; i < results.size(); ++i)
      arrays.push_back(array_of(**results.get<ffi::AnyBuffer>(i)));
    Call(text, arrays).for_each_part([&](Call& part) { pass(part, context); });
    return ffi::Error::Success();
  } catch (const Error& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted,
            "[attention] memory must suffice for the call; got less"};
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

template <auto pass>
ffi::Error on_threads(ffi::ThreadPool pool, std::string_view text, ffi::RemainingArgs arguments,
                      ffi::RemainingRets results) noexcept {
  return run<pass>(on_threads_of(pool), text, arguments, results);
}

template <auto pass>
ffi::Error on_device(void* stream, std::int32_t ordinal, std::string_view text,
                     ffi::RemainingArgs arguments, ffi::RemainingRets results) noexcept {
  return run<pass>(OnDevice{stream, ordinal}, text, arguments, results);
}

constexpr auto kWithArrays = [](auto binding) {
  return std::move(binding).template Attr<std::string_view>("call").RemainingArgs().RemainingRets();
};
constexpr auto kOnThreads = [] { return kWithArrays(ffi::Ffi::Bind().Ctx<ffi::ThreadPool>()); };
constexpr auto kOnDevice = [] {
  return kWithArrays(ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::DeviceOrdinal>());
};

}  // namespace
}  // namespace isentrope::jax

using namespace isentrope;  // NOLINT: the entry points follow, name by name

extern "C" {

#define ISENTROPE_ENTRY [[gnu::visibility("default")]]

ISENTROPE_ENTRY XLA_FFI_Error* isentrope_jax_forward(XLA_FFI_CallFrame*);
ISENTROPE_ENTRY XLA_FFI_Error* isentrope_jax_backward(XLA_FFI_CallFrame*);
ISENTROPE_ENTRY XLA_FFI_Error* isentrope_jax_tangent(XLA_FFI_CallFrame*);
ISENTROPE_ENTRY XLA_FFI_Error* isentrope_jax_second_order(XLA_FFI_CallFrame*);
ISENTROPE_ENTRY XLA_FFI_Error* isentrope_jax_forward_on_device(XLA_FFI_CallFrame*);
ISENTROPE_ENTRY XLA_FFI_Error* isentrope_jax_backward_on_device(XLA_FFI_CallFrame*);

// Returns what is wrong with a call, or null: the same text as that of a handler, with "shapes" and
// "types" of the arrays. Valid until the thread's next call.
ISENTROPE_ENTRY const char* isentrope_jax_check(const char* text);
// Returns the list of statistics as JSON: name, differentiable, needs.
ISENTROPE_ENTRY const char* isentrope_jax_statistics();

#undef ISENTROPE_ENTRY
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(isentrope_jax_forward, jax::on_threads<jax::forward>,
                              jax::kOnThreads());
XLA_FFI_DEFINE_HANDLER_SYMBOL(isentrope_jax_backward, jax::on_threads<jax::backward>,
                              jax::kOnThreads());
XLA_FFI_DEFINE_HANDLER_SYMBOL(isentrope_jax_tangent, jax::on_threads<jax::tangent>,
                              jax::kOnThreads());
XLA_FFI_DEFINE_HANDLER_SYMBOL(isentrope_jax_second_order, jax::on_threads<jax::second_order>,
                              jax::kOnThreads());
XLA_FFI_DEFINE_HANDLER_SYMBOL(isentrope_jax_forward_on_device,
                              jax::on_device<jax::forward_on_device>, jax::kOnDevice());
XLA_FFI_DEFINE_HANDLER_SYMBOL(isentrope_jax_backward_on_device,
                              jax::on_device<jax::backward_on_device>, jax::kOnDevice());

const char* isentrope_jax_check(const char* text) {
  thread_local std::string message;
  try {
    const nlohmann::json call = nlohmann::json::parse(text);
    std::vector<std::string> types = call["types"];
    std::vector<jax::Array> arrays;
    for (std::size_t i = 0; i < types.size(); ++i)
      arrays.push_back({types[i], nullptr, call["shapes"][i]});
    jax::Call checked(text, arrays);
    validate_input("attention", checked.input(), checked.options());
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

const char* isentrope_jax_statistics() {
  static const std::string text = statistics_json();
  return text.c_str();
}
