/* c_device_test [KERNELS [no_driver]]: the C interface's functions for devices.
 *
 * Without arguments: in a build without isentrope::cuda. Otherwise with a driver that runs no kernels, or with none.
 * KERNELS: a folder with kernels of no call. */

#include "tests/bindings/c_api_calls.h"

#define EXPECT_MESSAGE(status, wanted, message)   \
  do {                                            \
    EXPECT((status) == (wanted));                 \
    EXPECT(!strcmp(isentrope_last_error(), message)); \
  } while (0)
#define EXPECT_BEGINNING(status, wanted, message)                                \
  do {                                                                           \
    EXPECT((status) == (wanted));                                                \
    EXPECT(!strncmp(isentrope_last_error(), message, sizeof message - 1)); \
  } while (0)

static void test_not_built(void) {
#define NOT_BUILT "must be built with ISENTROPE_CUDA=ON and nlohmann-json; got a build without isentrope::cuda"
  isentrope_device* device = NULL;
  void* data = NULL;
  EXPECT_ERROR(isentrope_device_open("kernels", 0, &device), "[isentrope_device_open] the library " NOT_BUILT);
  EXPECT_ERROR(isentrope_device_allocate(device, 1, &data), "[isentrope_device_allocate] the library " NOT_BUILT);
  EXPECT_ERROR(isentrope_device_write(device, q, k, 1), "[isentrope_device_write] the library " NOT_BUILT);
  EXPECT_ERROR(isentrope_device_read(device, q, k, 1), "[isentrope_device_read] the library " NOT_BUILT);
  EXPECT_ERROR(isentrope_device_forward(NULL, NULL, device, NULL), "[isentrope_device_forward] the library " NOT_BUILT);
  EXPECT_ERROR(isentrope_device_backward(NULL, NULL, device, NULL), "[isentrope_device_backward] the library " NOT_BUILT);
  EXPECT(device == NULL && data == NULL);
  isentrope_device_free(device, data);
  isentrope_device_close(device);
}

static void test_no_driver(const char* kernels) {
  isentrope_device* device = NULL;
  EXPECT_BEGINNING(isentrope_device_open(kernels, 0, &device), ISENTROPE_FAILED, "[cuda] NVIDIA's driver must be installed; got ");
  EXPECT(device == NULL);
}

static void test_opening(const char* kernels) {
  isentrope_device* device = NULL;
  EXPECT_ERROR(isentrope_device_open(NULL, 0, &device), "[isentrope_device_open] kernels must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_open(kernels, 0, NULL), "[isentrope_device_open] device must not be NULL; got NULL");
  EXPECT_BEGINNING(isentrope_device_open("no/such/folder", 0, &device), ISENTROPE_BAD_ARGUMENT,
                   "[cuda] kernels must be a folder with kernels.json; got no/such/folder without");
  EXPECT_ERROR(isentrope_device_open(kernels, 1, &device), "[cuda] ordinal must be that of one of 1 devices; got 1");
  EXPECT_ERROR(isentrope_device_open(kernels, -1, &device), "[cuda] ordinal must be that of one of 1 devices; got -1");
  EXPECT(device == NULL);
  isentrope_device_close(NULL);
}

static void test_memory(const isentrope_device* device) {
  const float numbers[3] = {1, 2, 3};
  float copy[2] = {0, 0};
  float* data = NULL;
  void* none = NULL;
  EXPECT(isentrope_device_allocate(device, sizeof numbers, (void**)&data) == ISENTROPE_OK);
  EXPECT(isentrope_device_write(device, data, numbers, sizeof numbers) == ISENTROPE_OK);
  EXPECT(isentrope_device_read(device, copy, data + 1, sizeof copy) == ISENTROPE_OK);
  EXPECT(copy[0] == 2 && copy[1] == 3);
  isentrope_device_free(device, data);
  isentrope_device_free(device, NULL);
  EXPECT_BEGINNING(isentrope_device_allocate(device, 0, &none), ISENTROPE_FAILED, "[cuda] the driver must allocate memory; got error 1, ");
  EXPECT_BEGINNING(isentrope_device_allocate(device, (size_t)1 << 62, &none), ISENTROPE_OUT_OF_MEMORY,
                   "[cuda] the driver must allocate memory; got error 2, ");
  EXPECT(none == NULL);
  EXPECT_ERROR(isentrope_device_allocate(device, 1, NULL), "[isentrope_device_allocate] data must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_allocate(NULL, 1, &none), "[isentrope_device_allocate] device must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_write(NULL, q, k, 1), "[isentrope_device_write] device must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_read(NULL, q, k, 1), "[isentrope_device_read] device must not be NULL; got NULL");
  isentrope_device_free(NULL, q);
}

/* Refusals of both functions that need no device. */
static void test_bad_arguments(const isentrope_device* device) {
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call forward = forward_call();
  isentrope_backward_call backward = backward_call(&forward);
  EXPECT_ERROR(isentrope_device_forward(NULL, &forward, device, NULL), "[isentrope_device_forward] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_forward(options, NULL, device, NULL), "[isentrope_device_forward] call must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_forward(options, &forward, NULL, NULL), "[isentrope_device_forward] device must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_backward(NULL, &backward, device, NULL), "[isentrope_device_backward] options must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_backward(options, NULL, device, NULL), "[isentrope_device_backward] call must not be NULL; got NULL");
  EXPECT_ERROR(isentrope_device_backward(options, &backward, NULL, NULL), "[isentrope_device_backward] device must not be NULL; got NULL");
  forward.struct_size = backward.struct_size = 8;
  EXPECT_BEGINNING(isentrope_device_forward(options, &forward, device, NULL), ISENTROPE_BAD_ARGUMENT,
                   "[isentrope_device_forward] call.struct_size must be the size of the struct, ");
  EXPECT_BEGINNING(isentrope_device_backward(options, &backward, device, NULL), ISENTROPE_BAD_ARGUMENT,
                   "[isentrope_device_backward] call.struct_size must be the size of the struct, ");
  forward.struct_size = sizeof forward, backward.struct_size = sizeof backward;
  forward.q.rank = backward.dq.rank = 3;
  EXPECT_ERROR(isentrope_device_forward(options, &forward, device, NULL), "[isentrope_device_forward] q must have rank 4; got 3");
  EXPECT_ERROR(isentrope_device_backward(options, &backward, device, NULL), "[isentrope_device_backward] dq must have rank 4; got 3");
  forward.q.rank = backward.dq.rank = 4;
  isentrope_options_set_soft_cap(options, -1);
  EXPECT_ERROR(isentrope_device_forward(options, &forward, device, NULL), "[attention] soft_cap must be finite and not negative; got -1.000000");
  EXPECT_ERROR(isentrope_device_backward(options, &backward, device, NULL),
               "[attention_backward] soft_cap must be finite and not negative; got -1.000000");
  EXPECT(outputs_untouched());
  isentrope_options_destroy(options);
}

/* Moves an array to the device. Until then the call must name it. */
static void move(const isentrope_device* device, isentrope_array* array, isentrope_status status, const char* function, const char* name) {
  char message[128];
  void* data = NULL;
  sprintf(message, "[%s] %s must be on device 0; got memory of the host", function, name);
  EXPECT_MESSAGE(status, ISENTROPE_BAD_ARGUMENT, message);
  EXPECT(isentrope_device_allocate(device, 1 << 10, &data) == ISENTROPE_OK);
  array->data = data;
}

static void test_arrays_on_the_host(const isentrope_device* device) {
  static const int64_t kLength[1] = {1};
  static int64_t ends[1] = {KEYS};
  isentrope_options* options = isentrope_options_create();
  isentrope_forward_call forward = forward_call();
  isentrope_backward_call backward = backward_call(&forward);
  isentrope_array key_end = isentrope_array_contiguous(ends, ISENTROPE_I64, 1, kLength);
  const named_array of_forward[] = {{&forward.q, "q"}, {&forward.k, "k"}, {&forward.v, "v"}, {&forward.output, "output"},
      kStatistics[0], kStatistics[1], kStatistics[2], kStatistics[3], kStatistics[4], kStatistics[5], kStatistics[6], kStatistics[7],
      {&asked.support, "support"}},
    of_backward[] = {{&backward.q, "q"}, {&backward.k, "k"}, {&backward.v, "v"}, {&backward.output, "output"},
      {&backward.d_output, "d_output"}, {&only_lse.lse, "lse"}, {&backward.dq, "dq"}, {&backward.dk, "dk"}, {&backward.dv, "dv"}};
  size_t i;
  for (i = 0; i < sizeof of_forward / sizeof *of_forward; ++i) {
    move(device, of_forward[i].array, isentrope_device_forward(options, &forward, device, NULL), "attention", of_forward[i].name);
  }
  EXPECT(isentrope_options_set_array(options, "key_end", &key_end) == ISENTROPE_OK);
  move(device, &key_end, isentrope_device_forward(options, &forward, device, NULL), "attention", "key_end");
  EXPECT(isentrope_options_set_array(options, "key_end", &key_end) == ISENTROPE_OK);
  /* All are on the device now. */
  EXPECT_BEGINNING(isentrope_device_forward(options, &forward, device, NULL), ISENTROPE_BAD_ARGUMENT,
                   "[attention] the call must be one that kernels were compiled for; got none in ");
  for (i = 0; i < sizeof of_backward / sizeof *of_backward; ++i) {
    move(device, of_backward[i].array, isentrope_device_backward(options, &backward, device, NULL), "attention_backward", of_backward[i].name);
  }
  EXPECT_BEGINNING(isentrope_device_backward(options, &backward, device, NULL), ISENTROPE_BAD_ARGUMENT,
                   "[attention] the call must be one that kernels were compiled for; got none in ");
  isentrope_device_free(device, key_end.data);
  for (i = 0; i < sizeof of_forward / sizeof *of_forward; ++i) isentrope_device_free(device, of_forward[i].array->data);
  for (i = 0; i < sizeof of_backward / sizeof *of_backward; ++i) isentrope_device_free(device, of_backward[i].array->data);
  isentrope_options_destroy(options);
}

int main(int argc, char** argv) {
  isentrope_device* device = NULL;
  if (argc == 1) {
    test_not_built();
  } else if (argc == 3) {
    test_no_driver(argv[1]);
  } else {
    test_opening(argv[1]);
    EXPECT(isentrope_device_open(argv[1], 0, &device) == ISENTROPE_OK);
    test_memory(device);
    test_bad_arguments(device);
    test_arrays_on_the_host(device);
    isentrope_device_close(device);
  }
  return failures != 0;
}
