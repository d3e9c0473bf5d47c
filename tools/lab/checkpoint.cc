#include "tools/lab/checkpoint.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "isentrope/error.h"
#include "tools/lab/safetensors.h"

namespace isentrope::lab {
using nlohmann::json;

namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, std::string_view got) {
  throw Error(fmt::format("[checkpoint] {} must be a checkpoint of this program; got {}",
                          path.string(), got));
}

}  // namespace

void require_same(const json& saved, const json& wanted, const std::filesystem::path& path) {
  for (const auto& [name, value] : wanted.items()) {
    const json saved_value = saved.value(name, json());
    if (saved_value == value) continue;
    throw Error(
        fmt::format("[checkpoint] {} is of another configuration: {} is {} there and {} here",
                    path.string(), name, saved_value.dump(), value.dump()));
  }
}

void save_checkpoint(const std::filesystem::path& path, const json& configuration,
                     const Trainer& trainer, const TrainingHistory& history) {
  const json run = {{"configuration", configuration},
                    {"steps_done", trainer.steps_done()},
                    {"loss", history.loss},
                    {"seconds", history.seconds}};
  save_tensors({{{"isentrope", run.dump()}}, trainer.state()}, path);
}

Checkpoint load_checkpoint(const std::filesystem::path& path, const json& configuration) {
  TensorFile file = load_tensors(path);
  const auto text = file.metadata.find("isentrope");
  if (text == file.metadata.end()) refuse_file(path, "no metadata named isentrope");
  try {
    const json run = json::parse(text->second);
    require_same(run.at("configuration"), configuration, path);
    return {run.at("steps_done"), {run.at("loss"), run.at("seconds")}, std::move(file.tensors)};
  } catch (const json::exception& error) {
    refuse_file(path, error.what());
  }
}

}  // namespace isentrope::lab
