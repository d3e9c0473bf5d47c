// The kernels that src/gpu/kernels.py compiled into a folder, and how each is launched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope::cuda {

// type: as Triton has it: *bf16, i32, i64, fp32. divisible: 16 must divide the address or number.
struct Parameter {
  std::string name, type;
  bool divisible = false;
};

struct Kernel {
  std::string kernel, file, symbol;
  int chip = 0;  // compute capability times 10 of the chip that the file FILE.cubin is for
  unsigned threads = 0, shared = 0;
  std::map<std::string, std::int64_t> constants;
  std::vector<Parameter> parameters;

  // 0 if there is no such number.
  [[nodiscard]] std::int64_t constant(const std::string& name) const;
  // "" if it is compiled in.
  [[nodiscard]] std::string_view type_of(std::string_view parameter) const;
};

// What a kernel must have been compiled for.
struct Needs {
  std::string_view kernel;
  std::map<std::string, std::int64_t> constants;
  std::map<std::string, std::string> types{};  // of parameters
  std::vector<std::string> wanted{};           // statistics, as WANTED names them
};

// One line, different for different needs.
[[nodiscard]] std::string text_of(const Needs& needs);

class Manifest {
 public:
  // Throws Error if the folder has none, or one that this library cannot read.
  explicit Manifest(std::filesystem::path folder);

  // The chip whose files run on a device of this compute capability, and whether those are cubins.
  // Otherwise they are PTX, which the driver compiles. Throws Error if there is neither.
  struct Choice {
    int chip = 0;
    bool cubin = true;
  };
  [[nodiscard]] Choice choice(int capability) const;

  // The fitting kernel that computes the least beyond what is needed. Throws Error if none fits.
  [[nodiscard]] const Kernel& find(int chip, const Needs& needs) const;

  // Throws Error if the file cannot be read.
  [[nodiscard]] std::string image(const Kernel& kernel, bool cubin) const;

 private:
  std::filesystem::path folder_;
  std::vector<Kernel> kernels_;
};

}  // namespace isentrope::cuda
