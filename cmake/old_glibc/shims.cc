// Functions that current headers and GCC's libraries need and glibc 2.28 lacks. They are hidden, so
// that they serve only the library or program that links them.
#include <sys/random.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>

#pragma GCC visibility push(hidden)
extern "C" {

// Whether atomics may be skipped; in glibc since 2.32.
char __libc_single_threaded = 0;

// In glibc since 2.36; std::random_device needs it.
std::uint32_t arc4random() noexcept {
  std::uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}

// Functions of their own since 2.33. Before, they were these, with the version of the struct.
int __xstat(int version, const char* path, struct stat* status)
    __attribute__((visibility("default")));
int __lxstat(int version, const char* path, struct stat* status)
    __attribute__((visibility("default")));
int __fxstat(int version, int descriptor, struct stat* status)
    __attribute__((visibility("default")));

#ifdef __x86_64__
constexpr int kVersion = 1;
#else
constexpr int kVersion = 0;
#endif

int stat(const char* path, struct stat* status) noexcept { return __xstat(kVersion, path, status); }
int lstat(const char* path, struct stat* status) noexcept {
  return __lxstat(kVersion, path, status);
}
int fstat(int descriptor, struct stat* status) noexcept {
  return __fxstat(kVersion, descriptor, status);
}
int fstat64(int descriptor, struct stat64* status) noexcept {
  return __fxstat(kVersion, descriptor, reinterpret_cast<struct stat*>(status));
}

}  // extern "C"
