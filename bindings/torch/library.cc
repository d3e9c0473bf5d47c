// Registration of the operators when the library is loaded. Gradients, fake kernels and batching
// rules are registered in Python; kernels of other devices under their own dispatch key.

#include <string>

#include "bindings/torch/operators.h"

namespace isentrope::stable {
namespace {

// Version of the stable interface that the kernels use: torch 2.10.
constexpr std::uint64_t kInterface = std::uint64_t{2} << 56 | std::uint64_t{10} << 48;

TorchLibraryHandle implementations(const char* key, std::uint32_t line) {
  TorchLibraryHandle library = nullptr;
  must(aoti_torch_library_init_impl("isentrope", key, "isentrope", line, &library),
       "open a library");
  return library;
}

// The handles live as long as the process, like their registrations.
TorchLibraryHandle schemas() {
  static const TorchLibraryHandle handle = [] {
    TorchLibraryHandle library = nullptr;
    must(aoti_torch_library_init_def("isentrope", "isentrope", __LINE__, &library),
         "open a library");
    return library;
  }();
  return handle;
}

const bool registered = [] {
  const Library library;
  for (const auto define : {define_attention, define_derivatives, define_key_statistics,
                            define_plain, define_plans, define_rules})
    define(library);
  return true;
}();

}  // namespace

Library::Library()
    : cpu_(implementations("CPU", __LINE__)),
      any_(implementations("CompositeExplicitAutograd", __LINE__)) {}

void Library::define(const std::string& schema, TorchLibraryHandle library, Kernel* kernel) {
  must(aoti_torch_library_def(schemas(), schema.c_str()), "define an operator");
  const std::string name = schema.substr(0, schema.find('('));
  must(torch_library_impl(library, name.c_str(), kernel, kInterface), "register a kernel");
}

}  // namespace isentrope::stable
