#include "tools/lab/safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "isentrope/error.h"
#include "src/files/writing.h"
#include "tools/command/reading.h"
#include "tools/lab/random.h"

namespace isentrope::lab {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little endian");

std::uint64_t checksum(std::string_view data) {
  std::uint64_t sum = data.size();
  while (!data.empty()) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data(), std::min(sizeof word, data.size()));
    sum = scatter(sum ^ word);
    data.remove_prefix(std::min(sizeof word, data.size()));
  }
  return sum;
}

// Returns the checksum of the file without its checksum entry.
std::string checksum(json header, std::string_view data) {
  header["__metadata__"].erase("checksum");
  return fmt::format("{:016x}{:016x}", checksum(header.dump()), checksum(data));
}

at::Tensor tensor_of(const json& entry, std::string_view data) {
  const auto shape = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto [begin, end] = entry.at("data_offsets").get<std::pair<std::size_t, std::size_t>>();
  at::Tensor tensor = at::empty(shape, at::kFloat);
  const std::size_t bytes = tensor.nbytes();
  if (entry.at("dtype") != "F32" || begin > data.size() || end < begin || end - begin != bytes) {
    throw std::out_of_range("tensor");
  }
  std::memcpy(tensor.data_ptr(), data.substr(begin, bytes).data(), bytes);
  return tensor;
}

// Throws the first error.
TensorFile parse(std::string_view content) {
  std::uint64_t header_size = 0;
  std::memcpy(&header_size, content.substr(0, 8).data(), content.size() < 8 ? 0 : 8);
  if (content.size() < 8 || header_size > content.size() - 8) throw std::out_of_range("header");
  const json header = json::parse(content.substr(8, header_size));
  const std::string_view data = content.substr(8 + header_size);

  TensorFile file{header.at("__metadata__"), {}};
  if (file.metadata.at("checksum") != checksum(header, data)) throw std::out_of_range("checksum");
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") file.tensors.emplace_back(name, tensor_of(entry, data));
  }
  return file;
}

// Returns whether the content is shorter than its header announces.
bool is_truncated(std::string_view content) {
  std::uint64_t header_size = 0;
  if (content.size() < sizeof header_size) return true;
  std::memcpy(&header_size, content.data(), sizeof header_size);
  const std::string_view rest = content.substr(sizeof header_size);
  if (header_size > rest.size()) return true;
  const json header = json::parse(rest.substr(0, header_size), nullptr, /*allow_exceptions=*/false);
  return std::ranges::any_of(header, [&](const json& entry) {
    const json offsets = entry.is_object() ? entry.value("data_offsets", json()) : json();
    return offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned() &&
           offsets[1].get<std::uint64_t>() > rest.size() - header_size;
  });
}

}  // namespace

void save_tensors(const TensorFile& file, const std::filesystem::path& path) {
  std::string data;
  json header;
  for (const auto& [name, tensor] : file.tensors) {
    const at::Tensor dense = tensor.contiguous();
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
    header[name] = {
        {"dtype", "F32"},
        {"shape", std::vector<std::int64_t>(dense.sizes().begin(), dense.sizes().end())},
        {"data_offsets", {begin, data.size()}}};
  }
  header["__metadata__"] = file.metadata;
  header["__metadata__"]["checksum"] = checksum(header, data);

  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data, as the format recommends
  std::string size(8, '\0');
  const std::uint64_t header_size = text.size();
  std::memcpy(size.data(), &header_size, 8);
  command::write_file(path, std::vector<std::string_view>{size, text, data});
}

TensorFile load_tensors(const std::filesystem::path& path) {
  const std::string content = command::read_file(path);
  try {
    return parse(content);
  } catch (const std::exception&) {
    throw Error(
        fmt::format("[checkpoint] the file is damaged: {}{}; remove it to train that model again",
                    path.string(), is_truncated(content) ? " was truncated" : ""));
  }
}

}  // namespace isentrope::lab
