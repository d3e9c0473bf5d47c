/* One small forward and backward call, and expectations of what it returns, for tests in C. */
#ifndef ISENTROPE_TESTS_C_API_CALLS_H_
#define ISENTROPE_TESTS_C_API_CALLS_H_

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "isentrope/isentrope.h"

enum { HEADS = 2, QUERIES = 3, KEYS = 4, DIM = 2, ROWS = HEADS * QUERIES };

static int failures = 0;

static inline void expect(int condition, const char* what, int line) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "line %d: %s; last error: %s\n", line, what, isentrope_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

static inline void expect_error(isentrope_status status, const char* message, int line) {
  expect(status == ISENTROPE_BAD_ARGUMENT, "a bad argument was accepted", line);
  expect(strcmp(isentrope_last_error(), message) == 0, message, line);
}
#define EXPECT_ERROR(status, message) expect_error(status, message, __LINE__)

static float q[ROWS * DIM], k[HEADS * KEYS * DIM], v[HEADS * KEYS * DIM];
static float output[ROWS * DIM], statistics[8 * ROWS];
static int64_t support[ROWS];

/* Given to every call. */
static isentrope_statistics asked, upstream;
typedef struct {
  isentrope_array* array;
  const char* name;
} named_array;
static const named_array kStatistics[8] = {
    {&asked.lse, "lse"},
    {&asked.entropy, "entropy"},
    {&asked.collision, "collision"},
    {&asked.variance, "variance"},
    {&asked.distance, "distance"},
    {&asked.max_probability, "max_probability"},
    {&asked.max_logit, "max_logit"},
    {&asked.lambda, "lambda"},
};

static const int64_t kQueryShape[4] = {1, HEADS, QUERIES, DIM},
                     kKeyShape[4] = {1, HEADS, KEYS, DIM};

static inline isentrope_array floats(float* data, int rank, const int64_t* shape) {
  return isentrope_array_contiguous(data, ISENTROPE_F32, rank, shape);
}

/* Marks numbers so that a write shows, and returns whether all are as they were marked. */
static inline void mark(float* numbers, size_t count) {
  while (count-- > 0) numbers[count] = -77;
}
static inline int marked(const float* numbers, size_t count) {
  while (count > 0 && numbers[count - 1] == -77) --count;
  return count == 0;
}
#define MARK(numbers) mark(numbers, sizeof numbers / sizeof *numbers)
#define MARKED(numbers) marked(numbers, sizeof numbers / sizeof *numbers)

/* Everything asked for, and every output marked. */
static inline isentrope_forward_call forward_call(void) {
  isentrope_forward_call call;
  size_t i;
  memset(&call, 0, sizeof call);
  for (i = 0; i < sizeof q / sizeof *q; ++i) q[i] = (float)sin((double)i);
  for (i = 0; i < sizeof k / sizeof *k; ++i) k[i] = (float)cos((double)i);
  for (i = 0; i < sizeof v / sizeof *v; ++i) v[i] = (float)i;
  MARK(output);
  MARK(statistics);
  for (i = 0; i < ROWS; ++i) support[i] = -77;
  call.struct_size = sizeof call;
  call.q = floats(q, 4, kQueryShape);
  call.k = floats(k, 4, kKeyShape);
  call.v = floats(v, 4, kKeyShape);
  call.output = floats(output, 4, kQueryShape);
  memset(&asked, 0, sizeof asked);
  asked.struct_size = sizeof asked;
  for (i = 0; i < 8; ++i) *kStatistics[i].array = floats(statistics + i * ROWS, 3, kQueryShape);
  asked.support = isentrope_array_contiguous(support, ISENTROPE_I64, 3, kQueryShape);
  call.statistics = &asked;
  return call;
}

static inline int outputs_untouched(void) {
  size_t i;
  for (i = 0; i < ROWS; ++i) {
    if (support[i] != -77) return 0;
  }
  return MARKED(output) && MARKED(statistics);
}

static float dq[ROWS * DIM], dk[HEADS * KEYS * DIM], dv[HEADS * KEYS * DIM], ones[ROWS * DIM];

static isentrope_statistics only_lse;

static inline isentrope_backward_call backward_call(const isentrope_forward_call* forward) {
  isentrope_backward_call call;
  size_t i;
  memset(&call, 0, sizeof call);
  for (i = 0; i < sizeof ones / sizeof *ones; ++i) ones[i] = 1;
  MARK(dq);
  MARK(dk);
  MARK(dv);
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

#endif
