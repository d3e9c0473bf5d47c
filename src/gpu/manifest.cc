#include "src/gpu/manifest.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "isentrope/error.h"

namespace isentrope::cuda {
namespace {

constexpr const char* kMaker = "src/gpu/kernels.py makes them";

Kernel kernel_of(const nlohmann::json& entry) {
  Kernel kernel{.kernel = entry.at("kernel"),
                .file = entry.at("file"),
                .symbol = entry.at("symbol"),
                .chip = entry.at("chip"),
                .threads = entry.at("threads"),
                .shared = entry.at("shared"),
                .constants = entry.at("constants"),
                .parameters = {}};
  for (const auto& parameter : entry.at("parameters")) {
    kernel.parameters.push_back(
        {parameter.at("name"), parameter.at("type"), parameter.at("divisible")});
  }
  return kernel;
}

bool fits(const Kernel& kernel, const Needs& needs) {
  const auto has = [&](const auto& need) { return kernel.constant(need.first) == need.second; };
  const auto takes = [&](const auto& need) { return kernel.type_of(need.first) == need.second; };
  const auto computes = [&](const std::string& name) {
    return kernel.constant("WANTED." + name) >= (name == "SUPPORT" ? 1 : 0);
  };
  const auto adds = [&](const std::string& term) { return kernel.constant("GIVEN." + term) != 0; };
  return kernel.kernel == needs.kernel && std::ranges::all_of(needs.constants, has) &&
         std::ranges::all_of(needs.types, takes) && std::ranges::all_of(needs.wanted, computes) &&
         std::ranges::all_of(needs.given, adds);
}

// Cost of a kernel, lower is better: number of statistics and of terms of gradients, and whether
// rows may see keys after their own.
std::pair<std::int64_t, bool> burden(const Kernel& kernel) {
  const auto computed = std::ranges::count_if(kernel.constants, [](const auto& constant) {
    return (constant.first.starts_with("WANTED.") && constant.second >= 0) ||
           (constant.first.starts_with("GIVEN.") && constant.second > 0);
  });
  return {computed, kernel.constant("SHAPE.OWN_LAST") == 0};
}

}  // namespace

std::string text_of(const Needs& needs) {
  std::ostringstream text;
  text << needs.kernel;
  for (const auto& [name, number] : needs.constants) text << ' ' << name << '=' << number;
  for (const auto& [name, type] : needs.types) text << ' ' << name << ":" << type;
  for (const auto& name : needs.wanted) text << ' ' << name;
  for (const auto& name : needs.given) text << " GIVEN." << name;
  return text.str();
}

std::int64_t Kernel::constant(const std::string& name) const {
  const auto found = constants.find(name);
  return found == constants.end() ? 0 : found->second;
}

std::string_view Kernel::type_of(std::string_view parameter) const {
  const auto found = std::ranges::find(parameters, parameter, &Parameter::name);
  return found == parameters.end() ? std::string_view() : std::string_view(found->type);
}

Manifest::Manifest(std::filesystem::path folder) : folder_(std::move(folder)) {
  const std::filesystem::path path = folder_ / "kernels.json";
  std::ifstream file(path);
  if (!file) {
    throw Error("[cuda] kernels must be a folder with kernels.json; got " + folder_.string() +
                " without: " + kMaker);
  }
  try {
    const auto manifest = nlohmann::json::parse(file);
    if (manifest.at("version") != 3) {
      throw Error("[cuda] kernels.json must have version 3; got " + manifest.at("version").dump() +
                  " in " + path.string());
    }
    for (const auto& entry : manifest.at("kernels")) kernels_.push_back(kernel_of(entry));
    manifest.at("numbers").get_to(numbers_);
  } catch (const nlohmann::json::exception& error) {
    throw Error("[cuda] kernels.json must be what src/gpu/kernels.py writes; got " + path.string() +
                ": " + error.what());
  }
}

Manifest::Choice Manifest::choice(int capability) const {
  Choice best;
  for (const Kernel& kernel : kernels_) {
    const bool same = kernel.chip / 10 == capability / 10 && kernel.chip <= capability;
    if (same && kernel.chip > best.chip) best.chip = kernel.chip;
  }
  if (best.chip > 0) return best;
  for (const Kernel& kernel : kernels_) {
    const bool portable = std::filesystem::exists(folder_ / (kernel.file + ".ptx"));
    if (portable && kernel.chip <= capability) return {kernel.chip, false};
  }
  throw Error("[cuda] kernels must have some for compute capability " +
              std::to_string(capability / 10) + "." + std::to_string(capability % 10) +
              "; got none in " + folder_.string() + ": " + kMaker);
}

const Kernel& Manifest::find(int chip, const Needs& needs) const {
  const Kernel* best = nullptr;
  for (const Kernel& kernel : kernels_) {
    if (kernel.chip != chip || !fits(kernel, needs)) continue;
    if (best == nullptr || burden(kernel) < burden(*best)) best = &kernel;
  }
  if (best != nullptr) return *best;
  throw Error("[attention] the call must be one that kernels were compiled for; got none in " +
              folder_.string() + " for " + text_of(needs) + ": " + kMaker);
}

std::string Manifest::image(const Kernel& kernel, bool cubin) const {
  const std::filesystem::path path = folder_ / (kernel.file + (cubin ? ".cubin" : ".ptx"));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (!file || !(bytes << file.rdbuf())) {
    throw Error("[cuda] kernels must be a complete folder; got one without " + path.string());
  }
  return bytes.str();
}

}  // namespace isentrope::cuda
