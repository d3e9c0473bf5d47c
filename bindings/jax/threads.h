// Runs the library's tasks on XLA's threads.
#pragma once

#include "isentrope/parallel.h"
#include "xla/ffi/api/ffi.h"

namespace isentrope::jax {

// The pool must outlive the result. Without a pool in the call's context: the library's own.
[[nodiscard]] ParallelFor on_threads_of(xla::ffi::ThreadPool& pool);

}  // namespace isentrope::jax
