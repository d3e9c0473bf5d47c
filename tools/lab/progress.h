// Progress on a stream: one line that rewrites itself on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace isentrope::lab {

class Progress {
 public:
  enum class Style { silent, lines, terminal };

  // Returns terminal if the stream is one, lines otherwise.
  static Style style_of(std::FILE* stream);

  Progress(std::FILE* stream, Style style) : stream_(stream), style_(style) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { end_line(); }

  void say(const std::string& text);
  // Prints a line that the next one replaces; only on a terminal.
  void now(const std::string& text);

  // Sets the steps of all models together, for the estimate of the time left.
  void expect_steps(std::int64_t steps) { steps_left_ = steps; }

  // Reports a step. Lines without a terminal: the first and last step, and every ten seconds.
  void step(const std::string& model, std::int64_t step, std::int64_t steps, double loss,
            double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool due(bool first_or_last);
  void end_line();

  std::FILE* stream_;
  Style style_;
  bool open_line_ = false;
  std::int64_t steps_left_ = 0;
  double seconds_per_step_ = 0;  // smoothed
  Clock::time_point shown_{};
};

// Returns "0:07", "12:34", "1:02:03".
[[nodiscard]] std::string clock_text(double seconds);

}  // namespace isentrope::lab
