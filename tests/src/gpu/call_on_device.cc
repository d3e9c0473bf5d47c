// call_on_device KERNELS WANTED LINE: computes a problem of `isentrope check` on the driver's
// device. WANTED: lse, entropy or all. Writes the addresses of the arguments as JSON.

#include <cstring>
#include <iostream>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "isentrope/cuda/attention.h"
#include "isentrope/error.h"
#include "tools/check/data.h"

using namespace isentrope;

namespace {

class OnDevice {
 public:
  explicit OnDevice(const cuda::Device& device) : device_(device) {}

  // Copies host data to the device, or allocates a result.
  void* put(const std::string& name, const void* data, std::int64_t bytes) {
    cuda::Memory& memory = all_.emplace_back(device_, static_cast<std::size_t>(bytes));
    if (data != nullptr) memory.write(data);
    names_[name] = reinterpret_cast<std::uint64_t>(memory.data());
    return memory.data();
  }
  void put(const std::string& name, ConstTensor& tensor) {
    std::int64_t count = size_of(tensor.type);
    for (const std::int64_t extent : tensor.extents) count *= extent;
    tensor.data = put(name, tensor.data, count);
  }
  template <typename T, std::size_t Rank>
  void put(const std::string& name, View<const T, Rank>& view) {
    if (!view) return;
    std::int64_t count = sizeof(T);
    for (const std::int64_t extent : view.extents) count *= extent;
    view.data = static_cast<const T*>(put(name, view.data, count));
  }
  [[nodiscard]] const nlohmann::json& names() const { return names_; }

 private:
  const cuda::Device& device_;
  std::list<cuda::Memory> all_;
  nlohmann::json names_ = nlohmann::json::object();
};

RowStatistics statistics_of(const std::string& wanted, const std::array<std::int64_t, 3>& rows,
                            OnDevice& on) {
  RowStatistics result;
  const std::int64_t count = rows[0] * rows[1] * rows[2];
  for_each_statistic(
      [&](const Statistic& statistic, auto& view) {
        const std::string name(statistic.name);
        if (wanted != "all" && name != "lse" && name != wanted) return;
        using Number = std::remove_pointer_t<decltype(view.data)>;
        const auto bytes = static_cast<std::int64_t>(sizeof(Number)) * count;
        view = contiguous_view(static_cast<Number*>(on.put(name, nullptr, bytes)), rows);
      },
      result);
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw Error("[call_on_device] arguments must be KERNELS WANTED LINE; got others");
  const check::Data data(check::parse_problem(argv[3]));
  const cuda::Device device(argv[1]);
  OnDevice on(device);
  AttentionInput in = data.input();
  AttentionOptions options = data.options();
  on.put("q", in.q);
  on.put("k", in.k);
  on.put("v", in.v);
  on.put("block_table", in.pages.block_table);
  if (std::getenv("ISENTROPE_ON_HOST") == nullptr) on.put("key_end", options.mask.key_end);
  if (std::getenv("ISENTROPE_STRIDED") != nullptr) options.mask.key_end.strides[0] = 2;
  on.put("cu_seqlens_q", options.mask.cu_seqlens_q);
  on.put("cu_seqlens_k", options.mask.cu_seqlens_k);
  const auto [batch, heads, queries, dim] = in.q.extents;
  const std::array shape{batch, heads, queries, in.v.extents[3]};
  const std::int64_t bytes = size_of(in.q.type) * batch * heads * queries * in.v.extents[3];
  Tensor output = contiguous_view(static_cast<BFloat16*>(on.put("output", nullptr, bytes)), shape);
  output.type = in.q.type;
  const RowStatistics statistics = statistics_of(argv[2], {batch, heads, queries}, on);
  int stream = 0;
  cuda::attention_forward(in, options, {output, statistics}, {device, &stream});
  nlohmann::json told = on.names();
  told["stream"] = reinterpret_cast<std::uint64_t>(&stream);
  std::cout << told << '\n';
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
