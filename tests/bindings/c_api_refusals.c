/* Refusals of the C interface: the message for every bad argument. */

#include "tests/bindings/c_api_calls.h"

static int64_t alone[2] = {0, QUERIES};

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
  for (int i = 0; i < 8; ++i) expect_array_errors(options, &call, kStatistics[i].array, kStatistics[i].name, "F32", ISENTROPE_F16);
  expect_array_errors(options, &call, &asked.support, "support", "I64", ISENTROPE_I32);
  for (call.q.dtype = -1; call.q.dtype <= 8; call.q.dtype += 9)
    EXPECT_ERROR(isentrope_forward(options, &call), "[isentrope_forward] q must be F32, BF16 or F16; got no type of Isentrope");
  call = forward_call();
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
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; ++i) {
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
  EXPECT(MARKED(dq) && MARKED(dk) && MARKED(dv));
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
  EXPECT_ERROR(isentrope_options_set_array(options, "bias", &wrong), "[isentrope_options_set_array] bias must be F32, BF16 or F16; got I64");
  EXPECT_ERROR(isentrope_options_set_array(options, "sinks", &wrong), "[isentrope_options_set_array] sinks must be F32; got I64");
  EXPECT_ERROR(isentrope_options_set_array(options, "lambda", &wrong), "[isentrope_options_set_array] lambda must be F32; got I64");
  EXPECT(isentrope_options_set_array(options, "window_left", &wrong) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_options_set_array] name must be one of lambda, attn_mask, ") == isentrope_last_error());
  EXPECT(isentrope_options_set_integer(options, "attn_mask", 0) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_options_set_integer] name must be one of window_left, ") == isentrope_last_error());
  EXPECT(strstr(isentrope_last_error(), "; got \"attn_mask\"") != NULL);
  EXPECT_ERROR(isentrope_options_set_integer(options, "bias_hides", 2), "[isentrope_options_set_integer] bias_hides must be 0 or 1; got 2");
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
  EXPECT(isentrope_options_set_dropout(options, -1, 1) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] dropout_p must be at least 0 and below 1; got -1.000000");
  EXPECT(isentrope_options_set_dropout(options, 0, 1) == ISENTROPE_OK);
  EXPECT(isentrope_options_set_integer(options, "key_offset", -4) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] key_offset must not be negative; got -4");
  EXPECT(outputs_untouched());
  isentrope_options_destroy(options);
  isentrope_options_destroy(NULL);
}

/* struct_size of a longer struct of a later version is accepted while its new fields are empty. Any other size is refused. */
static void test_sizes_of_structs(void) {
  static union {
    isentrope_statistics statistics;
    unsigned char bytes[sizeof(isentrope_statistics) + 16];
  } newer;
  const size_t right = sizeof(isentrope_statistics), wrong[] = {0, 1, 8, right - 1, right - 8, 65537, (size_t)-1};
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  newer.statistics = asked;
  call.statistics = &newer.statistics;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    newer.statistics.struct_size = wrong[i];
    EXPECT(isentrope_forward(options, &call) == ISENTROPE_BAD_ARGUMENT);
    EXPECT(strstr(isentrope_last_error(), "[isentrope_forward] statistics.struct_size must be the size of the struct, ") != NULL);
  }
  for (size_t i = right; i <= sizeof newer; ++i) { /* also those that are no multiple of a field */
    newer.statistics.struct_size = i;
    EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
    if (i == right) continue;
    newer.bytes[i - 1] = 1;
    EXPECT(isentrope_forward(options, &call) == ISENTROPE_BAD_ARGUMENT);
    EXPECT(strstr(isentrope_last_error(), "statistics must be 0 past the fields of version ") != NULL);
    newer.bytes[i - 1] = 0;
  }
  /* A program that was compiled with version 0.2 has a shorter call. */
  call.statistics = &asked;
  call.struct_size = offsetof(isentrope_forward_call, seqused_k);
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  isentrope_options_destroy(options);
}

/* Calls that no other test refuses. */
static void test_bad_calls(void) {
  static int32_t pages[2] = {1, 7};
  static uint8_t mask_of_a_row[KEYS];
  static int64_t chosen[ROWS];
  static int8_t numbers[HEADS * KEYS * DIM];
  const int64_t table[2] = {1, 2}, halves[4] = {2, HEADS, KEYS / 2, DIM}, row[4] = {1, 1, 1, KEYS}, kOneKey[4] = {1, HEADS, QUERIES, 1};
  isentrope_weights_at_call at;
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call call = forward_call();
  isentrope_array mask = isentrope_array_contiguous(mask_of_a_row, ISENTROPE_U8, 4, row);
  const isentrope_array codes = isentrope_array_contiguous(numbers, ISENTROPE_I8, 4, kKeyShape);
  double scale;
  EXPECT(isentrope_options_set_array(options, "attn_mask", &mask) == ISENTROPE_OK);
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] attn_mask must have shape [1, 2, 3, 4]; got [1, 1, 1, 4]");
  mask = isentrope_array_contiguous(NULL, ISENTROPE_U8, 4, row);
  EXPECT_ERROR(isentrope_options_set_array(options, "attn_mask", &mask), "[isentrope_options_set_array] attn_mask must have data; got a null pointer");
  EXPECT(isentrope_options_set_array(options, "attn_mask", NULL) == ISENTROPE_OK);
  call.q.data = call.output.data = NULL;
  call.q.extents[2] = call.output.extents[2] = 0;
  call.statistics = NULL;
  EXPECT(isentrope_forward(options, &call) == ISENTROPE_OK);
  call = forward_call();
  call.paged_keys = 5;
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] pages.keys must be 0 without block_table; got 5");
  call.k = floats(k, 4, halves);
  call.v = floats(v, 4, halves);
  call.block_table = isentrope_array_contiguous(pages, ISENTROPE_I32, 2, table);
  call.paged_keys = KEYS;
  EXPECT_ERROR(isentrope_forward(options, &call), "[attention] block_table must hold page numbers below 2; got 7");
  memset(&at, 0, sizeof at);
  at.struct_size = sizeof at;
  at.q = call.q;
  at.k = floats(k, 4, kKeyShape);
  at.lse = at.weights = asked.lse;
  at.keys = isentrope_array_contiguous(chosen, ISENTROPE_I64, 4, kOneKey);
  EXPECT(isentrope_weights_at(options, &at) == ISENTROPE_BAD_ARGUMENT);
  EXPECT(strstr(isentrope_last_error(), "[isentrope_weights_at] weights must") != NULL);
  EXPECT_ERROR(isentrope_quantize(NULL, &codes, &call.v), "[isentrope_quantize] rows must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_quantize(&call.q, NULL, &call.v), "[isentrope_quantize] codes must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_quantize(&call.q, &codes, NULL), "[isentrope_quantize] scales must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_rule_lambda(NULL, 1, 64, 0, &scale), "[isentrope_rule_lambda] text must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_array(options, NULL, &mask), "[isentrope_options_set_array] name must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_causal(NULL, 0), "[isentrope_options_set_causal] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_received(options, NULL), "[isentrope_received] call must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_tangent(options, NULL), "[isentrope_tangent] call must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_second_order(options, NULL), "[isentrope_second_order] call must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_options_set_dropout(NULL, 0, 0), "[isentrope_options_set_dropout] options must not be NULL; got NULL");
  isentrope_options_destroy(options);
}

int refusal_failures(void) {
  test_bad_forward_arguments();
  test_bad_backward_arguments();
  test_bad_options();
  test_sizes_of_structs();
  test_bad_calls();
  return failures;
}
