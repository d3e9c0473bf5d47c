// What headers and GCC's libraries of today ask glibc for, and glibc 2.28 lacks. Hidden, so that it
// serves the library or program that it is linked into and nobody else.
#include <sys/random.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>

#pragma GCC visibility push(hidden)
extern "C" {

// Whether atomics may be skipped; since 2.32.
char __libc_single_threaded = 0;

// Since 2.36; std::random_device asks for it.
std::uint32_t arc4random() noexcept {
  std::uint32_t bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) std::abort();
  return bits;
}

// Since 2.33 they have a symbol each. Before, they were these, with the version of the struct.
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
