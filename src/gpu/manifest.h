// Kernels that src/gpu/kernels.py compiled into a folder, with the data to launch them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace isentrope::cuda {

// Parameter of a kernel. type: by Triton's name: *bf16, i32, i64, fp32. divisible: address or
// number must be a multiple of 16.
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

  // Returns the number of that name; 0 if there is none.
  [[nodiscard]] std::int64_t constant(const std::string& name) const;
  // Returns the type; "" if the parameter is compiled in.
  [[nodiscard]] std::string_view type_of(std::string_view parameter) const;
};

// Requirements of a call on a kernel.
struct Needs {
  std::string_view kernel;
  std::map<std::string, std::int64_t> constants;
  std::map<std::string, std::string> types{};  // of parameters
  std::vector<std::string> wanted{};           // statistics, as WANTED names them
  std::vector<std::string> given{};            // terms of gradients, as GIVEN names them
};

// Returns one line that identifies the requirements.
[[nodiscard]] std::string text_of(const Needs& needs);

class Manifest {
 public:
  // Throws Error if the folder has no manifest, or one that this library cannot read.
  explicit Manifest(std::filesystem::path folder);

  // The chip whose files run on a device of this compute capability, and whether those are cubins.
  // Otherwise they are PTX, which the driver compiles. Throws Error if there is neither.
  struct Choice {
    int chip = 0;
    bool cubin = true;
  };
  [[nodiscard]] Choice choice(int capability) const;

  // Returns the matching kernel that computes the least beyond the requirements. Throws Error if
  // there is none.
  [[nodiscard]] const Kernel& find(int chip, const Needs& needs) const;

  // Returns a number that all kernels share: SHARED, numbers of a row in each share of its keys;
  // TERMS, of a row in a backward pass.
  [[nodiscard]] std::int64_t number(const std::string& name) const { return numbers_.at(name); }

  // Reads a kernel's file. Throws Error if it cannot be read.
  [[nodiscard]] std::string image(const Kernel& kernel, bool cubin) const;

 private:
  std::filesystem::path folder_;
  std::vector<Kernel> kernels_;
  std::map<std::string, std::int64_t> numbers_;
};

}  // namespace isentrope::cuda
