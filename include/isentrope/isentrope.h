/* Isentrope in C: attention whose scale may depend on the length, and the statistics of every row.
 *
 *   isentrope_options* options = isentrope_options_create();
 *   isentrope_options_set_rule(options, "entropy_invariant(base=512)");
 *   isentrope_forward_call call = {.struct_size = sizeof call, .q = ..., .k = ..., .v = ..., .output = ...};
 *   if (isentrope_forward(options, &call) != ISENTROPE_OK) puts(isentrope_last_error());
 *   isentrope_options_destroy(options);
 *
 * Meaning, shapes and edge cases are those of isentrope/attention.h. Arrays belong to the caller
 * and are only accessed during a call. A function that returns ISENTROPE_BAD_ARGUMENT has written
 * nothing but the message of isentrope_last_error(); after other failures outputs are undefined.
 * Several threads may use the same options at once while none of them sets options.
 */
#ifndef ISENTROPE_ISENTROPE_H_
#define ISENTROPE_ISENTROPE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ISENTROPE_API __attribute__((visibility("default")))
#else
#define ISENTROPE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Result of a function. Statuses and types are int32_t in every signature, because the compiler
 * chooses the size of an enum. */
typedef int32_t isentrope_status;
enum {
  ISENTROPE_OK = 0,
  ISENTROPE_BAD_ARGUMENT = 1,
  ISENTROPE_OUT_OF_MEMORY = 2,
  ISENTROPE_FAILED = 3 /* in parallel_for or a device's driver, or by a fault of the library */
};

/* Type of an array's elements. */
typedef int32_t isentrope_dtype;
enum {
  ISENTROPE_F32 = 1,
  ISENTROPE_BF16 = 2,
  ISENTROPE_F16 = 3,
  ISENTROPE_U8 = 4,
  ISENTROPE_I32 = 5,
  ISENTROPE_I64 = 6,
  ISENTROPE_I8 = 7
};

/* A strided array of the caller. Element (i0, i1, ...) is strides[0] i0 + strides[1] i1 + ...
 * elements after data; strides of arrays that are read may be 0 or negative. data is aligned to its
 * elements. All zero: an array that is not given. */
typedef struct isentrope_array {
  void* data; /* inputs are not written */
  isentrope_dtype dtype;
  int32_t rank; /* at most 4; extents and strides beyond it are not read */
  int64_t extents[4];
  int64_t strides[4];
} isentrope_array;

/* Returns a row-major array without gaps. Calls refuse it if extents is NULL, or if they take
 * another rank. */
ISENTROPE_API isentrope_array isentrope_array_contiguous(void* data, isentrope_dtype dtype,
                                                         int32_t rank, const int64_t* extents);

/* --- options */

typedef struct isentrope_options isentrope_options;

/* Creates options with the standard scale and no mask. NULL when out of memory. */
ISENTROPE_API isentrope_options* isentrope_options_create(void);
ISENTROPE_API void isentrope_options_destroy(isentrope_options* options); /* NULL is fine */

/* Sets the scale rule from its text, such as "standard" or "entropy_invariant(base=512)". The
 * message of a failure lists the rules. */
ISENTROPE_API isentrope_status isentrope_options_set_rule(isentrope_options* options,
                                                          const char* text);

/* Alignment of the causal diagonal; see isentrope/mask.h. */
typedef int32_t isentrope_causal;
enum {
  ISENTROPE_CAUSAL_NONE = 0,
  ISENTROPE_CAUSAL_TOP_LEFT = 1,
  ISENTROPE_CAUSAL_BOTTOM_RIGHT = 2
};
ISENTROPE_API isentrope_status isentrope_options_set_causal(isentrope_options* options,
                                                            isentrope_causal causal);

/* Sets an integer by its name in isentrope/mask.h; calls check its value. The names:
 *
 *   window_left, window_right                 keys position - left ... position + right; negative: no limit.
 *                                             The last query is at the last key, as in FlashAttention; with
 *                                             ISENTROPE_CAUSAL_TOP_LEFT, or with sequence_keys > 0, query i
 *                                             is at position i + query_offset
 *   dilation                                  only those of these keys whose distance is a multiple of it;
 *                                             0 or 1: all
 *   chunk_size                                a row sees its own chunk of this many keys, counted from the
 *                                             first key that is not padding; 0: no chunks
 *   query_offset, key_offset, sequence_keys   positions of this call's queries and keys in the sequence;
 *                                             sequence_keys = 0: the sequence ends with them
 *   bias_hides                                1: keys with a bias of -inf do not count in n; 0: they do
 */
ISENTROPE_API isentrope_status isentrope_options_set_integer(isentrope_options* options,
                                                             const char* name, int64_t value);

/* Sets an array by its name; NULL removes it. The description is copied, the data is not, so it
 * must stay valid as long as calls use these options. The names:
 *
 *   key_begin, key_end           I64 [batch]: the keys that are not padding are begin ... end - 1
 *   prefix_keys                  I64 [batch]: the number of first keys of each sequence that all its rows
 *                                see, causal or not; negative: none; not with window_left, dilation or
 *                                chunk_size
 *   cu_seqlens_q, cu_seqlens_k   I64 [documents + 1]: the beginnings of packed documents; both or neither
 *   attn_mask                    U8 [batch, heads, queries, keys]: 0 hides a key; strides of 0 broadcast
 *   bias                         F32, BF16 or F16 [batch, heads, queries, keys]; strides of 0 broadcast
 *   bias_slopes                  F32 [heads]: factors of the bias (ALiBi); only with a bias
 *   sinks                        F32 [heads]: logits of keys without values
 *   lambda                       F32 [batch, heads, queries]: softmax scales, instead of the rule
 */
ISENTROPE_API isentrope_status isentrope_options_set_array(isentrope_options* options,
                                                           const char* name,
                                                           const isentrope_array* array);

/* Sets the soft-cap c of c tanh(z / c), finite and > 0; 0: none. Calls check the value. */
ISENTROPE_API isentrope_status isentrope_options_set_soft_cap(isentrope_options* options,
                                                              float soft_cap);

/* Sets the share of weights to drop, 0 <= p < 1, and the seed that selects them. Use the same for a
 * forward pass and its backward pass, and a new seed for every other call. Calls check p. */
ISENTROPE_API isentrope_status isentrope_options_set_dropout(isentrope_options* options, float p,
                                                             uint64_t seed);

/* Sets the function that runs the tasks of a call. It must call run(task, 0), ..., run(task, tasks
 * - 1), each once, on any threads, and then return; it gets `user` unchanged. NULL: the library
 * uses its own threads. */
typedef void (*isentrope_run)(void* task, int64_t index);
typedef void (*isentrope_parallel_for)(void* user, int64_t tasks, isentrope_run run, void* task);
ISENTROPE_API isentrope_status isentrope_options_set_parallel_for(
    isentrope_options* options, isentrope_parallel_for parallel_for, void* user);

/* --- calls
 *
 * An array that is written must not overlap any other array of the call or of the options, nor must
 * its elements overlap each other: such calls fail with a message that names the array. Arrays may
 * interleave, as dq, dk and dv of one packed array do. All strides between blocks of adjacent
 * elements must then be multiples of one in which a block of each array fits; otherwise their
 * ranges of bytes must be disjoint. Along each axis, a written array must step over all that its
 * shorter strides span.
 *
 * struct_size is sizeof the struct, by which later versions with longer structs recognise the
 * caller's. Arrays that are not given are not computed; those marked * are required. */

/* One array for each statistic, in the order of isentrope/statistics.h: F32 [batch, heads,
 * queries], and I64 for the support. */
typedef struct isentrope_statistics {
  size_t struct_size;
  /* <!-- begin statistics --> */
  isentrope_array lse;
  isentrope_array entropy;
  isentrope_array collision;
  isentrope_array variance;
  isentrope_array distance;
  isentrope_array max_probability;
  isentrope_array max_logit;
  isentrope_array lambda;
  isentrope_array support;
  /* <!-- end statistics --> */
} isentrope_statistics;

/* Arrays of a forward pass. */
typedef struct isentrope_forward_call {
  size_t struct_size;
  isentrope_array q, k, v; /* *; all F32, BF16 or F16; or q F32; or k and v I8 */
  /* I32 [batch, pages of a sequence]: k and v are pages of a cache, and paged_keys is the length of
   * the longest sequence. */
  isentrope_array block_table;
  int64_t paged_keys;
  isentrope_array k_scale, v_scale; /* F32, of k and v in I8, as isentrope_quantize() writes both */
  isentrope_array output;           /* *; F32 or of the type of q */
  const isentrope_statistics* statistics; /* NULL: none */
  /* I64 [sequences]: the number of keys of each row of block_table. The last query of a sequence is
   * then at its last key. Since 0.3. */
  isentrope_array seqused_k;
  /* I64 [sequences + 1]: the beginnings of packed queries. q, output and statistics then have a
   * batch of 1, and arrays [batch] of the options are [sequences]. Since 0.3. */
  isentrope_array cu_seq_q;
  /* F32 [batch, heads, keys]: the weight that each key receives, as of isentrope_received(), for
   * little time in decode steps. [sequences, heads, keys] with seqused_k or cu_seq_q. Since 0.3. */
  isentrope_array received;
} isentrope_forward_call;

/* Computes the output and the statistics that have data. */
ISENTROPE_API isentrope_status isentrope_forward(const isentrope_options* options,
                                                 const isentrope_forward_call* call);

/* Arrays of a backward pass. */
typedef struct isentrope_backward_call {
  size_t struct_size;
  isentrope_array q, k, v; /* * */
  isentrope_array output;  /* *; result of the forward pass */
  /* Results of the forward pass: lse *, and each statistic that has a gradient below; with a
   * gradient of variance also entropy, with one of max_probability also max_logit. */
  const isentrope_statistics* statistics;
  isentrope_array d_output; /* upstream gradient; not given: zeros */
  const isentrope_statistics*
      d_statistics; /* upstream gradients; NULL: zeros. Not for max_logit, lambda, support */
  isentrope_array dq, dk, dv;                /* *; F32 or of the type of q */
  isentrope_array d_bias, d_lambda, d_sinks; /* F32 */
} isentrope_backward_call;

/* Computes dq, dk and dv, and the other gradients that have data. Not for paged keys or I8. */
ISENTROPE_API isentrope_status isentrope_backward(const isentrope_options* options,
                                                  const isentrope_backward_call* call);

/* Arrays of a tangent pass; see isentrope/derivatives.h. */
typedef struct isentrope_tangent_call {
  size_t struct_size;
  isentrope_array q, k, v; /* * */
  isentrope_array output;  /* *; result of the forward pass */
  /* Results of the forward pass: lse *, and what each statistic with a tangent below needs for its
   * gradient in isentrope_backward_call. */
  const isentrope_statistics* statistics;
  isentrope_array tangent_q, tangent_k, tangent_v; /* of the types of q, k, v; not given: zeros */
  isentrope_array tangent_bias, tangent_lambda, tangent_sinks; /* F32; not given: zeros */
  isentrope_array tangent_output; /* *; written, F32 or of the type of q */
  const isentrope_statistics*
      tangent_statistics; /* written; NULL: none. Not for max_logit, lambda, support */
} isentrope_tangent_call;

/* Computes the directional derivative of isentrope_forward() along the tangents. Not for paged keys
 * or I8. */
ISENTROPE_API isentrope_status isentrope_tangent(const isentrope_options* options,
                                                 const isentrope_tangent_call* call);

/* Arrays of a second-order pass: those of the tangent pass, which are read, and gradients. */
typedef struct isentrope_second_order_call {
  size_t struct_size;
  const isentrope_tangent_call* tangent; /* *; with the tangent of lse, and of each statistic that
                                          * has an upstream gradient below */
  isentrope_array d_output;              /* of the tangent of the output; not given: zeros */
  const isentrope_statistics* d_statistics;  /* of the statistics' tangents; NULL: zeros */
  isentrope_array dq, dk, dv;                /* *; F32 or of the types of q, k, v */
  isentrope_array d_bias, d_lambda, d_sinks; /* F32 */
} isentrope_second_order_call;

/* Computes the gradients of isentrope_tangent() with respect to q, k, v and the options' arrays.
 * With respect to the tangents they are those of isentrope_backward(). */
ISENTROPE_API isentrope_status isentrope_second_order(const isentrope_options* options,
                                                      const isentrope_second_order_call* call);

/* Arrays of the weights that keys receive; see isentrope/key_statistics.h. */
typedef struct isentrope_received_call {
  size_t struct_size;
  isentrope_array q, k;        /* *; as in isentrope_forward_call */
  isentrope_array block_table; /* as in isentrope_forward_call */
  int64_t paged_keys;
  isentrope_array k_scale;
  isentrope_array lse;      /* *; F32 [batch, heads, queries], of isentrope_forward() */
  isentrope_array weights;  /* F32 [batch, heads, queries], by which rows count; not given: 1 */
  isentrope_array received; /* *; F32 [batch, heads, keys] */
  isentrope_array seqused_k, cu_seq_q; /* as in isentrope_forward_call */
} isentrope_received_call;

/* Computes the weight that each key receives from the rows of each query head, under the options of
 * the forward pass: 0 for keys that no row sees. */
ISENTROPE_API isentrope_status isentrope_received(const isentrope_options* options,
                                                  const isentrope_received_call* call);

/* Arrays of the weights of chosen keys; see isentrope/key_statistics.h. */
typedef struct isentrope_weights_at_call {
  size_t struct_size;
  isentrope_array q, k;        /* *; as in isentrope_forward_call */
  isentrope_array block_table; /* as in isentrope_forward_call */
  int64_t paged_keys;
  isentrope_array k_scale;
  isentrope_array lse;                 /* *; F32 [batch, heads, queries], of isentrope_forward() */
  isentrope_array keys;                /* *; I64 [batch, heads, queries, chosen keys] */
  isentrope_array weights;             /* *; F32 of the shape of keys */
  isentrope_array by_score, by_bias;   /* F32 of that shape: derivatives of the logits */
  isentrope_array seqused_k, cu_seq_q; /* as in isentrope_forward_call */
} isentrope_weights_at_call;

/* Computes the weights of chosen keys of each row: 0 for keys that the row does not see. */
ISENTROPE_API isentrope_status isentrope_weights_at(const isentrope_options* options,
                                                    const isentrope_weights_at_call* call);

/* --- calls on an NVIDIA device
 *
 * They need no CUDA toolkit, to build and to run: the driver's library is opened with the first
 * device. Kernels are compiled ahead of time into a folder (src/gpu/kernels.py). A library that was
 * built without ISENTROPE_CUDA has these functions too, but they fail and say so.
 *
 * Launches are tested against Triton's without a device. None of these functions has run on a
 * device. */

/* A device and its kernels, which are loaded when a call first needs them. Calls from several
 * threads are safe. */
typedef struct isentrope_device isentrope_device;

/* Opens a device of the driver, CUDA 12 or later, and writes its handle. kernels: the folder of
 * compiled kernels; ordinal: the device's number, from 0. The message of a failure names what is
 * missing: the driver, the device, the folder, or kernels for that device. */
ISENTROPE_API isentrope_status isentrope_device_open(const char* kernels, int32_t ordinal,
                                                     isentrope_device** device);
/* Closes a device after its calls have ended and its memory is freed. NULL is fine. */
ISENTROPE_API void isentrope_device_close(isentrope_device* device);

/* Memory on a device, for programs without an allocator of their own, such as cudaMalloc().
 * Allocates bytes > 0, aligned for every array, and writes the address. Copies take any address
 * within such memory and have ended on return. They wait for calls on the default stream, but not
 * for those on a stream that was created as non-blocking. */
ISENTROPE_API isentrope_status isentrope_device_allocate(const isentrope_device* device,
                                                         size_t bytes, void** data);
ISENTROPE_API void isentrope_device_free(const isentrope_device* device,
                                         void* data); /* NULL is fine */
ISENTROPE_API isentrope_status isentrope_device_write(const isentrope_device* device, void* to,
                                                      const void* from, size_t bytes);
ISENTROPE_API isentrope_status isentrope_device_read(const isentrope_device* device, void* to,
                                                     const void* from, size_t bytes);

/* Launches isentrope_forward() on a device. Structs are in host memory, and the data of all arrays,
 * also those of the options, is in the device's memory. An array that is elsewhere, by the driver's
 * answer, is a bad argument. stream: a cudaStream_t or CUstream; NULL is the default one.
 *
 * The function starts the kernels and returns without waiting for the device. The first call with a
 * new rule or longer rows copies a table to the device, so make it before a stream is captured. The
 * options' parallel_for is not called.
 *
 * q, k, v and output are all BF16 or all F16, have head dimensions that kernels were compiled for,
 * and contiguous columns, as have boolean masks and biases. Addresses must be multiples of 16
 * bytes; strides of rows, heads and sequences must be multiples of 16 elements and below 2^31.
 * Boolean masks, biases, sinks, soft-caps, dropout, lambda, dilations, prefixes, key_begin and
 * pages of a cache need kernels that were compiled for them. Statistics must be contiguous. I8 is a
 * bad argument. The contents of documents and page tables are not checked, since that would wait
 * for the device. Documents are clamped to the valid range; an invalid page number reads outside
 * the cache.
 *
 * A failure of the driver is ISENTROPE_OUT_OF_MEMORY or ISENTROPE_FAILED; kernels may have been
 * started before it. */
ISENTROPE_API isentrope_status isentrope_device_forward(const isentrope_options* options,
                                                        const isentrope_forward_call* call,
                                                        const isentrope_device* device,
                                                        void* stream);

/* Launches isentrope_backward() on a device, with the requirements above and kernels that were
 * compiled for gradients. Gradients have the type of q; d_bias, d_lambda and d_sinks must be
 * contiguous. */
ISENTROPE_API isentrope_status isentrope_device_backward(const isentrope_options* options,
                                                         const isentrope_backward_call* call,
                                                         const isentrope_device* device,
                                                         void* stream);

/* --- the rest */

/* Writes keys or values of a cache as 8-bit codes, with a scale for each group of columns; see
 * isentrope/quantize.h. rows: F32, BF16 or F16 [outer, heads, rows, columns]; codes: I8 of that
 * shape; scales: F32 [outer, heads, rows, groups], where groups divides columns. */
ISENTROPE_API isentrope_status isentrope_quantize(const isentrope_array* rows,
                                                  const isentrope_array* codes,
                                                  const isentrope_array* scales);

/* Copies the keys and values of new tokens into the pages of a cache, token t to slot_mapping[t];
 * see isentrope/write_cache.h. k, v: [1, kv_heads, tokens, dim | value_dim]; k_cache, v_cache:
 * [pages, kv_heads, page_size, dim | value_dim], all F32, BF16 or F16; slot_mapping: I64 [tokens],
 * page * page_size + row, or negative for tokens that are not written. */
ISENTROPE_API isentrope_status isentrope_write_cache(const isentrope_array* k,
                                                     const isentrope_array* v,
                                                     const isentrope_array* k_cache,
                                                     const isentrope_array* v_cache,
                                                     const isentrope_array* slot_mapping);

/* Writes the softmax scale of a row that sees keys >= 0 keys, the last of them at its own position;
 * 0 for no keys. dim >= 1 is the head dimension; head is for rules with numbers per head. */
ISENTROPE_API isentrope_status isentrope_rule_lambda(const char* text, int64_t keys, int64_t dim,
                                                     int64_t head, double* lambda);

/* Returns the name of an instruction set that this CPU runs, by index, best first. NULL beyond the
 * last, and when out of memory. */
ISENTROPE_API const char* isentrope_target(int32_t index);
/* Returns the name of the instruction set in use. NULL when out of memory. */
ISENTROPE_API const char* isentrope_active_target(void);
/* Selects an instruction set for every thread. Do not call it while a kernel runs. */
ISENTROPE_API isentrope_status isentrope_use_target(const char* name);

/* Returns the message of this thread's last failed call: "[function] what is required; got what".
 * Valid until the thread's next failed call. */
ISENTROPE_API const char* isentrope_last_error(void);

/* Returns the version of the library, such as "0.2.0". */
ISENTROPE_API const char* isentrope_version(void);

#ifdef __cplusplus
}
#endif

#endif /* ISENTROPE_ISENTROPE_H_ */
