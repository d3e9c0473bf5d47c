#include "bindings/ggml/head_log.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "isentrope/error.h"
#include "isentrope/key_statistics.h"

namespace isentrope::ggml {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Mean of numbers; NaN without any.
struct Mean {
  double sum = 0;
  std::int64_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  [[nodiscard]] double value() const { return count == 0 ? kNone : sum / double(count); }
};

// Appends `"name":value,`. Not through a stream, because a locale may write commas in numbers.
void add_member(std::string& line, const char* name, double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::general, 7);
  line += std::string("\"") + name + "\":";
  line += std::isfinite(value) ? std::string(text.data(), end.ptr) : "null";
  line += ',';
}

// Returns the number at the end of a name such as cache_k_l12, or NaN.
double layer_of(const std::string& module) {
  const std::size_t begin = module.find_last_not_of("0123456789") + 1;
  double layer = kNone;
  std::from_chars(module.data() + begin, module.data() + module.size(), layer);
  return layer;
}

std::string escaped(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    if (static_cast<unsigned char>(c) >= ' ') text += c;
  }
  return text;
}

// Appends the means over the rows of a head. bias: the call's, -inf for keys that a row does not
// see.
void add_head(std::string& line, std::int64_t head, const ConstTensor& bias,
              const CallStatistics& statistics) {
  const auto [batches, heads, queries] = statistics.rows;
  Mean keys, entropy, first_key;
  double max_logit = -std::numeric_limits<double>::infinity();
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t query = 0; query < queries; ++query) {
      const auto row = static_cast<std::size_t>((batch * heads + head) * queries + query);
      if (statistics.support[row] == 0) continue;
      keys.add(double(statistics.support[row]));
      entropy.add(statistics.entropy[row]);
      max_logit = std::fmax(max_logit, statistics.max_logit[row]);
      if (!bias || bias(batch, head, query, 0) > -std::numeric_limits<float>::infinity())
        first_key.add(statistics.first_key[row]);
    }
  }
  add_member(line, "tokens", double(batches * queries));
  add_member(line, "keys", keys.value());
  add_member(line, "entropy", entropy.value());
  add_member(line, "max_logit", max_logit);
  add_member(line, "first_key_weight", first_key.value());
}

}  // namespace

CallStatistics::CallStatistics(const AttentionInput& input)
    : rows{input.q.extents[0], input.q.extents[1], input.q.extents[2]} {
  const auto count = static_cast<std::size_t>(rows[0] * rows[1] * rows[2]);
  for (auto* values : {&lse, &entropy, &max_logit, &first_key}) values->resize(count);
  support.resize(count);
}

RowStatistics CallStatistics::views() {
  return {.lse = contiguous_view(lse.data(), rows),
          .entropy = contiguous_view(entropy.data(), rows),
          .max_logit = contiguous_view(max_logit.data(), rows),
          .support = contiguous_view(support.data(), rows)};
}

void CallStatistics::compute_first_key(const AttentionInput& input,
                                       const AttentionOptions& options) {
  const std::array<std::int64_t, 4> one_key{rows[0], rows[1], rows[2], 1};
  const std::int64_t first = 0;
  weights_at(input, options, contiguous_view<const float>(lse.data(), rows), {&first, one_key, {}},
             {.weights = contiguous_view(first_key.data(), one_key)});
}

HeadLog::HeadLog(std::string path) : path_(std::move(path)), file_(path_, std::ios::app) {
  if (!file_) {
    throw Error("[ISENTROPE_STATISTICS] it must name a file that can be written; got " + path_ +
                ": " + std::strerror(errno));
  }
}

void HeadLog::append(const std::string& module, const ConstTensor& bias,
                     const CallStatistics& statistics) {
  const std::scoped_lock lock(mutex_);
  const std::int64_t step = ++steps_[module];
  std::string lines;
  for (std::int64_t head = 0; head < statistics.rows[1]; ++head) {
    lines += "{\"module\":\"" + escaped(module) + "\",";
    add_member(lines, "layer", layer_of(module));
    add_member(lines, "head", double(head));
    add_member(lines, "step", double(step));
    add_head(lines, head, bias, statistics);
    lines.back() = '}';
    lines += '\n';
  }
  file_ << lines << std::flush;
  if (!file_) throw Error("[ISENTROPE_STATISTICS] " + path_ + " must take lines; got an error");
}

}  // namespace isentrope::ggml
