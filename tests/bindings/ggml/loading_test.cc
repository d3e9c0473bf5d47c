// ggml's loader with the backend, and with libraries that it must do without.

#include <gtest/gtest.h>

#include "tests/bindings/ggml/node.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/words.h"

namespace isentrope {
namespace {

// Returns what ggml and the backend log while `load` runs.
std::string logged(const std::function<void()>& load) {
  std::string text;
  ggml_log_set(
      [](ggml_log_level, const char* part, void* to) { *static_cast<std::string*>(to) += part; },
      &text);
  load();
  ggml_log_set(nullptr, nullptr);
  return text;
}

std::string message_without_backend(const std::filesystem::path& path) {
  return logged([&] { EXPECT_EQ(ggml_backend_load(path.c_str()), nullptr); });
}

TEST(Loading, SaysWhatIsOn) {
  const Variable rule("ISENTROPE_RULE", "entropy_invariant(base=512)");
  ggml_backend_reg_t registry = nullptr;
  const std::string text = logged([&] { registry = ggml_backend_load(GGML_BACKEND); });
  ASSERT_NE(registry, nullptr);
  EXPECT_STREQ(ggml_backend_reg_name(registry), "ISENTROPE");
  EXPECT_EQ(ggml_backend_dev_type(ggml_backend_reg_dev_get(registry, 0)),
            GGML_BACKEND_DEVICE_TYPE_ACCEL);
  EXPECT_TRUE(text.starts_with("isentrope ")) << text;
  expect_words(text, {"rule: entropy_invariant(base=512); statistics: none"});
  ggml_backend_unload(registry);
}

TEST(Loading, RefusesAnotherVersionOfTheInterface) {
  expect_words(message_without_backend(OTHER_INTERFACE_BACKEND), {"incompatible API version"});
}

TEST(Loading, RefusesTensorsOfAnotherLayout) {
  expect_words(message_without_backend(OTHER_TENSOR_BACKEND),
               {"must be built for the loaded version; got ggml "});
}

// The system loader ends the process if a library lacks a later part than its header.
// `isentrope doctor` tells such a library from a whole one.
TEST(Loading, RefusesALibraryWithoutItsHeader) {
  const TemporaryFolder folder;
  const auto path = write_file(folder / "begin.so", read_file(GGML_BACKEND).substr(0, 100));
  expect_words(message_without_backend(path), {"failed to load"});
}

TEST(Loading, RefusesALibraryWhoseSymbolsAreMissing) {
  const TemporaryFolder folder;
  std::string library = read_file(GGML_BACKEND);
  const std::string name = "ggml_backend_buft_is_host";
  for (auto at = library.find(name); at != std::string::npos; at = library.find(name))
    library[at] = 'x';
  expect_words(message_without_backend(write_file(folder / "missing.so", library)),
               {"undefined symbol"});
}

}  // namespace
}  // namespace isentrope
