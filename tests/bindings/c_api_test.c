/* The C interface, used from C: what it computes, and what it says of every bad argument. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "isentrope/isentrope.h"

enum { HEADS = 2, QUERIES = 3, KEYS = 4, DIM = 2, ROWS = HEADS * QUERIES };

static int failures = 0;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "line %d: %s; last error: %s\n", line, what, isentrope_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

static void expect_error(isentrope_status status, const char* message, int line) {
  expect(status == ISENTROPE_BAD_ARGUMENT, "a bad argument was accepted", line);
  expect(strcmp(isentrope_last_error(), message) == 0, message, line);
}
#define EXPECT_ERROR(status, message) expect_error(status, message, __LINE__)

static float q[ROWS * DIM], k[HEADS * KEYS * DIM], v[HEADS * KEYS * DIM];
static float output[ROWS * DIM], lse[ROWS], entropy[ROWS], collision[ROWS], variance[ROWS];
static float distance[ROWS], max_probability[ROWS], max_logit[ROWS], lambda[ROWS];
static int64_t support[ROWS], alone[2] = {0, QUERIES};

/* Given to every call. */
static isentrope_statistics asked, upstream;

static const int64_t kQueryShape[4] = {1, HEADS, QUERIES, DIM}, kKeyShape[4] = {1, HEADS, KEYS, DIM};
static const int64_t kPairShape[4] = {1, HEADS, QUERIES, KEYS};

static isentrope_array floats(float* data, int rank, const int64_t* shape) {
  return isentrope_array_contiguous(data, ISENTROPE_F32, rank, shape);
}

/* Everything asked for, and every output marked so that a write would show. */
static isentrope_forward_call forward_call(void) {
  isentrope_forward_call call;
  size_t i;
  memset(&call, 0, sizeof call);
  for (i = 0; i < sizeof q / sizeof *q; ++i) q[i] = (float)sin((double)i);
  for (i = 0; i < sizeof k / sizeof *k; ++i) k[i] = (float)cos((double)i);
  for (i = 0; i < sizeof v / sizeof *v; ++i) v[i] = (float)i;
  for (i = 0; i < sizeof output / sizeof *output; ++i) output[i] = -77;
  for (i = 0; i < ROWS; ++i) {
    lse[i] = entropy[i] = collision[i] = variance[i] = distance[i] = max_probability[i] = max_logit[i] =
        lambda[i] = -77;
    support[i] = -77;
  }
  call.struct_size = sizeof call;
  call.q = floats(q, 4, kQueryShape);
  call.k = floats(k, 4, kKeyShape);
  call.v = floats(v, 4, kKeyShape);
  call.output = floats(output, 4, kQueryShape);
  memset(&asked, 0, sizeof asked);
  asked.struct_size = sizeof asked;
  asked.lse = floats(lse, 3, kQueryShape);
  asked.entropy = floats(entropy, 3, kQueryShape);
  asked.collision = floats(collision, 3, kQueryShape);
  asked.max_probability = floats(max_probability, 3, kQueryShape);
  asked.max_logit = floats(max_logit, 3, kQueryShape);
  asked.variance = floats(variance, 3, kQueryShape);
  asked.distance = floats(distance, 3, kQueryShape);
  asked.lambda = floats(lambda, 3, kQueryShape);
  asked.support = isentrope_array_contiguous(support, ISENTROPE_I64, 3, kQueryShape);
  call.statistics = &asked;
  return call;
}

static int outputs_untouched(void) {
  size_t i;
  int touched = 0;
  for (i = 0; i < sizeof output / sizeof *output; ++i) touched |= output[i] != -77;
  for (i = 0; i < ROWS; ++i) {
    touched |= lse[i] != -77 || entropy[i] != -77 || collision[i] != -77 || variance[i] != -77 || distance[i] != -77 ||
               max_probability[i] != -77;
    touched |= max_logit[i] != -77 || lambda[i] != -77 || support[i] != -77;
  }
  return !touched;
}

static void test_forward_agrees_with_its_definition(void) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  int row, j;
  EXPECT(isentrope_options_set_causal(options, ISENTROPE_CAUSAL_BOTTOM_RIGHT) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_rule(options, "entropy_invariant(base=4)") == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  for (row = 0; row < ROWS; ++row) {
    const int head = row / QUERIES, seen = row % QUERIES + 1 + KEYS - QUERIES;
    const double scale = log(seen) / log(4) / sqrt(DIM);
    double sum = 0, h = 0, out = 0, away = 0;
    for (j = 0; j < seen; ++j) {
      const float* key = k + (head * KEYS + j) * DIM;
      sum += exp(scale * (q[row * DIM] * key[0] + q[row * DIM + 1] * key[1]));
    }
    for (j = 0; j < seen; ++j) {
      const float* key = k + (head * KEYS + j) * DIM;
      const double p = exp(scale * (q[row * DIM] * key[0] + q[row * DIM + 1] * key[1])) / sum;
      h -= p * log(p);
      away += p * (seen - 1 - j); /* the last key it sees lies where the row does */
      out += p * v[(head * KEYS + j) * DIM];
    }
    EXPECT(fabs(lse[row] - log(sum)) < 1e-5);
    EXPECT(fabs(entropy[row] - h) < 1e-5);
    EXPECT(fabs(distance[row] - away) < 1e-5);
    EXPECT(fabs(output[row * DIM] - out) < 1e-4);
    EXPECT(fabs(lambda[row] - scale) < 1e-6);
    EXPECT(support[row] == seen);
  }
  isentrope_options_destroy(options);
}

static void in_reverse(void* user, int64_t tasks, isentrope_run run, void* task) {
  int64_t i;
  *(int64_t*)user += 1;
  for (i = tasks; i-- > 0;) run(task, i);
}
static void forgetful(void* user, int64_t tasks, isentrope_run run, void* task) { (void)user, (void)tasks, (void)run, (void)task; }

/* Each row's output is one of the sums over some of its keys; the same seed leaves the same ones. */
static void test_dropout(isentrope_options* options, isentrope_forward_call* call) {
  static float without[ROWS * DIM], with[ROWS * DIM];
  int row, kept, found = 0, j;
  EXPECT(isentrope_forward(options, call) == ISENTROPE_OK);
  memcpy(without, output, sizeof without);
  EXPECT(isentrope_options_set_dropout(options, 0.5f, ((uint64_t)1 << 40) + 3) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, call) == ISENTROPE_OK);
  memcpy(with, output, sizeof with);
  EXPECT(memcmp(without, with, sizeof with) != 0);
  for (row = 0; row < ROWS; ++row) {
    const float *head_k = k + row / QUERIES * KEYS * DIM, *head_v = v + row / QUERIES * KEYS * DIM;
    for (kept = 0; kept < 1 << KEYS; ++kept) {
      double out[2] = {0, 0};
      for (j = 0; j < KEYS; ++j) {
        const double z = (q[row * DIM] * head_k[j * DIM] + q[row * DIM + 1] * head_k[j * DIM + 1]) / sqrt(DIM);
        const double weight = kept >> j & 1 ? 2 * exp(z - lse[row]) : 0;
        out[0] += weight * head_v[j * DIM];
        out[1] += weight * head_v[j * DIM + 1];
      }
      if (fabs(out[0] - with[row * DIM]) + fabs(out[1] - with[row * DIM + 1]) > 1e-4) continue;
      ++found;
      break;
    }
  }
  EXPECT(found == ROWS);
  EXPECT(isentrope_options_set_dropout(options, 0.5f, 3) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, call) == ISENTROPE_OK && memcmp(with, output, sizeof with) != 0);
  EXPECT(isentrope_options_set_dropout(options, 0.5f, ((uint64_t)1 << 40) + 3) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, call) == ISENTROPE_OK && memcmp(with, output, sizeof with) == 0);
  EXPECT(isentrope_options_set_dropout(options, 1, 0) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, call), "[attention] dropout_p must be at least 0 and below 1; got 1.000000");
  EXPECT(isentrope_options_set_dropout(options, 0, 0) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, call) == ISENTROPE_OK && memcmp(without, output, sizeof without) == 0);
  EXPECT_ERROR(isentrope_options_set_dropout(NULL, 0, 0), "[isentrope_options_set_dropout] options must not be NULL; got NULL");
}

static void test_every_option_has_its_effect(void) {
  static int64_t begin[1] = {1}, end[1] = {3}, query_starts[3] = {0, 1, QUERIES}, key_starts[3] = {0, 3, KEYS};
  static uint8_t admitted[ROWS * KEYS];
  static float bias[ROWS * KEYS], sink[HEADS] = {1, 2}, table[ROWS];
  const int64_t one = 1, three = 3, heads = HEADS;
  isentrope_array first = isentrope_array_contiguous(begin, ISENTROPE_I64, 1, &one);
  isentrope_array last = isentrope_array_contiguous(end, ISENTROPE_I64, 1, &one);
  isentrope_array queries = isentrope_array_contiguous(query_starts, ISENTROPE_I64, 1, &three);
  isentrope_array keys = isentrope_array_contiguous(key_starts, ISENTROPE_I64, 1, &three);
  isentrope_array mask = isentrope_array_contiguous(admitted, ISENTROPE_U8, 4, kPairShape);
  isentrope_array added = floats(bias, 4, kPairShape), extra = floats(sink, 1, &heads), scales = floats(table, 3, kPairShape);
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  int64_t jobs = 0;
  int i;
  EXPECT(isentrope_options_set_array(options, "key_begin", &first) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "key_end", &last) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[0] == 2);
  EXPECT(isentrope_options_set_array(options, "key_begin", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "key_end", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "cu_seqlens_q", &queries) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "cu_seqlens_k", &keys) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[0] == 3 && support[1] == 1);
  EXPECT(isentrope_options_set_array(options, "cu_seqlens_q", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "cu_seqlens_k", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_causal(options, ISENTROPE_CAUSAL_TOP_LEFT) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "prefix_keys", &last) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[0] == 3 && support[2] == 3);
  EXPECT(isentrope_options_set_array(options, "prefix_keys", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_causal(options, ISENTROPE_CAUSAL_NONE) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "chunk_size", 3) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[0] == 3 && support[2] == 1 && output[4] == v[6]);
  EXPECT(isentrope_options_set_integer(options, "chunk_size", 0) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "window_left", 0) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "window_right", 0) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[2] == 1 && output[4] == v[6]);
  EXPECT(isentrope_options_set_integer(options, "sequence_keys", KEYS) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[2] == 1 && output[4] == v[4]);
  EXPECT(isentrope_options_set_integer(options, "query_offset", 1) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && output[4] == v[6]);
  EXPECT(isentrope_options_set_integer(options, "sequence_keys", 0) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "query_offset", 0) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "window_left", -1) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "window_right", -1) == ISENTROPE_OK);
  for (i = 0; i < ROWS * KEYS; ++i) admitted[i] = i % KEYS == 2;
  EXPECT(isentrope_options_set_array(options, "attn_mask", &mask) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && support[0] == 1 && output[0] == v[4]);
  EXPECT(isentrope_options_set_array(options, "sinks", &extra) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && output[0] > 0 && output[0] < v[4]);
  EXPECT(isentrope_options_set_array(options, "sinks", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "attn_mask", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "lambda", &scales) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && lambda[0] == 0 && fabs(entropy[0] - log(KEYS)) < 1e-6);
  for (i = 0; i < ROWS * KEYS; ++i) bias[i] = i % KEYS == 1 ? 5.0f : -5.0f;
  EXPECT(isentrope_options_set_array(options, "bias", &added) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && max_logit[0] == 5);
  EXPECT(isentrope_options_set_array(options, "bias", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_array(options, "lambda", NULL) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_soft_cap(options, 0.125f) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && max_logit[0] <= 0.125f);
  EXPECT(isentrope_options_set_soft_cap(options, 0) == ISENTROPE_OK);
  test_dropout(options, &call);
  EXPECT(isentrope_options_set_parallel_for(options, in_reverse, &jobs) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && jobs > 0);
  EXPECT(isentrope_options_set_parallel_for(options, forgetful, NULL) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_FAILED);
  EXPECT(strcmp(isentrope_last_error(), "[parallel_for] every task must run once; got 0 of 2") == 0);
  EXPECT(isentrope_options_set_parallel_for(options, NULL, NULL) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  isentrope_options_destroy(options);
}

static void test_pages(void) {
  static int32_t pages[2] = {1, 0};
  static float whole[ROWS * DIM];
  const int64_t table[2] = {1, 2}, halves[4] = {2, HEADS, KEYS / 2, DIM};
  static float paged_k[HEADS * KEYS * DIM], paged_v[HEADS * KEYS * DIM];
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  int head, j, c;
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  memcpy(whole, output, sizeof whole);
  for (head = 0; head < HEADS; ++head) {
    for (j = 0; j < KEYS; ++j) {
      for (c = 0; c < DIM; ++c) {
        const int to = ((pages[j / 2] * HEADS + head) * 2 + j % 2) * DIM + c, from = (head * KEYS + j) * DIM + c;
        paged_k[to] = k[from];
        paged_v[to] = v[from];
      }
    }
  }
  call.k = floats(paged_k, 4, halves);
  call.v = floats(paged_v, 4, halves);
  call.block_table = isentrope_array_contiguous(pages, ISENTROPE_I32, 2, table);
  call.paged_keys = KEYS;
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  EXPECT(memcmp(whole, output, sizeof whole) == 0);
  pages[0] = 7;
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] block_table must hold page numbers below 2; got 7");
  isentrope_options_destroy(options);
}

/* In 8 bits keys and values are what their codes stand for. */
static void test_cache_in_8_bits(void) {
  static int8_t codes[2][HEADS * KEYS * DIM];
  static float scales[2][HEADS * KEYS], want[ROWS * DIM], numbers[2][HEADS * KEYS * DIM];
  const int64_t shape[4] = {1, HEADS, KEYS, DIM}, groups[4] = {1, HEADS, KEYS, 1};
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  isentrope_array of_codes[2], of_scales[2];
  int i, j;
  for (i = 0; i < 2; ++i) {
    of_codes[i] = isentrope_array_contiguous(codes[i], ISENTROPE_I8, 4, shape);
    of_scales[i] = floats(scales[i], 4, groups);
    EXPECT(isentrope_quantize(i == 0 ? &call.k : &call.v, &of_codes[i], &of_scales[i]) == ISENTROPE_OK);
    for (j = 0; j < HEADS * KEYS * DIM; ++j) numbers[i][j] = scales[i][j / DIM] * (float)codes[i][j];
  }
  EXPECT(codes[1][HEADS * KEYS * DIM - 1] == 127);
  call.k = floats(numbers[0], 4, shape);
  call.v = floats(numbers[1], 4, shape);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  memcpy(want, output, sizeof want);
  call.k = of_codes[0];
  call.v = of_codes[1];
  EXPECT_ERROR(isentrope_forward(options, &call),
               "[attention] k_scale must have a number of groups that divides 2 columns; got 0");
  call.k_scale = of_scales[0];
  call.v_scale = of_scales[1];
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK && memcmp(want, output, sizeof want) == 0);
  EXPECT_ERROR(isentrope_quantize(&call.k, &of_codes[0], &of_scales[0]),
               "[quantize] rows must be f32, bf16 or f16; got i8");
  isentrope_options_destroy(options);
}

static float dq[ROWS * DIM], dk[HEADS * KEYS * DIM], dv[HEADS * KEYS * DIM], ones[ROWS * DIM];

static isentrope_statistics only_lse;

static isentrope_backward_call backward_call(const isentrope_forward_call* forward) {
  isentrope_backward_call call;
  size_t i;
  memset(&call, 0, sizeof call);
  for (i = 0; i < sizeof ones / sizeof *ones; ++i) ones[i] = 1;
  for (i = 0; i < sizeof dq / sizeof *dq; ++i) dq[i] = -77;
  for (i = 0; i < sizeof dk / sizeof *dk; ++i) dk[i] = dv[i] = -77;
  call.struct_size = sizeof call;
  call.q = forward->q;
  call.k = forward->k;
  call.v = forward->v;
  call.output = forward->output;
  memset(&upstream, 0, sizeof upstream);
  upstream.struct_size = sizeof upstream;
  memset(&only_lse, 0, sizeof only_lse);
  only_lse.struct_size = sizeof only_lse;
  only_lse.lse = asked.lse;
  call.statistics = &only_lse;
  call.d_statistics = &upstream;
  call.d_output = floats(ones, 4, kQueryShape);
  call.dq = floats(dq, 4, kQueryShape);
  call.dk = floats(dk, 4, kKeyShape);
  call.dv = floats(dv, 4, kKeyShape);
  return call;
}

static void expect_gradients(float dropout) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call forward = forward_call();
  isentrope_backward_call call = backward_call(&forward);
  const double step = 0x1p-8;
  double change = 0, column = 0, total = 0;
  int i, sign;
  EXPECT(isentrope_options_set_dropout(options, dropout, 5) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK);
  EXPECT(isentrope_backward(options, &call) == ISENTROPE_OK);
  for (i = 0; i < KEYS; ++i) column += dv[i * DIM];
  EXPECT((fabs(column - QUERIES) < 1e-5) == (dropout == 0)); /* weights of a row add up to 1 until some are dropped */
  for (i = 0; i < HEADS * KEYS * DIM; ++i) total += dv[i] * v[i];
  for (i = 0; i < ROWS * DIM; ++i) total -= output[i];
  EXPECT(fabs(total) < 1e-3); /* the output is linear in v, by the weights that the forward pass kept */
  for (sign = -1; sign <= 1; sign += 2) {
    q[0] += (float)(sign * step);
    EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK);
    q[0] -= (float)(sign * step);
    change += sign * (output[0] + output[1]) / (2 * step);
  }
  EXPECT(fabs(change) > 0.1 && fabs(change - dq[0]) < 1e-3 * (1 + fabs(change)));
  isentrope_options_destroy(options);
}

static void test_backward_agrees_with_differences(void) {
  expect_gradients(0);
  expect_gradients(0.5f);
}

/* Each array of a call, broken in three ways; `name` is what messages call it. */
static void expect_array_errors(isentrope_options* options, isentrope_forward_call* call, isentrope_array* array,
                                const char* name, const char* types, isentrope_dtype other) {
  static const char* const kNames[] = {"none", "F32", "BF16", "F16", "U8", "I32", "I64"};
  const isentrope_array good = *array;
  char message[256];
  array->dtype = other;
  sprintf(message, "[isentrope_forward] %s must be %s; got %s", name, types, kNames[other]);
  EXPECT_ERROR(isentrope_forward(options, call), message);
  *array = good;
  array->rank = 2;
  sprintf(message, "[isentrope_forward] %s must have rank %d; got 2", name, (int)good.rank);
  EXPECT_ERROR(isentrope_forward(options, call), message);
  *array = good;
  const int size = good.dtype == ISENTROPE_I64 ? 8 : good.dtype == ISENTROPE_F32 || good.dtype == ISENTROPE_I32 ? 4 : 2;
  if (good.dtype != ISENTROPE_U8) {
    array->data = (char*)good.data + 1;
    sprintf(message, "[isentrope_forward] %s must be aligned to %d bytes; got an address 1 past a multiple", name, size);
    EXPECT_ERROR(isentrope_forward(options, call), message);
  }
  *array = good;
  array->data = NULL;
  sprintf(message, "[isentrope_forward] %s must have data; got a null pointer", name);
  EXPECT_ERROR(isentrope_forward(options, call), message);
  *array = good;
  array->extents[2] += 1;
  EXPECT(isentrope_forward(options, call) == ISENTROPE_BAD_ARGUMENT);
  *array = good;
  EXPECT(outputs_untouched());
}

static void test_bad_forward_arguments(void) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  struct {
    isentrope_forward_call call;
    unsigned char tail[8];
  } newer;
  char message[128];
  expect_array_errors(options, &call, &call.q, "q", "F32, BF16 or F16", ISENTROPE_I64);
  expect_array_errors(options, &call, &call.k, "k", "F32, BF16 or F16", ISENTROPE_U8);
  expect_array_errors(options, &call, &call.v, "v", "F32, BF16 or F16", ISENTROPE_I32);
  expect_array_errors(options, &call, &call.output, "output", "F32, BF16 or F16", ISENTROPE_I64);
  expect_array_errors(options, &call, &asked.lse, "lse", "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.entropy, "entropy", "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.collision, "collision", "F32", ISENTROPE_BF16);
  expect_array_errors(options, &call, &asked.max_logit, "max_logit", "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.variance, "variance", "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.distance, "distance", "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.lambda, "lambda", "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.support, "support", "I64", ISENTROPE_I32);
  call.k.extents[1] = 3;
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] k must have a number of heads that divides that of q; got 3 for 2");
  call = forward_call();
  memset(&call.q, 0, sizeof call.q);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_BAD_ARGUMENT);
  EXPECT_ERROR(isentrope_forward(NULL, &call), "[isentrope_forward] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_forward(options, NULL), "[isentrope_forward] call must not be NULL; got NULL");
  call = forward_call();
  call.struct_size = 8;
  sprintf(message, "[isentrope_forward] call.struct_size must be the size of the struct, %u; got 8", (unsigned)sizeof call);
  EXPECT_ERROR(isentrope_forward(options, &call), message);
  memset(&newer, 0, sizeof newer);
  newer.call = forward_call();
  newer.call.struct_size = sizeof newer;
  newer.tail[3] = 1;
  EXPECT_ERROR(isentrope_forward(options, &newer.call),
               "[isentrope_forward] call must be 0 past the fields of version " ISENTROPE_VERSION "; got other bytes");
  EXPECT(outputs_untouched());
  newer.tail[3] = 0;
  EXPECT(isentrope_forward(options, &newer.call) == ISENTROPE_OK);
  isentrope_options_destroy(options);
}

static void test_bad_backward_arguments(void) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call forward = forward_call();
  isentrope_backward_call call = backward_call(&forward);
  isentrope_array* const arrays[] = {&call.q, &call.k, &call.v, &call.output, &only_lse.lse, &call.d_output, &call.dq, &call.dk, &call.dv};
  size_t i;
  for (i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
    const isentrope_array good = *arrays[i];
    arrays[i]->dtype = ISENTROPE_U8;
    EXPECT(isentrope_backward(options, &call) == ISENTROPE_BAD_ARGUMENT);
    *arrays[i] = good;
    arrays[i]->data = NULL;
    EXPECT(isentrope_backward(options, &call) == ISENTROPE_BAD_ARGUMENT);
    *arrays[i] = good;
    arrays[i]->extents[2] = 9;
    EXPECT(isentrope_backward(options, &call) == ISENTROPE_BAD_ARGUMENT);
    *arrays[i] = good;
  }
  upstream.entropy = asked.entropy;
  EXPECT_ERROR(isentrope_backward(options, &call), "[attention_backward] entropy must have shape [1, 2, 3]; got [0, 0, 0]");
  upstream.entropy.rank = 0, upstream.entropy.dtype = 0, upstream.entropy.data = NULL;
  upstream.variance = asked.variance;
  only_lse.variance = asked.variance;
  EXPECT_ERROR(isentrope_backward(options, &call), "[attention_backward] entropy must have shape [1, 2, 3]; got [0, 0, 0]");
  memset(&upstream.variance, 0, sizeof upstream.variance);
  upstream.max_logit = asked.max_logit;
  EXPECT_ERROR(isentrope_backward(options, &call), "[attention_backward] d_max_logit must be absent: the statistic has no gradient; got one");
  upstream.max_logit.dtype = ISENTROPE_I64;
  EXPECT_ERROR(isentrope_backward(options, &call), "[isentrope_backward] d_max_logit must be F32; got I64");
  upstream.struct_size = 3;
  EXPECT(isentrope_backward(options, &call) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_backward] statistics.struct_size must be the size of the struct, ") == isentrope_last_error());
  memset(&upstream, 0, sizeof upstream);
  EXPECT_ERROR(isentrope_backward(NULL, &call), "[isentrope_backward] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_backward(options, NULL), "[isentrope_backward] call must not be NULL; got NULL");
  for (i = 0; i < sizeof dq / sizeof *dq; ++i) EXPECT(dq[i] == -77);
  for (i = 0; i < sizeof dk / sizeof *dk; ++i) EXPECT(dk[i] == -77 && dv[i] == -77);
  isentrope_options_destroy(options);
}

static void test_bad_options(void) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  isentrope_array wrong = call.q;
  double scale = 5;
  wrong.dtype = ISENTROPE_I32;
  EXPECT(isentrope_options_set_rule(options, "entropi_invariant") == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "entropy_invariant") != NULL);
  EXPECT_ERROR(isentrope_options_set_rule(options, NULL), "[isentrope_options_set_rule] text must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_rule(NULL, "standard"), "[isentrope_options_set_rule] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_causal(options, 3), "[isentrope_options_set_causal] causal must be one of the three ISENTROPE_CAUSAL; got 3");
  EXPECT_ERROR(isentrope_options_set_array(options, "key_end", &wrong), "[isentrope_options_set_array] key_end must be I64; got I32");
  EXPECT_ERROR(isentrope_options_set_array(options, "cu_seqlens_q", &wrong), "[isentrope_options_set_array] cu_seqlens_q must be I64; got I32");
  wrong = isentrope_array_contiguous(support, ISENTROPE_I64, 1, kQueryShape);
  EXPECT_ERROR(isentrope_options_set_array(options, "attn_mask", &wrong), "[isentrope_options_set_array] attn_mask must be U8; got I64");
  EXPECT_ERROR(isentrope_options_set_array(options, "bias", &wrong), "[isentrope_options_set_array] bias must be F32; got I64");
  EXPECT_ERROR(isentrope_options_set_array(options, "sinks", &wrong), "[isentrope_options_set_array] sinks must be F32; got I64");
  EXPECT_ERROR(isentrope_options_set_array(options, "lambda", &wrong), "[isentrope_options_set_array] lambda must be F32; got I64");
  EXPECT(isentrope_options_set_array(options, "window_left", &wrong) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_options_set_array] name must be one of lambda, attn_mask, ") == isentrope_last_error());
  EXPECT(isentrope_options_set_integer(options, "attn_mask", 0) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_options_set_integer] name must be one of window_left, ") == isentrope_last_error());
  EXPECT(strstr(isentrope_last_error(), "; got \"attn_mask\"") != NULL);
  EXPECT_ERROR(isentrope_options_set_integer(options, NULL, 0), "[isentrope_options_set_integer] name must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_integer(NULL, "window_left", 0), "[isentrope_options_set_integer] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_array(NULL, "bias", NULL), "[isentrope_options_set_array] options must not be NULL; got NULL");
  wrong = isentrope_array_contiguous(alone, ISENTROPE_I64, 1, kQueryShape + 3);
  EXPECT(isentrope_options_set_array(options, "cu_seqlens_q", &wrong) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] cu_seqlens_k must be given with cu_seqlens_q; got none");
  EXPECT(isentrope_options_set_array(options, "cu_seqlens_q", NULL) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_options_set_soft_cap(NULL, 0), "[isentrope_options_set_soft_cap] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_parallel_for(NULL, NULL, NULL), "[isentrope_options_set_parallel_for] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_rule_lambda("standard", -1, 64, 0, &scale), "[isentrope_rule_lambda] keys must not be negative; got -1");
  EXPECT_ERROR(isentrope_rule_lambda("standard", 1, 64, 0, NULL), "[isentrope_rule_lambda] lambda must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_rule_lambda("standard", 1, 0, 0, &scale), "[lambda] dim must be at least 1; got dim = 0");
  EXPECT(scale == 5);
  EXPECT(isentrope_options_set_soft_cap(options, -1) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] soft_cap must be finite and not negative; got -1.000000");
  EXPECT(isentrope_options_set_soft_cap(options, 0) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "key_offset", -4) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] key_offset must not be negative; got -4");
  EXPECT(outputs_untouched());
  isentrope_options_destroy(options);
  isentrope_options_destroy(NULL);
}

static void test_targets_and_version(void) {
  int32_t last = 0;
  double scale = 0;
  EXPECT(isentrope_target(0) != NULL && isentrope_target(-1) == NULL && isentrope_target(1000) == NULL);
  EXPECT(strcmp(isentrope_active_target(), isentrope_target(0)) == 0);
  while (isentrope_target(last + 1) != NULL) ++last;
  EXPECT(isentrope_use_target(isentrope_target(last)) == ISENTROPE_OK);
  EXPECT(strcmp(isentrope_active_target(), isentrope_target(last)) == 0);
  EXPECT(isentrope_use_target("PDP11") == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), isentrope_target(last)) != NULL);
  EXPECT_ERROR(isentrope_use_target(NULL), "[isentrope_use_target] name must not be NULL; got NULL");
  EXPECT(isentrope_use_target(isentrope_target(0)) == ISENTROPE_OK);
  EXPECT(isentrope_rule_lambda("entropy_invariant(base=512)", 512, 64, 0, &scale) == ISENTROPE_OK);
  EXPECT(fabs(scale - 0.125) < 1e-12);
  EXPECT(strcmp(isentrope_version(), ISENTROPE_VERSION) == 0);
}

int main(void) {
  test_forward_agrees_with_its_definition();
  test_every_option_has_its_effect();
  test_pages();
  test_cache_in_8_bits();
  test_backward_agrees_with_differences();
  test_bad_forward_arguments();
  test_bad_backward_arguments();
  test_bad_options();
  test_targets_and_version();
  printf("%d failures\n", failures);
  return failures != 0;
}
