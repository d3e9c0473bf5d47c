#include "tools/check/data.h"

#include <algorithm>
#include <limits>
#include <random>

#include "isentrope/quantize.h"

namespace isentrope::check {
namespace {

std::vector<float> normal_floats(std::int64_t count, double magnitude, DType type,
                                 std::mt19937& random) {
  std::normal_distribution<double> normal(0, magnitude);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = rounded_to(type, static_cast<float>(normal(random)));
  return values;
}

// Returns 0, sorted random cuts, rows.
std::vector<std::int64_t> random_starts(std::int64_t documents, std::int64_t rows,
                                        std::mt19937& random) {
  std::vector<std::int64_t> starts{0, rows};
  for (std::int64_t i = 1; i < documents; ++i) {
    starts.push_back(std::uniform_int_distribution<std::int64_t>(0, rows)(random));
  }
  std::sort(starts.begin(), starts.end());
  return starts;
}

View<const std::int64_t, 1> view_of(const std::vector<std::int64_t>& values) {
  if (values.empty()) return {};
  return contiguous_view<const std::int64_t, 1>(values.data(),
                                                {static_cast<std::int64_t>(values.size())});
}

}  // namespace

float rounded_to(DType type, float x) {
  if (type == DType::bf16) return to_float(from_float<BFloat16>(x));
  if (type == DType::f16) return to_float(from_float<Float16>(x));
  return x;
}

std::vector<std::uint16_t> bits16_of(DType type, const std::vector<float>& values) {
  std::vector<std::uint16_t> bits16;
  if (type == DType::f32) return bits16;
  for (const float x : values)
    bits16.push_back(type == DType::bf16 ? from_float<BFloat16>(x).bits
                                         : from_float<Float16>(x).bits);
  return bits16;
}

void Data::make_special() {
  std::mt19937 random(problem.seed + 333);
  const auto row_length = [](const std::vector<float>& values, std::int64_t rows) {
    return rows > 0 ? values.size() / static_cast<std::size_t>(rows) : 0;
  };
  // Makes ties: every fourth key equals the first.
  const std::size_t dim = row_length(k, problem.key_batches() * problem.kv_heads * problem.keys);
  for (std::size_t at = 4 * dim; dim > 0 && at + dim <= k.size(); at += 4 * dim) {
    std::copy_n(k.begin(), dim, k.begin() + static_cast<std::ptrdiff_t>(at));
  }
  // One kind in each problem: a denormal times Inf is Inf in one precision and NaN in another.
  static const std::vector<std::vector<float>> kPalettes = {
      {0.0f, -0.0f, 1e-40f, -1e-40f, 6e-6f, -6e-8f, 6e4f, -6e4f},
      {std::numeric_limits<float>::quiet_NaN()},
      {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}};
  const auto& palette = kPalettes[problem.seed % kPalettes.size()];
  const std::size_t most = palette.size() > 2 ? 64 : 2;
  for (auto* values : {&q, &k, &v}) {
    const DType type = values == &q ? problem.type : type_of_keys(problem);
    if (values->empty()) continue;
    for (std::size_t i = random() % (most + 1); i > 0; --i) {
      (*values)[random() % values->size()] = rounded_to(type, palette[random() % palette.size()]);
    }
  }
}

Data::Data(const Problem& p) : problem(p) {
  std::mt19937 random(p.seed);
  q = normal_floats(p.batch * p.heads * p.queries * p.dim, p.magnitude, p.type, random);
  k = normal_floats(p.key_batches() * p.kv_heads * p.keys * p.dim, 1, type_of_keys(p), random);
  v = normal_floats(p.key_batches() * p.kv_heads * p.keys * p.value_dim, 1, type_of_keys(p),
                    random);
  std::mt19937 of_rows(p.seed + 555);
  row_weights = normal_floats(p.batch * p.heads * p.queries, 1, DType::f32, of_rows);
  for (float& weight : row_weights) {
    if (of_rows() % 4 == 0) weight = 0;
  }
  for (std::size_t i = 0; i < row_weights.size() * kChosenKeys; ++i)
    chosen_keys.push_back(static_cast<std::int64_t>(of_rows() % (p.keys + 2)) - 1);
  if (p.special) make_special();
  make_mask();
  make_bias();
  refresh();
}

void Data::make_mask() {
  const Problem& p = problem;
  std::mt19937 random(p.seed + 77);
  const std::int64_t pairs = p.batch * p.heads * p.queries * p.keys;
  const auto draw_up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (std::int64_t batch = 0; batch < p.key_batches(); ++batch) {
    if (p.left_padding) key_begin_.push_back(p.key_offset + draw_up_to(p.keys / 2));
    if (p.right_padding) key_end_.push_back(p.key_offset + p.keys - draw_up_to(p.keys / 2));
  }
  if (p.documents > 0) {
    cu_seqlens_q_ = random_starts(p.documents, p.queries, random);
    cu_seqlens_k_ = random_starts(p.documents, p.keys, random);
  }
  if (p.admitted) {
    for (std::int64_t i = 0; i < pairs; ++i) admitted_.push_back(random() % 4 != 0);
    // Some rows must see nothing.
    if (pairs > 0 && p.queries > 2)
      std::fill_n(admitted_.begin() + p.keys, p.keys, std::uint8_t{0});
  }
  if (p.bias) {
    bias_ = normal_floats(pairs, 1, p.bias_type, random);
    for (float& value : bias_) {
      if (random() % 8 == 0) value = -std::numeric_limits<float>::infinity();
    }
  }
  if (p.sink) sink_ = normal_floats(p.heads, 1, DType::f32, random);
  if (p.lambda_table) {
    lambda_ = normal_floats(p.batch * p.heads * p.queries, 0.2, DType::f32, random);
  }
  for (std::size_t i = 0; i < kMaskWords.size(); ++i) {
    const std::int64_t most = p.*kMaskWords[i].number;
    if (kMaskWords[i].list == nullptr || most == 0) continue;
    for (std::int64_t batch = 0; batch < p.key_batches(); ++batch)
      lists_[i].push_back(batch == 0 ? most : draw_up_to(most));
  }
  if (p.page_size > 0) {
    const std::int64_t pages = (p.keys + p.page_size - 1) / p.page_size;
    page_table_.reserve(1);  // the view of an empty table needs an address
    for (std::int64_t page = 0; page < p.key_batches() * pages; ++page) {
      page_table_.push_back(static_cast<std::int32_t>(page));
    }
    std::shuffle(page_table_.begin(), page_table_.end(), random);
  }
  if (p.sequences > 0) {
    cu_seq_q_ = random_starts(p.sequences, p.queries, random);
    for (std::int64_t i = 0; i < p.sequences; ++i)
      seqused_k_.push_back(i == 0 ? p.keys : draw_up_to(p.keys));
  }
}

// Rows of an additive mask see a run of keys: all of it, one without a few keys, or one with a
// finite number. Every fourth row of a head sees a causal run.
void Data::make_bias() {
  const Problem& p = problem;
  std::mt19937 random(p.seed + 99);
  if (p.additive_mask && p.keys > 0) {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    std::fill(bias_.begin(), bias_.end(), kHidden);
    const auto below = [&](std::int64_t count) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    };
    for (std::int64_t row = 0; row < p.batch * p.heads * p.queries; ++row) {
      float* const of_row = bias_.data() + row * p.keys;
      const std::int64_t begin = row % 4 == 3 ? 0 : below(p.keys);
      const std::int64_t end =
          row % 4 == 3 ? std::min(p.keys, row % p.queries + 1) : begin + 1 + below(p.keys - begin);
      std::fill(of_row + begin, of_row + end, 0.0f);
      const std::int64_t place = begin + below(end - begin);
      if (row % 4 == 1) std::fill(of_row + place, of_row + std::min(end, place + 70), kHidden);
      if (row % 4 == 2) of_row[place] = 0.5f;
    }
  }
  bias16_ = bits16_of(p.bias_type, bias_);
  bias_.reserve(1);  // the view of an empty bias needs an address
  bias16_.reserve(1);
  if (p.slopes) slopes_ = normal_floats(p.heads, 1, DType::f32, random);
}

View<const std::int64_t, 4> Data::chosen() const {
  const Problem& p = problem;
  return contiguous_view<const std::int64_t, 4>(chosen_keys.data(),
                                                {p.batch, p.heads, p.queries, kChosenKeys});
}

void Data::refresh() {
  const Problem& p = problem;
  q64_.assign(q.begin(), q.end());
  k64_.assign(k.begin(), k.end());
  v64_.assign(v.begin(), v.end());
  const auto paged = [&](const std::vector<float>& values, std::int64_t columns) {
    const std::int64_t pages = (p.keys + p.page_size - 1) / p.page_size;
    std::vector<float> cache(
        page_table_.size() * static_cast<std::size_t>(p.kv_heads * p.page_size * columns),
        std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t row = 0; row < p.key_batches() * p.kv_heads * p.keys; ++row) {
      const std::int64_t key = row % p.keys, head = row / p.keys % p.kv_heads,
                         batch = row / p.keys / p.kv_heads;
      // Beyond a sequence's own keys the cache holds NaN.
      if (p.sequences > 0 && key >= seqused_k_[static_cast<std::size_t>(batch)]) continue;
      const std::int64_t page =
          page_table_[static_cast<std::size_t>(batch * pages + key / p.page_size)];
      const std::int64_t to =
          ((page * p.kv_heads + head) * p.page_size + key % p.page_size) * columns;
      std::copy_n(values.begin() + row * columns, columns, cache.begin() + to);
    }
    return cache;
  };
  if (p.page_size > 0) {
    paged_k_ = paged(k, p.dim);
    paged_v_ = paged(v, p.value_dim);
  }
  q16_ = bits16_of(p.type, q);
  k16_ = bits16_of(type_of_keys(p), p.page_size > 0 ? paged_k_ : k);
  v16_ = bits16_of(type_of_keys(p), p.page_size > 0 ? paged_v_ : v);
  if (p.cache_group > 0) quantize_cache();
}

void Data::quantize_cache() {
  const auto in_8_bits = [&](const ConstTensor& rows, Codes& to) {
    std::array<std::int64_t, 4> shape = rows.extents;
    const auto numbers = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
    to.codes.resize(numbers);
    to.scales.resize(numbers / static_cast<std::size_t>(problem.cache_group));
    const auto codes = contiguous_view<std::int8_t, 4>(to.codes.data(), shape);
    shape[3] /= problem.cache_group;
    quantize(rows, codes, contiguous_view<float, 4>(to.scales.data(), shape));
  };
  const AttentionInput in = input_as_drawn();
  in_8_bits(in.k, k8_);
  in_8_bits(in.v, v8_);
}

ConstTensor Data::tensor(const std::vector<float>& floats, const std::vector<std::uint16_t>& bits16,
                         DType type, const std::array<std::int64_t, 4>& shape) const {
  const auto view = contiguous_view<const float, 4>(floats.data(), shape);
  if (type == DType::f32) return view;
  return {bits16.data(), type, shape, view.strides};
}

AttentionInput Data::input() const {
  AttentionInput in = input_as_drawn();
  const auto replace = [&](const Codes& by, ConstTensor& tensor, View<const float, 4>& scales) {
    std::array<std::int64_t, 4> shape = tensor.extents;
    tensor = contiguous_view<const std::int8_t, 4>(by.codes.data(), shape);
    shape[3] /= problem.cache_group;
    scales = contiguous_view<const float, 4>(by.scales.data(), shape);
  };
  if (problem.cache_group > 0) {
    replace(k8_, in.k, in.k_scale);
    replace(v8_, in.v, in.v_scale);
  }
  return in;
}

AttentionInput Data::input_as_drawn() const {
  const Problem& p = problem;
  AttentionInput in;
  const DType type = type_of_keys(p);
  in.q = tensor(q, q16_, p.type, {p.batch, p.heads, p.queries, p.dim});
  if (p.page_size == 0) {
    in.k = tensor(k, k16_, type, {p.batch, p.kv_heads, p.keys, p.dim});
    in.v = tensor(v, v16_, type, {p.batch, p.kv_heads, p.keys, p.value_dim});
    return in;
  }
  const auto pages = static_cast<std::int64_t>(page_table_.size());
  in.k = tensor(paged_k_, k16_, type, {pages, p.kv_heads, p.page_size, p.dim});
  in.v = tensor(paged_v_, v16_, type, {pages, p.kv_heads, p.page_size, p.value_dim});
  in.pages.block_table = contiguous_view<const std::int32_t, 2>(
      page_table_.data(), {p.key_batches(), (p.keys + p.page_size - 1) / p.page_size});
  in.pages.keys = p.keys;
  in.pages.seqused_k = view_of(seqused_k_);
  in.pages.cu_seq_q = view_of(cu_seq_q_);
  return in;
}

reference::Input Data::reference_input() const {
  const Problem& p = problem;
  const std::int64_t batches = p.key_batches();
  return {.q = contiguous_view<const double, 4>(q64_.data(), {p.batch, p.heads, p.queries, p.dim}),
          .k = contiguous_view<const double, 4>(k64_.data(), {batches, p.kv_heads, p.keys, p.dim}),
          .v = contiguous_view<const double, 4>(v64_.data(),
                                                {batches, p.kv_heads, p.keys, p.value_dim}),
          .seqused_k = view_of(seqused_k_),
          .cu_seq_q = view_of(cu_seq_q_)};
}

AttentionOptions Data::options(const ParallelFor& parallel_for) const {
  const Problem& p = problem;
  AttentionOptions options{.rule = p.rule,
                           .soft_cap = p.soft_cap,
                           .dropout_p = static_cast<float>(p.dropout),
                           .dropout_seed = p.dropout_seed,
                           .parallel_for = parallel_for};
  options.mask = {.causal = p.causal,
                  .window_left = p.window_left,
                  .window_right = p.window_right,
                  .query_offset = p.query_offset,
                  .key_offset = p.key_offset,
                  .key_begin = view_of(key_begin_),
                  .key_end = view_of(key_end_),
                  .cu_seqlens_q = view_of(cu_seqlens_q_),
                  .cu_seqlens_k = view_of(cu_seqlens_k_)};
  for (std::size_t i = 0; i < kMaskWords.size(); ++i) {
    const MaskWord& word = kMaskWords[i];
    if (word.part != nullptr) options.mask.*word.part = p.*word.number;
    if (word.list != nullptr) options.mask.*word.list = view_of(lists_[i]);
  }
  const std::array<std::int64_t, 4> pairs = {p.batch, p.heads, p.queries, p.keys};
  if (p.admitted)
    options.attn_mask = contiguous_view<const std::uint8_t, 4>(admitted_.data(), pairs);
  if (p.bias) options.bias = tensor(bias_, bias16_, p.bias_type, pairs);
  options.bias_hides = p.bias_hides;
  if (p.slopes) options.bias_slopes = contiguous_view<const float, 1>(slopes_.data(), {p.heads});
  if (p.sink) options.sinks = contiguous_view<const float, 1>(sink_.data(), {p.heads});
  if (p.lambda_table) {
    options.lambda = contiguous_view<const float, 3>(lambda_.data(), {p.batch, p.heads, p.queries});
  }
  return options;
}

reference::GradientInput random_gradient(const Problem& p) {
  std::mt19937 random(p.seed + 1000);
  const std::int64_t rows = p.batch * p.heads * p.queries;
  const auto draw = [&](std::int64_t count, DType type) {
    const std::vector<float> values = normal_floats(count, 1, type, random);
    return std::vector<double>(values.begin(), values.end());
  };
  reference::GradientInput gradient{.d_output = draw(rows * p.value_dim, p.type)};
  for_each_statistic(
      [&](const Statistic& statistic, std::vector<double>& values) {
        if (statistic.differentiable()) values = draw(rows, DType::f32);
        // Distances are as large as rows are long; unscaled, their gradient would hide all others.
        if (statistic.name == "distance") {
          for (double& value : values)
            value = static_cast<float>(value / static_cast<double>(p.keys + 1));
        }
        if (!asks_for(p, statistic.name)) values.clear();
      },
      gradient.d_statistics);
  return gradient;
}

}  // namespace isentrope::check
