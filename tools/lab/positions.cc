#include "tools/lab/positions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace isentrope::lab {
namespace {

constexpr double kRotaryBase = 10000;

// Expands numbers per head and distance, [heads, 2 length - 1], to [heads, length, length]. The
// distance key - query increases from 1 - length.
at::Tensor by_distance(const at::Tensor& numbers, std::int64_t length) {
  return numbers.unfold(-1, length, 1).flip({-2});
}

// Returns [kT5Buckets, 2 length - 1]: 1 if a distance is in a bucket. A product with it is cheaper
// than an index, whose gradient torch sums entry by entry.
at::Tensor bucket_of_distance(const ModelConfig& config, std::int64_t length) {
  const at::Tensor member = at::zeros({kT5Buckets, 2 * length - 1});
  auto at = member.accessor<float, 2>();
  for (std::int64_t distance = 1 - length; distance < length; ++distance) {
    at[t5_bucket(distance, config.objective == Objective::causal, config.train_length)]
      [distance + length - 1] = 1;
  }
  return member;
}

}  // namespace

at::Tensor rotary_table(std::int64_t length, std::int64_t dim) {
  const at::Tensor frequency =
      at::pow(kRotaryBase, at::arange(0, dim, 2, at::kDouble) / -static_cast<double>(dim));
  const at::Tensor angle = at::outer(at::arange(length, at::kDouble), frequency);
  return at::polar(at::ones_like(angle), angle).to(at::kComplexFloat).unsqueeze(1);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& table) {
  const std::int64_t turning = 2 * table.size(-1);
  const auto turn = [&](const at::Tensor& part) {
    return at::view_as_real(at::view_as_complex(part.unflatten(-1, {-1, 2})) * table).flatten(-2);
  };
  if (turning == x.size(-1)) return turn(x);
  return at::cat({turn(x.narrow(-1, 0, turning)), x.narrow(-1, turning, x.size(-1) - turning)}, -1);
}

std::int64_t rotary_dim(const ModelConfig& config) {
  if (config.positions == Positions::rope) return config.head_dim();
  if (config.positions == Positions::rope_partial) {
    return std::max<std::int64_t>(config.head_dim() / 8 * 2, 2);
  }
  return 0;
}

std::int64_t t5_bucket(std::int64_t distance, bool causal, std::int64_t largest) {
  const std::int64_t buckets = causal ? kT5Buckets : kT5Buckets / 2;
  const std::int64_t side = !causal && distance > 0 ? buckets : 0;
  const std::int64_t far = causal ? std::max<std::int64_t>(-distance, 0) : std::abs(distance);
  const std::int64_t exact = buckets / 2;
  if (far < exact) return side + far;
  if (far >= largest) return side + buckets - 1;
  const double share = std::log(static_cast<double>(far) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(largest) / static_cast<double>(exact));
  const auto more = static_cast<std::int64_t>(share * static_cast<double>(buckets - exact));
  return side + std::min(exact + more, buckets - 1);
}

std::vector<double> alibi_slopes(std::int64_t heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<double> slopes;
  for (std::int64_t h = 1; h <= power; ++h) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power)));
  }
  for (std::int64_t h = 1; h <= heads - power; ++h) {
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(2 * h - 1) / static_cast<double>(power)));
  }
  return slopes;
}

at::Tensor position_bias(const ModelConfig& config, const at::Tensor& t5_table,
                         std::int64_t length) {
  if (config.positions == Positions::t5) {
    return by_distance(at::matmul(t5_table, bucket_of_distance(config, length)), length)
        .unsqueeze(0);
  }
  if (config.positions == Positions::alibi) {
    const at::Tensor slopes = at::tensor(alibi_slopes(config.heads)).to(at::kFloat);
    const at::Tensor distance = at::arange(1 - length, length).abs().to(at::kFloat);
    return by_distance(-at::outer(slopes, distance), length).unsqueeze(0);
  }
  return {};
}

}  // namespace isentrope::lab
