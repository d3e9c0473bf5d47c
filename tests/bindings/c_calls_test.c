/* Calls of the C interface in many combinations, compared with the definition in double: lengths of 0 and of different sizes,
 * causal masks of both alignments, masks and biases broadcast by strides of 0, layouts, shared heads. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isentrope/isentrope.h"

enum { BATCH = 2, HEADS = 4, MOST_ROWS = 5, MOST_COLUMNS = 4, MOST = BATCH * HEADS * MOST_ROWS * MOST_ROWS };
enum { UPSIDE_DOWN = 16, HEADS_INSIDE = 32, ABSENT = 64 }; /* layouts, combined with a bit for each axis of stride 0 */

static int failures = 0, calls = 0;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "line %d: %s; last error: %s\n", line, what, isentrope_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

static void expect_error(isentrope_status status, const char* text, int line) {
  expect(status == ISENTROPE_BAD_ARGUMENT, text, line);
  expect(strstr(isentrope_last_error(), text) != NULL, text, line);
}
#define EXPECT_ERROR(status, text) expect_error(status, text, __LINE__)

typedef struct {
  int64_t kv_heads, queries, keys, dim, value_dim;
  int32_t causal;
  int64_t window_left, window_right;
  isentrope_array q, k, v, mask, bias, d_output; /* mask and bias without data: absent */
} Problem;

/* Contents of all arrays. */
static float numbers[8 * MOST];
static uint8_t flags[MOST];

static void fill(void) {
  uint32_t state = 1;
  size_t i;
  for (i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers[i] = (float)(state >> 8) / 8388608.0f - 1;
  }
  for (i = 0; i < MOST; ++i) flags[i] = numbers[i] > -0.3f ? 255 : 0; /* any byte but 0 lets a row see a key */
}

static isentrope_array array(void* data, isentrope_dtype dtype, int64_t outer, int64_t heads, int64_t rows, int64_t columns, int how) {
  const int64_t shape[4] = {outer, heads, rows, columns};
  isentrope_array a = isentrope_array_contiguous(data, dtype, 4, shape);
  int axis;
  if (how & HEADS_INSIDE) a.strides[1] = columns, a.strides[2] = heads * columns;
  for (axis = 0; axis < 4; ++axis) {
    if (how >> axis & 1) a.strides[axis] = 0;
    if (how & UPSIDE_DOWN && shape[axis] > 0) {
      const int64_t size = dtype == ISENTROPE_F32 ? 4 : 1;
      a.data = (char*)a.data + a.strides[axis] * (shape[axis] - 1) * size;
      a.strides[axis] = -a.strides[axis];
    }
  }
  return a;
}

static int64_t place(const isentrope_array* a, int64_t b, int64_t h, int64_t i, int64_t j) {
  return a->strides[0] * b + a->strides[1] * h + a->strides[2] * i + a->strides[3] * j;
}

static double number(const isentrope_array* a, int64_t b, int64_t h, int64_t i, int64_t j) {
  return ((const float*)a->data)[place(a, b, h, i, j)];
}

static int sees(const Problem* p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t position = p->causal == ISENTROPE_CAUSAL_TOP_LEFT ? i : i + p->keys - p->queries;
  if (p->causal != ISENTROPE_CAUSAL_NONE && j > position) return 0;
  if (p->window_left >= 0 && j < position - p->window_left) return 0;
  if (p->window_right >= 0 && j > position + p->window_right) return 0;
  return p->mask.data == NULL || ((const uint8_t*)p->mask.data)[place(&p->mask, b, h, i, j)] != 0;
}

typedef struct {
  double weights[MOST_ROWS], lse, entropy;
  int64_t support;
} Row;

static Row row_of(const Problem* p, int64_t b, int64_t h, int64_t i) {
  const int64_t kv = h / (HEADS / p->kv_heads);
  double logits[MOST_ROWS], sum = 0;
  Row row = {{0}, -HUGE_VAL, 0, 0};
  int64_t j, c;
  for (j = 0; j < p->keys; ++j) {
    double score = 0;
    if (!sees(p, b, h, i, j)) continue;
    for (c = 0; c < p->dim; ++c) score += number(&p->q, b, h, i, c) * number(&p->k, b, kv, j, c);
    logits[j] = score / sqrt((double)p->dim) + (p->bias.data ? number(&p->bias, b, h, i, j) : 0);
    sum += exp(logits[j]);
    ++row.support;
  }
  if (row.support == 0) return row;
  row.lse = log(sum);
  for (j = 0; j < p->keys; ++j) {
    if (!sees(p, b, h, i, j)) continue;
    row.weights[j] = exp(logits[j] - row.lse);
    row.entropy -= row.weights[j] * log(row.weights[j]);
  }
  return row;
}

/* Results of the library, and gradients by the definition. */
static float output[MOST], lse[MOST], entropy[MOST], dq[MOST], dk[MOST], dv[MOST], d_bias[MOST];
static int64_t support[MOST];
static double want_dq[MOST], want_dk[MOST], want_dv[MOST];

static void add_gradients(const Problem* p, const Row* row, int64_t b, int64_t h, int64_t i) {
  const int64_t kv = h / (HEADS / p->kv_heads), at = (b * HEADS + h) * p->queries + i;
  double d_weight[MOST_ROWS], mean = 0;
  int64_t j, c;
  for (j = 0; j < p->keys; ++j) {
    d_weight[j] = 0;
    for (c = 0; c < p->value_dim; ++c) d_weight[j] += number(&p->d_output, b, h, i, c) * number(&p->v, b, kv, j, c);
    mean += row->weights[j] * d_weight[j];
  }
  for (j = 0; j < p->keys; ++j) {
    const double d_logit = row->weights[j] * (d_weight[j] - mean), d_score = d_logit / sqrt((double)p->dim);
    const int64_t key = (b * p->kv_heads + kv) * p->keys + j;
    for (c = 0; c < p->dim; ++c) {
      want_dq[at * p->dim + c] += d_score * number(&p->k, b, kv, j, c);
      want_dk[key * p->dim + c] += d_score * number(&p->q, b, h, i, c);
    }
    for (c = 0; c < p->value_dim; ++c) want_dv[key * p->value_dim + c] += row->weights[j] * number(&p->d_output, b, h, i, c);
    if (p->bias.data) EXPECT(fabs(d_bias[at * p->keys + j] - d_logit) < 1e-5);
  }
}

static void expect_all(const float* got, const double* want, int64_t count, int line) {
  int64_t i;
  for (i = 0; i < count; ++i) expect(fabs(got[i] - want[i]) < 1e-5 * (1 + fabs(want[i])), "a gradient differs", line);
}

static void expect_definition(const Problem* p) {
  int64_t b, h, i, j, c;
  memset(want_dq, 0, sizeof want_dq), memset(want_dk, 0, sizeof want_dk), memset(want_dv, 0, sizeof want_dv);
  for (b = 0; b < BATCH; ++b) {
    for (h = 0; h < HEADS; ++h) {
      for (i = 0; i < p->queries; ++i) {
        const int64_t at = (b * HEADS + h) * p->queries + i, kv = h / (HEADS / p->kv_heads);
        const Row row = row_of(p, b, h, i);
        EXPECT(support[at] == row.support);
        EXPECT(row.support == 0 ? lse[at] == -HUGE_VALF : fabs(lse[at] - row.lse) < 1e-5);
        EXPECT(row.support == 0 ? entropy[at] == 0 : fabs(entropy[at] - row.entropy) < 1e-5);
        for (c = 0; c < p->value_dim; ++c) {
          double sum = 0;
          for (j = 0; j < p->keys; ++j) sum += row.weights[j] * number(&p->v, b, kv, j, c);
          EXPECT(row.support == 0 ? output[at * p->value_dim + c] == 0 : fabs(output[at * p->value_dim + c] - sum) < 1e-5);
        }
        add_gradients(p, &row, b, h, i);
      }
    }
  }
  expect_all(dq, want_dq, BATCH * HEADS * p->queries * p->dim, __LINE__);
  expect_all(dk, want_dk, BATCH * p->kv_heads * p->keys * p->dim, __LINE__);
  expect_all(dv, want_dv, BATCH * p->kv_heads * p->keys * p->value_dim, __LINE__);
}

static isentrope_options* options_of(const Problem* p) {
  isentrope_options* options = isentrope_options_create();
  EXPECT(isentrope_options_set_causal(options, p->causal) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "window_left", p->window_left) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "window_right", p->window_right) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "attn_mask", &p->mask) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "bias", &p->bias) == ISENTROPE_OK);
  return options;
}

static isentrope_statistics statistics_of(const Problem* p) {
  const int64_t rows[3] = {BATCH, HEADS, p->queries};
  isentrope_statistics s;
  memset(&s, 0, sizeof s);
  s.struct_size = sizeof s;
  s.lse = isentrope_array_contiguous(lse, ISENTROPE_F32, 3, rows);
  s.entropy = isentrope_array_contiguous(entropy, ISENTROPE_F32, 3, rows);
  s.support = isentrope_array_contiguous(support, ISENTROPE_I64, 3, rows);
  return s;
}

static isentrope_forward_call forward_of(const Problem* p, const isentrope_statistics* statistics) {
  isentrope_forward_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.q = p->q, call.k = p->k, call.v = p->v, call.statistics = statistics;
  call.output = array(output, ISENTROPE_F32, BATCH, HEADS, p->queries, p->value_dim, 0);
  return call;
}

static isentrope_backward_call backward_of(const Problem* p, const isentrope_forward_call* forward) {
  isentrope_backward_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.q = p->q, call.k = p->k, call.v = p->v, call.output = forward->output, call.statistics = forward->statistics;
  call.d_output = p->d_output;
  call.dq = array(dq, ISENTROPE_F32, BATCH, HEADS, p->queries, p->dim, 0);
  call.dk = array(dk, ISENTROPE_F32, BATCH, p->kv_heads, p->keys, p->dim, 0);
  call.dv = array(dv, ISENTROPE_F32, BATCH, p->kv_heads, p->keys, p->value_dim, 0);
  if (p->bias.data) call.d_bias = array(d_bias, ISENTROPE_F32, BATCH, HEADS, p->queries, p->keys, 0);
  return call;
}

static void run(const Problem* p) {
  const int before = failures;
  isentrope_options* options = options_of(p);
  const isentrope_statistics statistics = statistics_of(p);
  const isentrope_forward_call forward = forward_of(p, &statistics);
  const isentrope_backward_call backward = backward_of(p, &forward);
  ++calls;
  EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK);
  EXPECT(isentrope_backward(options, &backward) == ISENTROPE_OK);
  if (failures == before) expect_definition(p);
  if (failures != before) {
    fprintf(stderr, "  kv_heads %d, queries %d, keys %d, value_dim %d, causal %d, window %d %d\n", (int)p->kv_heads, (int)p->queries,
            (int)p->keys, (int)p->value_dim, (int)p->causal, (int)p->window_left, (int)p->window_right);
  }
  isentrope_options_destroy(options);
}

/* how: layout of q, k, v and d_output. mask, bias: their layouts, or ABSENT. */
static Problem problem(int64_t kv_heads, int64_t queries, int64_t keys, int64_t value_dim, int how, int mask, int bias) {
  Problem p;
  memset(&p, 0, sizeof p);
  p.kv_heads = kv_heads, p.queries = queries, p.keys = keys, p.dim = MOST_COLUMNS, p.value_dim = value_dim;
  p.window_left = p.window_right = -1;
  p.q = array(numbers, ISENTROPE_F32, BATCH, HEADS, queries, p.dim, how);
  p.k = array(numbers + MOST, ISENTROPE_F32, BATCH, kv_heads, keys, p.dim, how);
  p.v = array(numbers + 2 * MOST, ISENTROPE_F32, BATCH, kv_heads, keys, value_dim, how);
  p.d_output = array(numbers + 3 * MOST, ISENTROPE_F32, BATCH, HEADS, queries, value_dim, how);
  if (mask != ABSENT) p.mask = array(flags, ISENTROPE_U8, BATCH, HEADS, queries, keys, mask);
  if (bias != ABSENT) p.bias = array(numbers + 4 * MOST, ISENTROPE_F32, BATCH, HEADS, queries, keys, bias);
  return p;
}

static void test_lengths_layouts_and_heads(void) {
  static const int64_t kLengths[] = {0, 1, 3, 5}, kWindows[][2] = {{-1, -1}, {1, -1}, {0, 1}, {2, 0}};
  int queries, keys, kv_heads, layout, window;
  for (queries = 0; queries < 4; ++queries) {
    for (keys = 0; keys < 4; ++keys) {
      for (kv_heads = 1; kv_heads <= HEADS; kv_heads *= 2) {
        for (layout = 0; layout < 20; ++layout) { /* every choice of axes with stride 0, then the other layouts */
          const int how = layout < 16 ? layout : (layout - 16) * UPSIDE_DOWN;
          Problem p = problem(kv_heads, kLengths[queries], kLengths[keys], layout % 3 == 0 ? MOST_COLUMNS : 1, how, ABSENT, ABSENT);
          for (window = 0; window < 4; ++window) {
            p.window_left = kWindows[window][0], p.window_right = kWindows[window][1];
            for (p.causal = ISENTROPE_CAUSAL_NONE; p.causal <= ISENTROPE_CAUSAL_BOTTOM_RIGHT; ++p.causal) run(&p);
          }
        }
      }
    }
  }
}

static void test_masks_and_biases_of_every_broadcast_shape(void) {
  int mask, bias;
  for (mask = 0; mask <= 16; ++mask) {
    for (bias = 0; bias <= 16; ++bias) {
      Problem p = problem(2, 3, 5, MOST_COLUMNS, 0, mask == 16 ? ABSENT : mask, bias == 16 ? ABSENT : bias);
      for (p.causal = ISENTROPE_CAUSAL_NONE; p.causal <= ISENTROPE_CAUSAL_BOTTOM_RIGHT; ++p.causal) run(&p);
    }
  }
}

/* NaN in an array reaches its own row only. Options that are NaN or infinite are refused. */
static void test_nan_and_infinity(void) {
  static float scales[MOST], whole[MOST];
  static const float kNotFinite[] = {NAN, INFINITY, -INFINITY};
  const Problem p = problem(2, 3, 5, MOST_COLUMNS, 0, ABSENT, ABSENT);
  isentrope_options* options = options_of(&p);
  const isentrope_statistics statistics = statistics_of(&p);
  const isentrope_forward_call call = forward_of(&p, &statistics);
  const int64_t rows[3] = {BATCH, HEADS, 3}, row = 3 * MOST_COLUMNS, all = BATCH * HEADS * 3 * MOST_COLUMNS;
  const isentrope_array lambda = isentrope_array_contiguous(scales, ISENTROPE_F32, 3, rows);
  int64_t i;
  int kind;
  for (i = 0; i < BATCH * HEADS * 3; ++i) scales[i] = 0.5f;
  EXPECT(isentrope_options_set_array(options, "lambda", &lambda) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  memcpy(whole, output, sizeof whole);
  scales[3] = NAN;
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  for (i = 0; i < all; ++i) EXPECT(i >= row && i < row + MOST_COLUMNS ? isnan(output[i]) : output[i] == whole[i]);
  EXPECT(isentrope_options_set_array(options, "lambda", NULL) == ISENTROPE_OK);
  for (kind = 0; kind < 3; ++kind) {
    EXPECT(isentrope_options_set_soft_cap(options, kNotFinite[kind]) == ISENTROPE_OK);
    EXPECT_ERROR(isentrope_forward(options, &call), "[attention] soft_cap must be finite and not negative; got ");
    EXPECT(isentrope_options_set_soft_cap(options, 0) == ISENTROPE_OK);
    EXPECT(isentrope_options_set_dropout(options, kNotFinite[kind], 1) == ISENTROPE_OK);
    EXPECT_ERROR(isentrope_forward(options, &call), "[attention] dropout_p must be at least 0 and below 1; got ");
    EXPECT(isentrope_options_set_dropout(options, 0, 1) == ISENTROPE_OK);
  }
  EXPECT(isentrope_options_set_rule(options, "constant(scale=nan)") == ISENTROPE_BAD_ARGUMENT);
  EXPECT(isentrope_options_set_rule(options, "ssmax(s=inf)") == ISENTROPE_BAD_ARGUMENT);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  isentrope_options_destroy(options);
}

/* struct_size of a longer struct of a later version is accepted while its new fields are empty. Any other size is refused. */
static void test_sizes_of_structs(void) {
  static union {
    isentrope_statistics statistics;
    unsigned char bytes[sizeof(isentrope_statistics) + 16];
  } newer;
  const Problem p = problem(2, 3, 5, MOST_COLUMNS, 0, ABSENT, ABSENT);
  const size_t right = sizeof(isentrope_statistics), wrong[] = {0, 1, 8, right - 1, right - 8, 65537, (size_t)-1};
  isentrope_options* options = options_of(&p);
  isentrope_forward_call call = forward_of(&p, &newer.statistics);
  isentrope_backward_call backward = backward_of(&p, &call);
  size_t i;
  newer.statistics = statistics_of(&p);
  for (i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    newer.statistics.struct_size = wrong[i];
    EXPECT_ERROR(isentrope_forward(options, &call), "[isentrope_forward] statistics.struct_size must be the size of the struct, ");
    EXPECT_ERROR(isentrope_backward(options, &backward), "[isentrope_backward] statistics.struct_size must be the size of the struct, ");
  }
  for (i = right; i <= sizeof newer; ++i) { /* also those that are no multiple of a field */
    newer.statistics.struct_size = i;
    EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && isentrope_backward(options, &backward) == ISENTROPE_OK);
    if (i == right) continue;
    newer.bytes[i - 1] = 1;
    EXPECT_ERROR(isentrope_forward(options, &call), "statistics must be 0 past the fields of version ");
    newer.bytes[i - 1] = 0;
  }
  isentrope_options_destroy(options);
}

static void test_wrong_arguments(void) {
  const Problem p = problem(2, 3, 5, MOST_COLUMNS, 0, 0, ABSENT);
  const int64_t shape[4] = {BATCH, HEADS, 3, 5}, row[4] = {1, 1, 1, 5};
  isentrope_options* options = options_of(&p);
  const isentrope_statistics statistics = statistics_of(&p);
  isentrope_forward_call call = forward_of(&p, &statistics);
  isentrope_array mask = isentrope_array_contiguous(flags, ISENTROPE_U8, 4, row);
  EXPECT(isentrope_options_set_array(options, "attn_mask", &mask) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] attn_mask must have shape [2, 4, 3, 5]; got [1, 1, 1, 5]");
  mask = isentrope_array_contiguous(flags, ISENTROPE_U8, 2, shape + 2);
  EXPECT_ERROR(isentrope_options_set_array(options, "attn_mask", &mask), "attn_mask must have rank 4; got 2");
  mask = isentrope_array_contiguous(NULL, ISENTROPE_U8, 4, shape);
  EXPECT_ERROR(isentrope_options_set_array(options, "attn_mask", &mask), "attn_mask must have data; got a null pointer");
  EXPECT(isentrope_options_set_array(options, "attn_mask", NULL) == ISENTROPE_OK);
  call.q = isentrope_array_contiguous(numbers, ISENTROPE_F32, 4, NULL);
  EXPECT_ERROR(isentrope_forward(options, &call), "[isentrope_forward] q must have rank 4; got -1");
  call = forward_of(&p, &statistics);
  call.output = array(numbers, ISENTROPE_F32, BATCH, HEADS, 3, MOST_COLUMNS, 0);
  EXPECT_ERROR(isentrope_forward(options, &call), "output");
  call = forward_of(&p, &statistics);
  call.output.strides[2] = 0;
  EXPECT_ERROR(isentrope_forward(options, &call), "output");
  call = forward_of(&p, NULL);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  call.paged_keys = 5;
  EXPECT_ERROR(isentrope_forward(options, &call), "must be 0 without block_table; got 5");
  EXPECT_ERROR(isentrope_options_set_causal(options, -1), "causal must be one of the three ISENTROPE_CAUSAL; got -1");
  isentrope_options_destroy(options);
}

int main(void) {
  fill();
  test_lengths_layouts_and_heads();
  test_masks_and_biases_of_every_broadcast_shape();
  test_nan_and_infinity();
  test_sizes_of_structs();
  test_wrong_arguments();
  printf("%d calls, %d failures\n", calls, failures);
  return failures != 0;
}
