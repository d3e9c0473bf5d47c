/* The C interface, used from C: its results. c_api_refusals.c has its errors. */

#include "tests/bindings/c_api_calls.h"

static const int64_t kPairShape[4] = {1, HEADS, QUERIES, KEYS};

int refusal_failures(void);

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

static void test_masks_given_as_lists(void) {
  static int64_t begin[1] = {1}, end[1] = {3}, query_starts[3] = {0, 1, QUERIES}, key_starts[3] = {0, 3, KEYS};
  const int64_t one = 1, three = 3;
  isentrope_array first = isentrope_array_contiguous(begin, ISENTROPE_I64, 1, &one);
  isentrope_array last = isentrope_array_contiguous(end, ISENTROPE_I64, 1, &one);
  isentrope_array queries = isentrope_array_contiguous(query_starts, ISENTROPE_I64, 1, &three);
  isentrope_array keys = isentrope_array_contiguous(key_starts, ISENTROPE_I64, 1, &three);
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
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
  isentrope_options_destroy(options);
}

static void test_masks_given_as_integers(void) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
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
  isentrope_options_destroy(options);
}

static void test_options_given_as_tensors(void) {
  static uint8_t admitted[ROWS * KEYS];
  static float bias[ROWS * KEYS], sink[HEADS] = {1, 2}, table[ROWS];
  const int64_t heads = HEADS;
  isentrope_array mask = isentrope_array_contiguous(admitted, ISENTROPE_U8, 4, kPairShape);
  isentrope_array added = floats(bias, 4, kPairShape), extra = floats(sink, 1, &heads), scales = floats(table, 3, kPairShape);
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  int i;
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
  isentrope_options_destroy(options);
}

static void test_parallel_for(void) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  int64_t jobs = 0;
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

/* Writes the keys of two sequences by slots; their packed queries then see them as a call of their own. */
static void test_sequences(void) {
  static int32_t pages[4] = {1, -1, 2, 0};
  static int64_t slots[6] = {2, 3, 4, 5, 0, 1}, used[2] = {2, 4}, starts[3] = {0, 1, QUERIES};
  static float paged[2][3 * HEADS * 2 * DIM], tokens[2][6 * HEADS * DIM], want[ROWS * DIM];
  const int64_t table[2] = {2, 2}, halves[4] = {3, HEADS, 2, DIM}, lists[2] = {2, 3}, count[1] = {6};
  const int64_t packed[4] = {1, HEADS, 6, DIM}, query[4] = {1, HEADS, 1, DIM};
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  isentrope_array caches[2], rows[2], mapping = isentrope_array_contiguous(slots, ISENTROPE_I64, 1, count);
  int i, head, t, c;
  call.statistics = NULL;
  /* Sequence 0 has keys 0 and 1 of the call, in page 1; sequence 1 all four, in pages 2 and 0. */
  for (i = 0; i < 2; ++i) {
    const float* from = i == 0 ? k : v;
    for (head = 0; head < HEADS; ++head)
      for (t = 0; t < 6; ++t)
        for (c = 0; c < DIM; ++c)
          tokens[i][(head * 6 + t) * DIM + c] = from[(head * KEYS + (t < 2 ? t : t - 2)) * DIM + c];
    caches[i] = floats(paged[i], 4, halves);
    rows[i] = floats(tokens[i], 4, packed);
  }
  EXPECT(isentrope_write_cache(&rows[0], &rows[1], &caches[0], &caches[1], &mapping) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_causal(options, ISENTROPE_CAUSAL_BOTTOM_RIGHT) == ISENTROPE_OK);
  /* Queries 1 and 2 with all keys, by themselves. */
  call.q.data = q + DIM;
  call.q.extents[2] = call.output.extents[2] = 2;
  call.output.data = want + DIM;
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  /* Query 0 with the first two. */
  call.q = floats(q, 4, query);
  call.q.strides[1] = call.output.strides[1] = QUERIES * DIM;
  call.output.data = want;
  call.output.extents[2] = 1;
  call.k.extents[2] = call.v.extents[2] = 2;
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  call = forward_call();
  call.statistics = NULL;
  call.k = caches[0];
  call.v = caches[1];
  call.block_table = isentrope_array_contiguous(pages, ISENTROPE_I32, 2, table);
  call.paged_keys = KEYS;
  call.seqused_k = isentrope_array_contiguous(used, ISENTROPE_I64, 1, &lists[0]);
  call.cu_seq_q = isentrope_array_contiguous(starts, ISENTROPE_I64, 1, &lists[1]);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  EXPECT(memcmp(want, output, sizeof want) == 0);
  /* A program that was compiled with version 0.2 has a shorter struct. */
  call.struct_size = offsetof(isentrope_forward_call, seqused_k);
  pages[1] = 0; /* without lengths every sequence has 4 keys */
  EXPECT_ERROR(isentrope_forward(options, &call),
               "[attention] block_table must have a row for each batch and a column for each page of keys; got [2, 2] for 4 keys");
  slots[3] = 6;
  EXPECT_ERROR(isentrope_write_cache(&rows[0], &rows[1], &caches[0], &caches[1], &mapping),
               "[write_cache] slot_mapping must hold slots of the 3 pages of 2 keys; got 6");
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

/* The weights that keys receive are the gradient of a column of values. */
static void test_received(void) {
  static float received[HEADS * KEYS], weights[ROWS], all_weights[ROWS * KEYS];
  static int64_t chosen[ROWS * KEYS];
  const int64_t of_keys[3] = {1, HEADS, KEYS}, all[4] = {1, HEADS, QUERIES, KEYS};
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call forward = forward_call();
  isentrope_backward_call backward = backward_call(&forward);
  isentrope_received_call call;
  isentrope_weights_at_call at;
  int i;
  memset(&call, 0, sizeof call);
  call.struct_size = sizeof call;
  call.q = forward.q;
  call.k = forward.k;
  call.lse = asked.lse;
  call.received = floats(received, 3, of_keys);
  EXPECT(isentrope_options_set_causal(options, ISENTROPE_CAUSAL_TOP_LEFT) == ISENTROPE_OK);
  EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK);
  EXPECT(isentrope_backward(options, &backward) == ISENTROPE_OK);
  EXPECT(isentrope_received(options, &call) == ISENTROPE_OK);
  for (i = 0; i < HEADS * KEYS; ++i) EXPECT(fabs(received[i] - dv[i * DIM]) < 1e-5);
  EXPECT(received[KEYS - 1] == 0); /* the last of 4 keys, which none of 3 rows sees */
  memset(&at, 0, sizeof at);
  at.struct_size = sizeof at;
  at.q = forward.q;
  at.k = forward.k;
  at.lse = asked.lse;
  for (i = 0; i < ROWS * KEYS; ++i) chosen[i] = i % KEYS;
  at.keys = isentrope_array_contiguous(chosen, ISENTROPE_I64, 4, all);
  at.weights = floats(all_weights, 4, all);
  EXPECT(isentrope_weights_at(options, &at) == ISENTROPE_OK);
  for (i = 0; i < HEADS * KEYS; ++i) {
    const float* p = all_weights + i / KEYS * QUERIES * KEYS + i % KEYS;
    EXPECT(fabs(p[0] + p[KEYS] + p[2 * KEYS] - received[i]) < 1e-5);
  }
  at.weights = at.lse;
  EXPECT(isentrope_weights_at(options, &at) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_weights_at] weights must") != NULL);
  for (i = 0; i < ROWS; ++i) weights[i] = 0;
  call.weights = floats(weights, 3, kQueryShape);
  EXPECT(isentrope_received(options, &call) == ISENTROPE_OK && received[0] == 0);
  call.received = call.lse;
  EXPECT_ERROR(isentrope_received(options, &call), "[received] received must have shape [1, 2, 4]; got [1, 2, 3]");
  memset(&call.lse, 0, sizeof call.lse);
  EXPECT_ERROR(isentrope_received(options, &call), "[received] lse must have shape [1, 2, 3]; got [0, 0, 0]");
  EXPECT_ERROR(isentrope_received(options, NULL), "[isentrope_received] call must not be NULL; got NULL");
  isentrope_options_destroy(options);
}

/* Tangents are differences of the forward pass, and gradients of the second order those of the backward pass. */
static void test_derivatives(void) {
  static float change[ROWS * DIM], lse_change[ROWS], ahead[ROWS * DIM], dq_ahead[ROWS * DIM], tangent[ROWS * DIM];
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call forward = forward_call();
  isentrope_backward_call backward = backward_call(&forward);
  isentrope_statistics changes;
  isentrope_tangent_call call;
  isentrope_second_order_call second;
  const float step = 0x1p-7f;
  int i;
  backward.d_statistics = NULL;
  for (i = 0; i < ROWS * DIM; ++i) tangent[i] = (float)(i % 5 - 2) / 4;
  for (i = 0; i < ROWS * DIM; ++i) q[i] += step * tangent[i];
  EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK && isentrope_backward(options, &backward) == ISENTROPE_OK);
  memcpy(ahead, output, sizeof ahead);
  memcpy(dq_ahead, dq, sizeof dq_ahead);
  for (i = 0; i < ROWS * DIM; ++i) q[i] -= 2 * step * tangent[i];
  EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK && isentrope_backward(options, &backward) == ISENTROPE_OK);
  for (i = 0; i < ROWS * DIM; ++i) {
    ahead[i] = (ahead[i] - output[i]) / (2 * step);
    dq_ahead[i] = (dq_ahead[i] - dq[i]) / (2 * step);
    q[i] += step * tangent[i];
  }
  EXPECT(isentrope_forward(options, &forward) == ISENTROPE_OK);
  memset(&call, 0, sizeof call);
  memset(&changes, 0, sizeof changes);
  memset(&second, 0, sizeof second);
  call.struct_size = sizeof call;
  changes.struct_size = sizeof changes;
  second.struct_size = sizeof second;
  call.q = forward.q;
  call.k = forward.k;
  call.v = forward.v;
  call.output = forward.output;
  call.statistics = backward.statistics;
  call.tangent_q = forward.q;
  call.tangent_q.data = tangent;
  call.tangent_output = forward.output;
  call.tangent_output.data = change;
  changes.lse = floats(lse_change, 3, kQueryShape);
  call.tangent_statistics = &changes;
  EXPECT(isentrope_tangent(options, &call) == ISENTROPE_OK);
  for (i = 0; i < ROWS * DIM; ++i) EXPECT(fabs(change[i] - ahead[i]) < 2e-3);
  second.tangent = &call;
  second.d_output = backward.d_output;
  second.dq = backward.dq;
  second.dk = backward.dk;
  second.dv = backward.dv;
  EXPECT(isentrope_second_order(options, &second) == ISENTROPE_OK);
  for (i = 0; i < ROWS * DIM; ++i) EXPECT(fabs(dq[i] - dq_ahead[i]) < 2e-3);
  call.tangent_q.extents[3] = 1;
  EXPECT_ERROR(isentrope_tangent(options, &call), "[attention_tangent] tangent of q must have shape [1, 2, 3, 2]; got [1, 2, 3, 1]");
  call.tangent_q.extents[3] = DIM;
  memset(&changes.lse, 0, sizeof changes.lse);
  EXPECT_ERROR(isentrope_second_order(options, &second), 
               "[attention_second_order] tangent of lse must have shape [1, 2, 3]; got [0, 0, 0]");
  EXPECT_ERROR(isentrope_tangent(options, NULL), "[isentrope_tangent] call must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_second_order(options, NULL), "[isentrope_second_order] call must not be NULL; got NULL");
  isentrope_options_destroy(options);
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
  test_masks_given_as_lists();
  test_masks_given_as_integers();
  test_options_given_as_tensors();
  test_parallel_for();
  test_pages();
  test_sequences();
  test_cache_in_8_bits();
  test_received();
  test_derivatives();
  test_backward_agrees_with_differences();
  test_targets_and_version();
  failures += refusal_failures();
  printf("%d failures\n", failures);
  return failures != 0;
}
