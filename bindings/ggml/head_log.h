// HeadLog: statistics of every head of every call, appended to a file as lines of JSON.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "isentrope/attention.h"

namespace isentrope::ggml {

// Statistics [batch, heads, queries] of a call, in memory of its own.
struct CallStatistics {
  std::array<std::int64_t, 3> rows;
  std::vector<float> lse, entropy, max_logit, first_key;
  std::vector<std::int64_t> support;

  explicit CallStatistics(const AttentionInput& input);
  // Returns the views that attention_forward() fills.
  [[nodiscard]] RowStatistics views();
  // Computes the weight of each row's first key, from the lse that attention_forward() filled in.
  void compute_first_key(const AttentionInput& input, const AttentionOptions& options);
};

class HeadLog {
 public:
  // Throws Error if the file cannot be opened.
  explicit HeadLog(std::string path);

  // Appends a line for each head of a computed call with this bias. A mean is over the rows that
  // see a key; a number that no row has is null.
  //
  //   step               number of the module's call in this process, from 1
  //   module, layer      name of the keys' tensor, and the number at its end or null
  //   head, tokens       the head; how many rows it has
  //   keys               mean number of keys that a row sees
  //   entropy            mean, in nats
  //   max_logit          largest
  //   first_key_weight   mean weight of the first key, over the rows that see it
  //
  // Throws Error if the lines cannot be written. May be called from several threads.
  void append(const std::string& module, const ConstTensor& bias, const CallStatistics& statistics);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::mutex mutex_;
  std::string path_;
  std::ofstream file_;
  std::map<std::string, std::int64_t> steps_;  // by module
};

}  // namespace isentrope::ggml
