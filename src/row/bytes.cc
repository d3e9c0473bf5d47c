// The byte form of a state (attention_state.h). It is read and written one number at a time, so
// that byte order and struct layout do not show.

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "isentrope/attention_state.h"
#include "isentrope/error.h"
#include "isentrope/statistics.h"

namespace isentrope {
namespace {

constexpr char kMagic[] = "ISENSTAT";
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kHeader = 48;

// Count of f64 numbers per row: the statistics of its keys, in the order of their list.
constexpr std::uint32_t kNumbers = [] {
  std::uint32_t count = 0;
  for_each_statistic([&](const Statistic& statistic) { count += statistic.of_row != nullptr; });
  return count;
}();
constexpr std::size_t kRow = 8 * (std::size_t{kNumbers} + 1);

// Calls visit(number) for each number of the row.
template <typename Row, typename Visit>
void for_each_number(Row& row, const Visit& visit) {
  for_each_statistic([&](const Statistic& statistic) {
    if (statistic.of_row) visit(row.*statistic.of_row);
  });
}

[[noreturn]] void fail(const std::string& required, const std::string& got) {
  throw Error("[state_from_bytes] " + required + "; got " + got);
}

template <typename Word>
void put(std::vector<std::byte>& to, Word word) {
  for (std::size_t i = 0; i < sizeof(Word); ++i)
    to.push_back(static_cast<std::byte>(word >> 8 * i & 0xff));
}

template <typename Word>
Word take(std::span<const std::byte>& from) {
  Word word = 0;
  for (std::size_t i = 0; i < sizeof(Word); ++i) word |= std::to_integer<Word>(from[i]) << 8 * i;
  from = from.subspan(sizeof(Word));
  return word;
}

double take_double(std::span<const std::byte>& from) {
  return std::bit_cast<double>(take<std::uint64_t>(from));
}

std::array<std::int64_t, 4> take_shape(std::span<const std::byte>& from) {
  if (from.size() < kHeader)
    fail("the bytes must hold a header of 48", std::to_string(from.size()));
  if (std::memcmp(from.data(), kMagic, 8) != 0)
    fail("the bytes must begin with ISENSTAT", "something else");
  from = from.subspan(8);
  const auto version = take<std::uint32_t>(from), numbers = take<std::uint32_t>(from);
  if (version != kVersion) {
    fail("the version must be " + std::to_string(kVersion), std::to_string(version));
  }
  if (numbers != kNumbers) {
    fail("a row must have " + std::to_string(kNumbers) + " numbers", std::to_string(numbers));
  }
  std::array<std::int64_t, 4> shape;
  for (std::int64_t& extent : shape) extent = static_cast<std::int64_t>(take<std::uint64_t>(from));
  return shape;
}

// Bytes after the header. Each product is checked against the limits first, so that none overflows.
std::size_t payload_of(const std::array<std::int64_t, 4>& shape) {
  constexpr double kMost = 0x1p48;
  double rows = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) rows *= static_cast<double>(shape[axis]);
  const double bytes = rows * (static_cast<double>(kRow) + 4 * static_cast<double>(shape[3]));
  for (const std::int64_t extent : shape) {
    if (extent < 0) fail("no extent must be negative", std::to_string(extent));
  }
  if (!(bytes <= kMost)) fail("the shape must need at most 2^48 bytes", std::to_string(bytes));
  return static_cast<std::size_t>(bytes);
}

RowStats take_row(std::span<const std::byte>& from) {
  RowStats stats;
  for_each_number(stats, [&](double& number) { number = take_double(from); });
  stats.support = static_cast<std::int64_t>(take<std::uint64_t>(from));
  return stats;
}

void check_row(const RowStats& stats, std::span<const float> output, std::size_t row) {
  const std::string in_row = " in row " + std::to_string(row);
  if (stats.support < 0)
    fail("the support must not be negative", std::to_string(stats.support) + in_row);
  if (stats.lse == std::numeric_limits<double>::infinity())
    fail("lse must not be +inf", "that" + in_row);
  const RowStats empty_row;
  bool neutral = true;
  for_each_statistic([&](const Statistic& statistic) {
    if (!statistic.of_row) return;
    const double number = stats.*statistic.of_row, of_no_key = empty_row.*statistic.of_row;
    neutral = neutral && number == of_no_key;
    // A statistic that is 0 for an empty row is never negative; the others are logits.
    if (of_no_key == 0 && (number < 0 || std::isinf(number))) {
      fail(std::string(statistic.name) + " must be finite and not negative",
           std::to_string(number) + in_row);
    }
  });
  if (stats.support > 0) return;
  for (const float value : output) neutral = neutral && value == 0;
  if (!neutral) fail("a row without keys must be empty", "statistics or an output" + in_row);
}

}  // namespace

std::vector<std::byte> to_bytes(const AttentionState& state) {
  std::vector<std::byte> bytes;
  bytes.reserve(kHeader + state.statistics.size() * kRow + state.output.size() * 4);
  for (std::size_t i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(kMagic[i]));
  put(bytes, kVersion);
  put(bytes, kNumbers);
  for (const std::int64_t extent : state.shape) put(bytes, static_cast<std::uint64_t>(extent));
  for (const RowStats& stats : state.statistics) {
    for_each_number(stats, [&](double x) { put(bytes, std::bit_cast<std::uint64_t>(x)); });
    put(bytes, static_cast<std::uint64_t>(stats.support));
  }
  for (const float value : state.output) put(bytes, std::bit_cast<std::uint32_t>(value));
  return bytes;
}

AttentionState state_from_bytes(std::span<const std::byte> bytes) {
  const std::array<std::int64_t, 4> shape = take_shape(bytes);
  // Checked before any allocation, so that a few bytes cannot request much memory.
  if (const std::size_t payload = payload_of(shape); bytes.size() != payload) {
    fail("the shape takes " + std::to_string(payload) + " bytes after the header",
         std::to_string(bytes.size()));
  }
  AttentionState state(shape);
  for (RowStats& stats : state.statistics) stats = take_row(bytes);
  for (float& value : state.output) value = std::bit_cast<float>(take<std::uint32_t>(bytes));
  const auto columns = static_cast<std::size_t>(state.value_dim());
  for (std::size_t row = 0; row < state.statistics.size(); ++row) {
    check_row(state.statistics[row], std::span(state.output).subspan(row * columns, columns), row);
  }
  return state;
}

}  // namespace isentrope
