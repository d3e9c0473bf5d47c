#include "lab/other_rank.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "command/files.h"
#include "isentrope/error.h"
#include "lab/dealing.h"
#include "lab/interrupt.h"
#include "lab/training.h"

namespace isentrope::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kBetweenReports = std::chrono::milliseconds(500);

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "isentrope-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw Error(fmt::format("[ranks] a temporary folder must be there; got none as {}", name));
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Tells the first rank, which shows it.
class SentProgress : public Progress {
 public:
  explicit SentProgress(Ranks& ranks) : Progress(stderr, Style::silent), ranks_(ranks) {}

  void say(const std::string& text) override {
    ranks_.send(0, {{{"kind", "say"}, {"text", text}}});
  }
  void now(const std::string& text) override {
    ranks_.send(0, {{{"kind", "now"}, {"text", text}}});
  }
  void step(const std::string& model, std::int64_t step, std::int64_t steps, double loss,
            double seconds, std::int64_t taken) override {
    untold_ += taken;
    const auto time = std::chrono::steady_clock::now();
    if (step > 1 && step < steps && time - told_ < kBetweenReports) return;
    ranks_.send(0, {{{"kind", "step"},
                     {"model", model},
                     {"step", step},
                     {"steps", steps},
                     {"loss", loss},
                     {"seconds", seconds},
                     {"taken", untold_}}});
    untold_ = 0;
    told_ = time;
  }

 private:
  Ranks& ranks_;
  std::int64_t untold_ = 0;
  std::chrono::steady_clock::time_point told_{};
};

void require_equal(const std::string& what, const json& first, const json& here) {
  if (first == here) return;
  throw Error(fmt::format("[ranks] {} must be the same on every rank; got {} on rank 0 and {} here",
                          what, first.dump(), here.dump()));
}

void require_same_experiment(const json& plan, const std::vector<Training>& trainings) {
  require_equal("the number of trainings", plan.at("trainings").size(), trainings.size());
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    const json description = trainings[i].description();
    for (const auto& [part, members] : description.items()) {
      for (const auto& [name, here] : members.items())
        require_equal(name, plan.at("trainings")[i].at(part).at(name), here);
    }
  }
}

void train(const ExperimentOptions& asked, Ranks& ranks) {
  const RankMessage plan = ranks.wait_for(0);
  require_equal("the version of isentrope", plan.head.at("version"), ISENTROPE_VERSION);
  const TemporaryFolder scratch;
  ExperimentOptions options = asked;
  options.output = scratch.path();
  options.existing = RunFolder::Existing::resume;
  RunFolder folder(options.output, options.existing);
  folder.open();
  if (!plan.content.empty()) command::write_file(folder.tokenizer(), plan.content);

  SentProgress progress(ranks);
  const Material material = prepare_material(options, folder, progress);
  const ModelConfig model = model_of(options, *material.tokenizer);
  const std::vector<Training> trainings = trainings_of(options, folder, material);
  require_same_experiment(plan.head, trainings);
  const Deal deal{plan.head.at("left"), ranks.size(), options.batch};
  require_memory_of_ranks(ranks, deal, options, model);

  note_interrupts();
  run_dealt(ranks, deal, [&](std::size_t i, const RankGroup* group) {
    const Training& training = trainings[i];
    ranks.send(0, {{{"kind", "wanted"}, {"training", i}}});
    if (const RankMessage there = ranks.wait_for(0); !there.content.empty())
      command::write_file(training.checkpoint_path(), there.content);
    training.run(progress,
                 {.group = group, .saved = [&](const fs::path& path) {
                    const bool measured = path == training.record_path();
                    ranks.send(0, {{{"kind", measured ? "record" : "checkpoint"}, {"training", i}},
                                   command::read_file(path)});
                  }});
  });
}

}  // namespace

void take_part(const ExperimentOptions& options, Ranks& ranks) {
  at::set_num_threads(static_cast<int>(options.threads));
  const auto leave = [&](bool finished) {
    ranks.send(0, {{{"kind", "left"}, {"finished", finished}}});
  };
  try {
    train(options, ranks);
    leave(true);
  } catch (const Interrupted&) {
    leave(false);
    if (const auto failure = ranks.failure()) throw RankFailure(*failure);
    throw;
  } catch (const RankFailure&) {
    leave(false);
    throw;
  } catch (const std::exception& error) {
    ranks.fail(error);
    leave(false);
    throw;
  }
}

}  // namespace isentrope::lab
