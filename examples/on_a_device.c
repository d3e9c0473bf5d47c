/* on_a_device KERNELS: attention on an NVIDIA device in C, from a folder of
 * kernels that src/gpu/kernels.py compiled: a causal call in bf16, and the
 * entropy of its rows. */

#include <stdio.h>
#include <stdlib.h>

#include "isentrope/isentrope.h"

enum { HEADS = 8, ROWS = 1024, DIM = 64, NUMBERS = HEADS * ROWS * DIM };

static const int64_t kShape[4] = {1, HEADS, ROWS, DIM};
static uint16_t numbers[NUMBERS];
static float entropies[HEADS * ROWS];

static void require(isentrope_status status) {
  if (status == ISENTROPE_OK) return;
  fprintf(stderr, "%s\n", isentrope_last_error());
  exit(1);
}

/* Returns an array on the device; its memory is freed with the process. */
static isentrope_array array(const isentrope_device* device,
                             isentrope_dtype dtype, int32_t rank,
                             size_t bytes) {
  void* data = NULL;
  require(isentrope_device_allocate(device, bytes, &data));
  return isentrope_array_contiguous(data, dtype, rank, kShape);
}

/* Returns random numbers between 0.5 and 2 of either sign. */
static isentrope_array random_array(const isentrope_device* device) {
  const isentrope_array result =
      array(device, ISENTROPE_BF16, 4, sizeof numbers);
  int i;
  for (i = 0; i < NUMBERS; ++i) numbers[i] = 0x3f00 | (rand() & 0x80ff);
  require(isentrope_device_write(device, result.data, numbers, sizeof numbers));
  return result;
}

int main(int argc, char** argv) {
  isentrope_forward_call call = {.struct_size = sizeof call};
  isentrope_statistics statistics = {.struct_size = sizeof statistics};
  isentrope_options* options = isentrope_options_create();
  isentrope_device* device = NULL;
  double sum = 0;
  int i;

  require(isentrope_device_open(argc == 2 ? argv[1] : NULL, 0, &device));
  require(isentrope_options_set_rule(options, "entropy_invariant(base=512)"));
  require(isentrope_options_set_causal(options, ISENTROPE_CAUSAL_BOTTOM_RIGHT));
  call.q = random_array(device);
  call.k = random_array(device);
  call.v = random_array(device);
  call.output = array(device, ISENTROPE_BF16, 4, sizeof numbers);
  statistics.entropy = array(device, ISENTROPE_F32, 3, sizeof entropies);
  call.statistics = &statistics;
  require(isentrope_device_forward(options, &call, device, NULL));
  require(isentrope_device_read(device, entropies, statistics.entropy.data,
                                sizeof entropies)); /* waits for the device */
  for (i = 0; i < HEADS * ROWS; ++i) sum += entropies[i];
  printf("mean entropy of %d rows: %.3f nats\n", HEADS * ROWS,
         sum / (HEADS * ROWS));
  isentrope_options_destroy(options);
  isentrope_device_close(device);
  return 0;
}
