#include "tools/lab/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "isentrope/error.h"
#include "src/files/writing.h"

namespace isentrope::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "isentrope.lock";

bool locked(int file, int how) { return flock(file, how | LOCK_NB) == 0; }

[[noreturn]] void refuse_as_used(const fs::path& path) {
  throw Error(fmt::format("[output] {} is in use: another isentrope extrapolate trains there",
                          path.parent_path().string()));
}

// Whether the path still refers to the file, which its last holder may have removed meanwhile.
bool leads_to(const fs::path& path, int file) {
  struct stat at_path, opened;
  return stat(path.c_str(), &at_path) == 0 && fstat(file, &opened) == 0 &&
         at_path.st_ino == opened.st_ino && at_path.st_dev == opened.st_dev;
}

// Returns whether the folder, or the one that will hold it, is writable.
bool writable(const fs::path& folder) {
  std::error_code error;
  fs::path existing = fs::absolute(folder);
  while (!fs::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  return fs::is_directory(existing, error) && access(existing.c_str(), W_OK | X_OK) == 0;
}

bool holds_models(const fs::path& folder) {
  std::error_code error;
  return std::ranges::any_of(fs::directory_iterator(folder, error),
                             [](const fs::directory_entry& entry) {
                               const fs::path kind = entry.path().extension();
                               return kind == ".safetensors" || kind == ".json";
                             });
}

std::string name_of(const ModelRule& rule, std::uint64_t seed) {
  std::string name = rule.text();
  std::erase(name, ')');
  std::ranges::replace_if(name, [](char c) { return c == '(' || c == ',' || c == '/'; }, '-');
  return fmt::format("{}-seed{}", name, seed);
}

[[noreturn]] void refuse(const fs::path& folder) {
  throw Error(
      fmt::format("[output] a folder that can be written is needed; got {}", folder.string()));
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder)
    : path_(folder / kLock), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0) {
    throw Error(
        fmt::format("[output] {} cannot be written: {}", path_.string(), std::strerror(errno)));
  }
  if (locked(file_, LOCK_EX) && leads_to(path_, file_)) return;
  ::close(file_);
  refuse_as_used(path_);
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(file_);
}

void FolderLock::require_free(const fs::path& folder) {
  const fs::path path = folder / kLock;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const bool is_free = locked(file, LOCK_SH);
  ::close(file);
  if (!is_free) refuse_as_used(path);
}

RunFolder::RunFolder(fs::path root, Existing existing)
    : root_(std::move(root)), existing_(existing) {
  if (!writable(root_)) refuse(root_);
  FolderLock::require_free(root_);
  look();
}

void RunFolder::look() {
  const bool under_way = holds_models(checkpoints());
  if (existing_ == Existing::refuse && (under_way || fs::exists(result()))) {
    throw Error(
        fmt::format("[output] {} holds a {} run: add --resume to go on with it, or --overwrite to "
                    "put this one in its place",
                    root_.string(), under_way ? "started" : "finished"));
  }
  saved_ = existing_ == Existing::resume && !under_way && holds_models(models()) ? models()
                                                                                 : checkpoints();
}

void RunFolder::open() {
  std::error_code error;
  command::make_folders(root_, error);
  if (error) refuse(root_);
  lock_.emplace(root_);
  look();  // another run may have started or ended
  if (existing_ == Existing::overwrite) {
    fs::remove_all(checkpoints(), error);
    fs::remove_all(models(), error);
    fs::remove(result(), error);
    fs::remove(report(), error);
  }
  if (saved_ == models()) {
    fs::remove_all(checkpoints(), error);  // holds no model
    fs::rename(models(), checkpoints(), error);
  }
  if (!error) command::make_folders(checkpoints(), error);
  if (error) refuse(root_);
  saved_ = checkpoints();
}

fs::path RunFolder::checkpoint(const ModelRule& rule, std::uint64_t seed) const {
  return saved_ / (name_of(rule, seed) + ".safetensors");
}

fs::path RunFolder::record(const ModelRule& rule, std::uint64_t seed) const {
  return saved_ / (name_of(rule, seed) + ".json");
}

void RunFolder::finish() {
  fs::remove_all(models());
  fs::rename(checkpoints(), models());
  saved_ = models();
  lock_.reset();
}

}  // namespace isentrope::lab
