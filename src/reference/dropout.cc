#include "src/reference/dropout.h"

#include <array>
#include <cmath>

namespace isentrope::reference {
namespace {

// Philox4x32-10 as its authors define it. It shares no code with the kernels' generator.
using Counter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

Counter round_of(const Counter& x, const PhiloxKey& key) {
  const std::uint64_t left = std::uint64_t{0xD2511F53} * x[0];
  const std::uint64_t right = std::uint64_t{0xCD9E8D57} * x[2];
  const auto upper = [](std::uint64_t product) {
    return static_cast<std::uint32_t>(product >> 32);
  };
  const auto lower = [](std::uint64_t product) { return static_cast<std::uint32_t>(product); };
  return {upper(right) ^ x[1] ^ key[0], lower(right), upper(left) ^ x[3] ^ key[1], lower(left)};
}

Counter philox4x32_10(Counter x, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    x = round_of(x, key);
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return x;
}

}  // namespace

double dropout_factor(const AttentionOptions& options, std::int64_t batch, std::int64_t head,
                      std::int64_t query, std::int64_t key) {
  const double p = static_cast<double>(options.dropout_p);
  if (p == 0) return 1;
  const auto word = [](std::int64_t number) { return static_cast<std::uint32_t>(number); };
  const std::uint64_t seed = options.dropout_seed;
  const std::int64_t position = key + options.mask.key_offset;
  const Counter counter = {word(position / 4), word(query + options.mask.query_offset), word(head),
                           word(batch)};
  const PhiloxKey of_seed = {static_cast<std::uint32_t>(seed),
                             static_cast<std::uint32_t>(seed >> 32)};
  const std::uint32_t bits =
      philox4x32_10(counter, of_seed)[static_cast<std::size_t>(position % 4)];
  return static_cast<double>(bits) < std::nearbyint(p * 0x1p32) ? 0 : 1 / (1 - p);
}

}  // namespace isentrope::reference
