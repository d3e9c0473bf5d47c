// Runs isentrope extrapolate on a small text.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/lab_text.h"
#include "tools/lab/safetensors.h"

namespace isentrope::lab {

using nlohmann::json;
using Arguments = std::vector<std::string>;
namespace fs = std::filesystem;

inline Arguments words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline Arguments with(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline bool given(const Arguments& arguments, const std::string& option) {
  return std::ranges::any_of(arguments,
                             [&](const auto& argument) { return argument.starts_with(option); });
}

class Extrapolate : public testing::Test {
 protected:
  // Returns a run of a second: a tiny model on a small text, into out(). The last of repeated
  // options counts.
  Arguments command(const Arguments& more = {}) const {
    Arguments all =
        words("--layers 1 --width 8 --heads 2 --batch 4 --train-length 8 --steps 20 --threads 1");
    all.insert(all.begin(), {ISENTROPE_EXTRAPOLATE, "--output", out().string()});
    if (!given(more, "--lengths")) all.insert(all.end(), {"--lengths", "8,32"});
    if (!given(more, "--corpus")) all.insert(all.end(), {"--corpus", corpus_.string()});
    return with(all, more);
  }

  // Runs it; it must succeed.
  Outcome run(const Arguments& more = {}) const {
    const Outcome outcome = run_command(command(more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }

  fs::path out() const { return folder_ / "out"; }
  fs::path text(const std::string& name, const std::string& content) const {
    return write_file(folder_ / name, content);
  }
  json result() const { return json::parse(read_file(out() / "result.json")); }

  // Expects one line on stderr with `says`, exit status 2, and no file written.
  void expect_refused(const Arguments& more, const std::string& says) const {
    const Outcome outcome = run_command(command(more));
    expect_one_line(outcome, {says});
    EXPECT_EQ(outcome.out, "") << says;
    EXPECT_FALSE(fs::exists(out())) << says;
  }

 private:
  TemporaryFolder folder_;
  fs::path corpus_ = text("corpus.txt", make_text(4000));
};

// Returns the weights of every model in the folder.
inline std::vector<std::pair<std::string, at::Tensor>> weights(const fs::path& folder) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    for (auto& [name, tensor] : load_tensors(file).tensors)
      all.emplace_back(file.filename() / name, tensor);
  }
  return all;
}

inline void expect_same_bits(const fs::path& a, const fs::path& b) {
  const auto x = weights(a), y = weights(b);
  ASSERT_EQ(x.size(), y.size());
  ASSERT_GT(x.size(), 10U);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].first, y[i].first);
    EXPECT_TRUE(x[i].second.equal(y[i].second)) << x[i].first;
  }
}

}  // namespace isentrope::lab
