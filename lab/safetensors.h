// safetensors: named tensors in one file that the field's tools read, here with a checksum.
//
//   8 bytes, little endian   size of the header
//   header                   JSON: name -> {dtype, shape, data_offsets}, __metadata__ -> texts
//   data                     the tensors, row-major, side by side
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace isentrope::lab {

struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::vector<std::pair<std::string, at::Tensor>> tensors;  // f32
};

// Replaces the file at once: a reader, or a crash, sees the old file or the new one. Adds the
// metadata "checksum". Throws Error when the file cannot be written.
void save_tensors(const TensorFile& file, const std::filesystem::path& path);

// Throws Error when the file cannot be read, is no such file, or is not as it was written.
[[nodiscard]] TensorFile load_tensors(const std::filesystem::path& path);

}  // namespace isentrope::lab
