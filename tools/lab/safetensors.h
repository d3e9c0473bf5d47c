// safetensors: named tensors in one file of the common format, with a checksum.
//
//   8 bytes, little endian   size of the header
//   header                   JSON: name -> {dtype, shape, data_offsets}, __metadata__ -> texts
//   data                     the tensors, row-major, contiguous
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

// Writes the file atomically, with the metadata "checksum". Throws Error if it cannot be written.
void save_tensors(const TensorFile& file, const std::filesystem::path& path);

// Reads the file. Throws Error if it is unreadable, of another format, or fails its checksum.
[[nodiscard]] TensorFile load_tensors(const std::filesystem::path& path);

}  // namespace isentrope::lab
