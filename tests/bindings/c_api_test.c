/* The C interface, used from C. c_conformance_test.cc compares its results with those of C++, and c_api_refusals.c has its errors. */

#include "tests/bindings/c_api_calls.h"

int refusal_failures(void);

static void in_reverse(void* user, int64_t tasks, isentrope_run run, void* task) {
  int64_t i;
  *(int64_t*)user += 1;
  for (i = tasks; i-- > 0;) run(task, i);
}
static void forgetful(void* user, int64_t tasks, isentrope_run run, void* task) { (void)user, (void)tasks, (void)run, (void)task; }

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

/* Two tokens go to page 1, and one stays unwritten. */
static void test_writing_a_cache(void) {
  static int64_t slots[3] = {3, -1, 2};
  static float caches[2][2 * HEADS * 2 * DIM], tokens[HEADS * 3 * DIM];
  const int64_t pages[4] = {2, HEADS, 2, DIM}, rows[4] = {1, HEADS, 3, DIM}, count = 3;
  const isentrope_array mapping = isentrope_array_contiguous(slots, ISENTROPE_I64, 1, &count);
  const isentrope_array k_cache = floats(caches[0], 4, pages), v_cache = floats(caches[1], 4, pages), from = floats(tokens, 4, rows);
  int i, head;
  for (i = 0; i < HEADS * 3 * DIM; ++i) tokens[i] = (float)(i + 1);
  EXPECT(isentrope_write_cache(&from, &from, &k_cache, &v_cache, &mapping) == ISENTROPE_OK);
  EXPECT(memcmp(caches[0], caches[1], sizeof caches[0]) == 0);
  for (i = 0; i < HEADS * 2 * DIM; ++i) EXPECT(caches[0][i] == 0);
  for (head = 0; head < HEADS; ++head) {
    const float *page = caches[0] + (HEADS + head) * 2 * DIM, *token = tokens + head * 3 * DIM;
    for (i = 0; i < DIM; ++i) EXPECT(page[i] == token[2 * DIM + i] && page[DIM + i] == token[i]);
  }
  slots[1] = 4;
  EXPECT_ERROR(isentrope_write_cache(&from, &from, &k_cache, &v_cache, &mapping),
               "[write_cache] slot_mapping must hold slots of the 2 pages of 2 keys; got 4");
}

static void test_quantizing(void) {
  static int8_t codes[HEADS * KEYS * DIM];
  static float scales[HEADS * KEYS];
  const int64_t groups[4] = {1, HEADS, KEYS, 1};
  const isentrope_array of_codes = isentrope_array_contiguous(codes, ISENTROPE_I8, 4, kKeyShape), of_scales = floats(scales, 4, groups);
  const isentrope_forward_call call = forward_call();
  int i;
  EXPECT(isentrope_quantize(&call.v, &of_codes, &of_scales) == ISENTROPE_OK);
  for (i = 0; i < HEADS * KEYS * DIM; ++i) EXPECT(fabs(scales[i / DIM] * (float)codes[i] - v[i]) <= scales[i / DIM] / 2 * 1.0001);
  EXPECT_ERROR(isentrope_quantize(&of_codes, &of_codes, &of_scales), "[quantize] rows must be f32, bf16 or f16; got i8");
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
  test_parallel_for();
  test_writing_a_cache();
  test_quantizing();
  test_targets_and_version();
  failures += refusal_failures();
  printf("%d failures\n", failures);
  return failures != 0;
}
