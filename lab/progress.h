// Progress of the experiment on a stream: one line that rewrites itself on a terminal, plain lines
// elsewhere. Any thread may tell of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace isentrope::lab {

class Progress {
 public:
  enum class Style { silent, lines, terminal };

  // Terminal when the stream is one, lines otherwise.
  static Style style_of(std::FILE* stream);

  Progress(std::FILE* stream, Style style) : stream_(stream), style_(style) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  virtual ~Progress() { end_line(); }

  // A line that stays.
  virtual void say(const std::string& text);
  // A line that a later one may replace on a terminal; not shown elsewhere.
  virtual void now(const std::string& text);

  // Steps of all models together, and how many models train at a time: for the time left.
  void expect_steps(std::int64_t steps, std::int64_t at_a_time = 1) {
    steps_left_ = steps;
    at_a_time_ = at_a_time;
  }

  // After a step of a model, or after the last of as many as were not told of. Elsewhere than on a
  // terminal a line appears at the first and the last step and every ten seconds between.
  virtual void step(const std::string& model, std::int64_t step, std::int64_t steps, double loss,
                    double seconds, std::int64_t taken = 1);

 private:
  using Clock = std::chrono::steady_clock;

  // With the mutex held.
  [[nodiscard]] bool due(bool first_or_last);
  void end_line();
  void put(const std::string& text);
  void replace(const std::string& text);

  std::FILE* stream_;
  Style style_;
  bool open_line_ = false;
  std::mutex mutex_;
  std::int64_t steps_left_ = 0, at_a_time_ = 1;
  double seconds_per_step_ = 0;  // smoothed
  Clock::time_point shown_{};
};

// "0:07", "12:34", "1:02:03".
[[nodiscard]] std::string clock_text(double seconds);

}  // namespace isentrope::lab
