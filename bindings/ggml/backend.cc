// The backend that ggml loads: a registry with one device, which shares the memory of the CPU's and
// computes GGML_OP_FLASH_ATTN_EXT. ggml gives an operation to this device if supports_op() takes
// it, and all others to the CPU's.

#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <string>

#include "bindings/ggml/operation.h"
#include "bindings/ggml/settings.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"
#include "ggml-impl.h"
#include "isentrope/error.h"
#include "isentrope/parallel.h"

namespace isentrope::ggml {
namespace {

constexpr const char* kName = "ISENTROPE";

// State of a backend: ggml makes one for each context.
struct Backend {
  const Settings& settings;
  int threads = GGML_DEFAULT_N_THREADS;
};

// Threads of the OpenMP runtime that ggml's CPU backend has its threads from, where they wait awake
// between operations: a decode step takes half the time that it takes with a pool that sleeps.
ParallelFor on_openmp(int threads) {
  return [threads](std::int64_t tasks, const std::function<void(std::int64_t)>& body) {
    if (tasks == 1 || threads == 1) return run_serially(tasks, body);
    // An exception must not leave a parallel region: the first is rethrown after it.
    std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t task = 0; task < tasks; ++task) {
      try {
        body(task);
      } catch (...) {
#pragma omp critical(isentrope_error)
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
  };
}

// Returns the name of the tensor that keys are a view of, such as cache_k_l12: the node itself has
// no name that tells its layer.
std::string module_of(const ggml_tensor& keys) {
  const std::string name = (keys.view_src ? *keys.view_src : keys).name;
  return name.substr(0, name.find(" ("));  // without what ggml adds: " (permuted)", " (copy)"
}

// Computes a node that supports() takes, and appends its statistics if the settings ask for them.
// Throws Error for a rule with numbers for another number of heads, and for statistics that cannot
// be written.
void compute(const ggml_tensor& node, const Settings& settings, int threads) {
  Operation operation(node);
  AttentionOptions& options = operation.options;
  if (settings.rule) options.rule = options.rule * *settings.rule;
  options.parallel_for = on_openmp(threads);
  if (!settings.log) return attention_forward(operation.input, options, operation.output);
  CallStatistics statistics(operation.input);
  operation.output.statistics = statistics.views();
  attention_forward(operation.input, options, operation.output);
  statistics.compute_first_key(operation.input, options);
  settings.log->append(module_of(*node.src[1]), options.bias, statistics);
}

Backend& state_of(ggml_backend_t backend) { return *static_cast<Backend*>(backend->context); }

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  const Backend& state = state_of(backend);
  try {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      const ggml_tensor& node = *ggml_graph_node(graph, i);
      if (node.op == GGML_OP_FLASH_ATTN_EXT) compute(node, state.settings, state.threads);
    }
    return GGML_STATUS_SUCCESS;
  } catch (const std::bad_alloc&) {
    GGML_LOG_ERROR("isentrope: memory must suffice for a call; got less\n");
    return GGML_STATUS_ALLOC_FAILED;
  } catch (const std::exception& error) {
    GGML_LOG_ERROR("isentrope: %s\n", error.what());
    return GGML_STATUS_FAILED;
  }
}

void set_threads(ggml_backend_t backend, int threads) { state_of(backend).threads = threads; }

constexpr ggml_backend_i kBackend{
    .get_name = [](ggml_backend_t) { return kName; },
    .free =
        [](ggml_backend_t backend) {
          delete &state_of(backend);
          delete backend;
        },
    .graph_compute = graph_compute,
};

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  static ggml_guid guid = {0x69, 0x73, 0x65, 0x6e, 0x74, 0x72, 0x6f, 0x70,
                           0x65, 0x2d, 0x67, 0x67, 0x6d, 0x6c, 0x00, 0x01};
  const auto& settings = *static_cast<const Settings*>(device->context);
  return new ggml_backend{&guid, kBackend, device, new Backend{settings}};
}

void get_memory(ggml_backend_dev_t, std::size_t* free, std::size_t* total) { *free = *total = 0; }

// Returns whether this device computes the node: if it can, and gains by it or is asked for more
// than llama.cpp does. Warns, once, that a rule or a log does not reach a node.
bool takes(const Settings& settings, const ggml_tensor& node) {
  static std::once_flag once;
  const bool is_asked = settings.rule || settings.log;
  if (supports(node)) return is_asked || repays_a_switch(node);
  if (!is_asked) return false;
  std::call_once(once, [&] {
    GGML_LOG_WARN("isentrope: the CPU computes attention with keys in %s, without rule and log\n",
                  ggml_type_name(node.src[1]->type));
  });
  return false;
}

bool supports_op(ggml_backend_dev_t device, const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_NONE:  // nothing to compute
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    case GGML_OP_FLASH_ATTN_EXT:
      return takes(*static_cast<const Settings*>(device->context), *node);
    default:
      return false;
  }
}

constexpr ggml_backend_device_i kDevice{
    .get_name = [](ggml_backend_dev_t) { return kName; },
    .get_description = [](ggml_backend_dev_t) { return "flash attention by isentrope"; },
    .get_memory = get_memory,
    .get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; },
    .get_props =
        [](ggml_backend_dev_t, ggml_backend_dev_props* props) {
          *props = {.name = kName,
                    .description = "flash attention by isentrope",
                    .type = GGML_BACKEND_DEVICE_TYPE_ACCEL,
                    .caps = {.buffer_from_host_ptr = true}};
        },
    .init_backend = init_backend,
    .get_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); },
    .buffer_from_host_ptr =
        [](ggml_backend_dev_t, void* data, std::size_t size, std::size_t) {
          return ggml_backend_cpu_buffer_from_ptr(data, size);
        },
    .supports_op = supports_op,
    .supports_buft =
        [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
          return ggml_backend_buft_is_host(type);
        },
};

ggml_backend_dev_t get_device(ggml_backend_reg_t registry, std::size_t) {
  static ggml_backend_device device{kDevice, registry, registry->context};
  return &device;
}

void* get_proc_address(ggml_backend_reg_t, const char* name) {
  return std::strcmp(name, "ggml_backend_set_n_threads") == 0 ? reinterpret_cast<void*>(set_threads)
                                                              : nullptr;
}

constexpr ggml_backend_reg_i kRegistry{
    .get_name = [](ggml_backend_reg_t) { return kName; },
    .get_device_count = [](ggml_backend_reg_t) -> std::size_t { return 1; },
    .get_device = get_device,
    .get_proc_address = get_proc_address,
};

// Throws Error if tensors of the loaded ggml are laid out differently, or its numbers have another
// meaning. The loader compares only the version of the interface, which changes less often.
void check_ggml() {
  ggml_context* context = ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
  const ggml_tensor* tensor = ggml_new_tensor_4d(context, GGML_TYPE_BF16, 2, 3, 5, 7);
  const std::string name = "isentrope";
  ggml_set_name(const_cast<ggml_tensor*>(tensor), name.c_str());
  const bool same = tensor->ne[3] == 7 && tensor->nb[2] == 12 && name == tensor->name &&
                    std::string("FLASH_ATTN_EXT") == ggml_op_name(GGML_OP_FLASH_ATTN_EXT);
  ggml_free(context);
  if (same) return;
  throw Error(std::string("[ggml] the library must be built for the loaded version; got ggml ") +
              ggml_version());
}

// Reads the settings again each time: threads with memory of the kernels keep the library loaded.
ggml_backend_reg_t registry() {
  static Settings settings;
  settings = read_settings();
  static ggml_backend_reg registry{GGML_BACKEND_API_VERSION, kRegistry, &settings};
  return &registry;
}

}  // namespace
}  // namespace isentrope::ggml

// Called by the loader. After a null pointer the program goes on without this backend.
extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
  using namespace isentrope::ggml;
  try {
    check_ggml();
    const ggml_backend_reg_t backend = registry();
    GGML_LOG_INFO("%s\n", static_cast<const Settings*>(backend->context)->text().c_str());
    return backend;
  } catch (const std::exception& error) {
    GGML_LOG_ERROR("isentrope: %s\n", error.what());
    return nullptr;
  }
}
