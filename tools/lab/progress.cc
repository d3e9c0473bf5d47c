#include "tools/lab/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

namespace isentrope::lab {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kTerminalInterval = 100ms;
constexpr std::chrono::milliseconds kLineInterval = 10s;
constexpr double kSmoothing = 0.05;  // weight of the newest step in the speed shown

}  // namespace

Progress::Style Progress::style_of(std::FILE* stream) {
  return isatty(fileno(stream)) != 0 ? Style::terminal : Style::lines;
}

void Progress::step(const std::string& model, std::int64_t step, std::int64_t steps, double loss,
                    double seconds) {
  --steps_left_;
  seconds_per_step_ =
      seconds_per_step_ == 0 ? seconds : std::lerp(seconds_per_step_, seconds, kSmoothing);
  const bool last = step == steps;
  if (!due(step == 1 || last)) return;
  const double left = static_cast<double>(steps_left_) * seconds_per_step_;
  const std::string text =
      fmt::format("{}: step {} of {}, loss {:.3f}, {:.2f} steps/s, {} left", model, step, steps,
                  loss, 1 / seconds_per_step_, clock_text(left));
  if (last || style_ == Style::lines) {
    if (open_line_) now("");
    open_line_ = false;
    say(text);
  } else {
    now(text);
  }
}

void Progress::say(const std::string& text) {
  if (style_ == Style::silent) return;
  end_line();
  fmt::print(stream_, "{}\n", text);
  std::fflush(stream_);
}

void Progress::now(const std::string& text) {
  if (style_ != Style::terminal) return;
  fmt::print(stream_, "\r\033[K{}", text);
  std::fflush(stream_);
  open_line_ = true;
}

bool Progress::due(bool first_or_last) {
  const Clock::time_point time = Clock::now();
  const auto interval = style_ == Style::terminal ? kTerminalInterval : kLineInterval;
  if (!first_or_last && time - shown_ < interval) return false;
  shown_ = time;
  return true;
}

void Progress::end_line() {
  if (open_line_) fmt::print(stream_, "\n");
  open_line_ = false;
}

std::string clock_text(double seconds) {
  const auto total = static_cast<std::int64_t>(std::lround(std::fmax(seconds, 0)));
  const std::int64_t hours = total / 3600, minutes = total / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

}  // namespace isentrope::lab
