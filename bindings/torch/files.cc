// Writes files for Python's commands as the project's programs do, through ctypes: paths are bytes,
// an operator's text is not. Functions return an error valid until the thread's next call, or null.

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string_view>

#include "src/files/writing.h"

#define ISENTROPE_EXPORT extern "C" __attribute__((visibility("default")))

namespace isentrope {
namespace {

template <typename Body>
const char* error_of(const Body& body) noexcept {
  thread_local char message[8192];  // fixed, because storing it must not fail
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    std::snprintf(message, sizeof message, "%s", error.what());
    return message;
  }
}

}  // namespace

ISENTROPE_EXPORT const char* isentrope_write_file(const char* path, const char* text,
                                                  std::size_t size) {
  return error_of([&] { command::write_file(path, std::string_view(text, size)); });
}

ISENTROPE_EXPORT const char* isentrope_require_writable(const char* path) {
  return error_of([&] { command::require_writable(path); });
}

}  // namespace isentrope
