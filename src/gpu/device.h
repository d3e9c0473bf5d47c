// A device's context, the kernels loaded into it and the tables of rules on it.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "isentrope/cuda/attention.h"
#include "src/gpu/driver.h"
#include "src/gpu/manifest.h"

namespace isentrope::cuda {

struct Loaded {
  const Kernel* kernel = nullptr;
  Handle function = nullptr;
};

// A rule's numbers for each length that a row may have, float64 [3, heads, count]; no address if
// the rule does not read that kind of length.
struct RuleTable {
  Address address = 0;
  std::int64_t heads = 1, count = 0;
};

// Makes the device's context current in this thread while it exists.
class Current {
 public:
  explicit Current(Handle context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

class Device::State {
 public:
  State(const std::filesystem::path& kernels, int ordinal);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] Handle context() const { return context_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  // Number of multiprocessors.
  [[nodiscard]] int units() const { return units_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  // Loads each kernel once. The context must be current.
  [[nodiscard]] Loaded find(const Needs& needs);
  // Never freed while the device exists, because a captured graph may read it. capped: the call has
  // a soft-cap, before or after which a rule acts.
  [[nodiscard]] RuleTable table(const ScaleRule& rule, LengthSource source, std::int64_t dim,
                                std::int64_t first, std::int64_t count, bool capped);

  // Memory of the device. The context need not be current. Copies have ended when these return.
  [[nodiscard]] void* allocate(std::size_t bytes) const;
  void free(void* data) const noexcept;
  void write(void* to, const void* from, std::size_t bytes) const;
  void read(void* to, const void* from, std::size_t bytes) const;

 private:
  [[nodiscard]] Loaded loaded(const Kernel& kernel);

  Manifest manifest_;
  int ordinal_, device_ = 0, units_ = 0;
  Handle context_ = nullptr;
  Manifest::Choice choice_;
  std::mutex mutex_;
  std::map<std::string, Loaded> found_;  // by text_of(needs)
  std::map<const Kernel*, Handle> modules_;
  std::map<std::string, RuleTable> tables_;
};

}  // namespace isentrope::cuda
