// Part of libtorch's stable C interface that the operators use, declared here so that building them
// needs no torch. Names, types and contracts are those of torch/csrc/inductor/aoti_torch/c/shim.h
// and torch/csrc/stable/c/shim.h in torch 2.10, which later versions keep.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct AtenTensorOpaque;
struct TorchLibraryOpaque;
struct StringOpaque;
struct StableListOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
using TorchLibraryHandle = TorchLibraryOpaque*;
using StringHandle = StringOpaque*;
using StableListHandle = StableListOpaque*;

// 0 on success.
using AOTITorchError = int32_t;

// An argument or a result of a kernel: the bits of a number, or an owned handle of a tensor, a
// string or a list. An optional is a pointer to one of those on the heap, or null.
using StableIValue = std::uint64_t;

std::int32_t aoti_torch_device_type_cpu();
std::int32_t aoti_torch_dtype_float32();
std::int32_t aoti_torch_dtype_float64();
std::int32_t aoti_torch_dtype_bfloat16();
std::int32_t aoti_torch_dtype_float16();
std::int32_t aoti_torch_dtype_int64();
std::int32_t aoti_torch_dtype_int32();
std::int32_t aoti_torch_dtype_bool();
std::int32_t aoti_torch_dtype_uint8();
std::int32_t aoti_torch_dtype_int8();
std::int32_t aoti_torch_dtype_int16();
std::int32_t aoti_torch_dtype_complex64();
std::int32_t aoti_torch_dtype_float8_e4m3fn();
std::int32_t aoti_torch_dtype_float8_e5m2();

AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, std::int64_t* result);
AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, std::int64_t** result);
AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, std::int64_t** result);
AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, std::int32_t* result);
AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** result);
AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void** result);
AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
AOTITorchError aoti_torch_empty_strided(std::int64_t dims, const std::int64_t* sizes,
                                        const std::int64_t* strides, std::int32_t dtype,
                                        std::int32_t device_type, std::int32_t device_index,
                                        AtenTensorHandle* result);

AOTITorchError torch_new_string_handle(const char* data, std::size_t length, StringHandle* result);
AOTITorchError torch_delete_string(StringHandle string);
AOTITorchError torch_string_length(StringHandle string, std::size_t* result);
AOTITorchError torch_string_c_str(StringHandle string, const char** result);

AOTITorchError torch_new_list_reserve_size(std::size_t size, StableListHandle* result);
AOTITorchError torch_list_push_back(StableListHandle list, StableIValue element);

AOTITorchError torch_parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain_size,
                                  void (*body)(std::int64_t begin, std::int64_t end, void* context),
                                  void* context);

AOTITorchError aoti_torch_library_init_def(const char* name, const char* file, std::uint32_t line,
                                           TorchLibraryHandle* result);
AOTITorchError aoti_torch_library_init_impl(const char* name, const char* key, const char* file,
                                            std::uint32_t line, TorchLibraryHandle* result);
AOTITorchError aoti_torch_library_def(TorchLibraryHandle library, const char* schema);
AOTITorchError torch_library_impl(TorchLibraryHandle library, const char* name,
                                  void (*kernel)(StableIValue* stack, std::uint64_t arguments,
                                                 std::uint64_t results),
                                  std::uint64_t version);

}  // extern "C"
