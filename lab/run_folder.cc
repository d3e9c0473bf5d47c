#include "lab/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "isentrope/error.h"

namespace isentrope::lab {
namespace {

namespace fs = std::filesystem;

// The folder, or what is to hold it, can be written.
bool writable(const fs::path& folder) {
  std::error_code error;
  fs::path existing = fs::absolute(folder);
  while (!fs::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  return fs::is_directory(existing, error) && access(existing.c_str(), W_OK | X_OK) == 0;
}

bool holds_models(const fs::path& folder) {
  std::error_code error;
  return std::ranges::any_of(
      fs::directory_iterator(folder, error),
      [](const fs::directory_entry& entry) { return entry.path().extension() == ".safetensors"; });
}

[[noreturn]] void refuse(const fs::path& folder) {
  throw Error(
      fmt::format("[output] a folder that can be written is needed; got {}", folder.string()));
}

}  // namespace

RunFolder::RunFolder(fs::path root, bool resume) : root_(std::move(root)) {
  if (!writable(root_)) refuse(root_);
  if (holds_models(checkpoints()) && !resume) {
    throw Error(
        fmt::format("[output] {0} holds a run under way: add --resume to go on with it, or remove "
                    "{1} to start over",
                    root_.string(), checkpoints().string()));
  }
  saved_ =
      resume && !holds_models(checkpoints()) && holds_models(models()) ? models() : checkpoints();
}

void RunFolder::open() {
  std::error_code error;
  if (saved_ == models()) {
    fs::remove_all(checkpoints(), error);  // holds no model
    fs::rename(models(), checkpoints(), error);
  }
  if (!error) fs::create_directories(checkpoints(), error);
  if (error) refuse(root_);
  saved_ = checkpoints();
}

fs::path RunFolder::checkpoint(const ScaleRule& rule, std::uint64_t seed) const {
  std::string name = rule.text();
  std::erase(name, ')');
  std::ranges::replace_if(name, [](char c) { return c == '(' || c == ',' || c == '/'; }, '-');
  return saved_ / fmt::format("{}-seed{}.safetensors", name, seed);
}

void RunFolder::finish() {
  fs::remove_all(models());
  fs::rename(checkpoints(), models());
  saved_ = models();
}

}  // namespace isentrope::lab
