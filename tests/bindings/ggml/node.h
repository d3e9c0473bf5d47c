// Nodes of flash attention in memory of ggml, and the backend that computes them.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml.h"

namespace isentrope {

// An environment variable during a test.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    setenv(name_.c_str(), value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_.c_str()); }

 private:
  std::string name_;
};

// The backend's library, which reads the environment anew each time.
class Library {
 public:
  Library() : handle_(dlopen(GGML_BACKEND, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    using Init = ggml_backend_reg_t();
    registry_ = reinterpret_cast<Init*>(dlsym(handle_, "ggml_backend_init"))();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { dlclose(handle_); }

  // Null if the library refused to start.
  [[nodiscard]] ggml_backend_reg_t registry() const { return registry_; }
  [[nodiscard]] ggml_backend_dev_t device() const {
    return registry_->iface.get_device(registry_, 0);
  }

 private:
  void* handle_;
  ggml_backend_reg_t registry_;
};

// Problem of flash attention; the default is a decode step.
struct Problem {
  std::int64_t dim = 64, value_dim = 64, heads = 4, kv_heads = 2, queries = 1, keys = 113,
               batch = 1;
  ggml_type keys_type = GGML_TYPE_F16, values_type = keys_type;
  bool heads_in_rows = true;  // [dim, heads, tokens] in memory, as llama.cpp keeps them
  std::function<float(std::int64_t head, std::int64_t query, std::int64_t key)> mask{};
  bool mask_per_head = false, sinks = false;
  float max_bias = 0, soft_cap = 0, scale = 0.125f;
};

// Node with random numbers of N(0, 1).
class Node {
 public:
  explicit Node(const Problem& problem)
      : context_(ggml_init({64 << 20, nullptr, false})), problem_(problem) {
    const Problem& p = problem_;
    const ggml_tensor* q = tensor(GGML_TYPE_F32, p.dim, p.queries, p.heads);
    const ggml_tensor* k = tensor(p.keys_type, p.dim, p.keys, p.kv_heads);
    ggml_set_name(k->view_src, "cache_k_l12");
    node_ = ggml_flash_attn_ext(context_, const_cast<ggml_tensor*>(q), const_cast<ggml_tensor*>(k),
                                tensor(p.values_type, p.value_dim, p.keys, p.kv_heads),
                                p.mask ? mask() : nullptr, p.scale, p.max_bias, p.soft_cap);
    if (p.sinks) {
      ggml_tensor* sinks = ggml_new_tensor_1d(context_, GGML_TYPE_F32, p.heads);
      fill(sinks);
      ggml_flash_attn_ext_add_sinks(node_, sinks);
    }
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { ggml_free(context_); }

  [[nodiscard]] ggml_tensor* get() const { return node_; }

  // Computes the node by a backend of the library with two threads.
  [[nodiscard]] ggml_status compute(const Library& library) const {
    ggml_cgraph* graph = ggml_new_graph(context_);
    ggml_build_forward_expand(graph, node_);
    ggml_backend_t backend = ggml_backend_dev_init(library.device(), nullptr);
    using SetThreads = void(ggml_backend_t, int);
    reinterpret_cast<SetThreads*>(ggml_backend_reg_get_proc_address(
        library.registry(), "ggml_backend_set_n_threads"))(backend, 2);
    const ggml_status status = ggml_backend_graph_compute(backend, graph);
    ggml_backend_free(backend);
    return status;
  }

 private:
  // View of the first half of a larger tensor, as those of a cache are.
  ggml_tensor* tensor(ggml_type type, std::int64_t columns, std::int64_t rows, std::int64_t heads) {
    const std::int64_t second = problem_.heads_in_rows ? heads : rows,
                       third = problem_.heads_in_rows ? rows : heads;
    ggml_tensor* whole =
        ggml_new_tensor_4d(context_, type, columns, second, 2 * third, problem_.batch);
    fill(whole);
    ggml_tensor* part = ggml_view_4d(context_, whole, columns, second, third, problem_.batch,
                                     whole->nb[1], whole->nb[2], whole->nb[3], 0);
    return problem_.heads_in_rows ? ggml_permute(context_, part, 0, 2, 1, 3) : part;
  }

  ggml_tensor* mask() {
    const Problem& p = problem_;
    ggml_tensor* mask = ggml_new_tensor_4d(context_, GGML_TYPE_F16, p.keys, p.queries,
                                           p.mask_per_head ? p.heads : 1, p.batch);
    auto* at = static_cast<ggml_fp16_t*>(mask->data);
    for (std::int64_t plane = 0; plane < mask->ne[2] * mask->ne[3]; ++plane)
      for (std::int64_t query = 0; query < p.queries; ++query)
        for (std::int64_t key = 0; key < p.keys; ++key)
          *at++ = ggml_fp32_to_fp16(p.mask(plane % mask->ne[2], query, key));
    return mask;
  }

  void fill(ggml_tensor* tensor) {
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<std::size_t>(ggml_nelements(tensor)));
    for (float& number : numbers) number = normal(random_);
    const auto count = static_cast<std::int64_t>(numbers.size());
    if (tensor->type == GGML_TYPE_F32) {
      std::copy(numbers.begin(), numbers.end(), static_cast<float*>(tensor->data));
    } else if (tensor->type == GGML_TYPE_F16) {
      ggml_fp32_to_fp16_row(numbers.data(), static_cast<ggml_fp16_t*>(tensor->data), count);
    } else if (tensor->type == GGML_TYPE_BF16) {
      ggml_fp32_to_bf16_row(numbers.data(), static_cast<ggml_bf16_t*>(tensor->data), count);
    }
  }

  std::mt19937 random_{7};
  ggml_context* context_;
  Problem problem_;
  ggml_tensor* node_;
};

// Element of a tensor, by ggml's strides.
inline double element(const ggml_tensor* t, std::int64_t i0, std::int64_t i1, std::int64_t i2,
                      std::int64_t i3) {
  const char* at = static_cast<const char*>(t->data) + i0 * t->nb[0] + i1 * t->nb[1] +
                   i2 * t->nb[2] + i3 * t->nb[3];
  if (t->type == GGML_TYPE_F32) return *reinterpret_cast<const float*>(at);
  if (t->type == GGML_TYPE_F16) return ggml_fp16_to_fp32(*reinterpret_cast<const ggml_fp16_t*>(at));
  return ggml_bf16_to_fp32(*reinterpret_cast<const ggml_bf16_t*>(at));
}

}  // namespace isentrope
