#include "lab/first_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <optional>

#include "command/files.h"
#include "isentrope/error.h"
#include "lab/interrupt.h"

namespace isentrope::lab {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenVisits = 20ms;
constexpr auto kBetweenCalls = 1s;
// After an interruption: torchrun ends by force whoever is there after half a minute.
constexpr auto kToSave = 20s;
constexpr auto kToStir = 5s;

// Where the other ranks' messages end up.
class Desk {
 public:
  Desk(Ranks& ranks, const std::vector<Training>& trainings, Progress& progress)
      : ranks_(ranks),
        trainings_(trainings),
        progress_(progress),
        seats_(static_cast<std::size_t>(ranks.size())) {
    seats_.front() = {.left = true, .finished = true};
  }

  void take_mail() {
    for (std::int64_t rank = 1; rank < ranks_.size(); ++rank) {
      while (const auto message = ranks_.receive(rank)) handle(rank, *message);
    }
  }

  [[nodiscard]] bool all_left() const { return std::ranges::all_of(seats_, &Seat::left); }
  [[nodiscard]] bool all_finished() const { return std::ranges::all_of(seats_, &Seat::finished); }

  // A rank that has not left and has not stirred for so long.
  [[nodiscard]] std::optional<std::int64_t> silent(std::chrono::milliseconds patience) {
    for (std::int64_t rank = 1; rank < ranks_.size(); ++rank) {
      if (!seat(rank).left && ranks_.silence(rank) > patience) return rank;
    }
    return {};
  }

  // Nothing more is expected of it.
  void give_up(std::int64_t rank) { seat(rank).left = true; }

 private:
  struct Seat {
    bool left = false, finished = false;
  };

  Seat& seat(std::int64_t rank) { return seats_[static_cast<std::size_t>(rank)]; }

  void handle(std::int64_t rank, const RankMessage& message) {
    const json& head = message.head;
    const std::string kind = head.at("kind");
    const auto training = [&]() -> const Training& {
      return trainings_.at(head.at("training").get<std::size_t>());
    };
    if (kind == "wanted") {
      const std::filesystem::path path = training().checkpoint_path();
      const bool there = std::filesystem::exists(path);
      ranks_.send(rank, {json::object(), there ? command::read_file(path) : ""});
    } else if (kind == "checkpoint") {
      command::write_file(training().checkpoint_path(), message.content);
    } else if (kind == "record") {
      command::write_file(training().record_path(), message.content);
    } else if (kind == "step") {
      progress_.step(head.at("model"), head.at("step"), head.at("steps"), head.at("loss"),
                     head.at("seconds"), head.at("taken"));
    } else if (kind == "say") {
      progress_.say(head.at("text"));
    } else if (kind == "now") {
      progress_.now(head.at("text"));
    } else {
      seat(rank) = {.left = true, .finished = head.at("finished")};
    }
  }

  Ranks& ranks_;
  const std::vector<Training>& trainings_;
  Progress& progress_;
  std::vector<Seat> seats_;
};

void announce(Ranks& ranks, const Deal& deal, const std::vector<Training>& trainings,
              const std::string& pieces) {
  json plan = {{"version", ISENTROPE_VERSION}, {"left", deal.left}, {"trainings", json::array()}};
  for (const Training& training : trainings) plan["trainings"].push_back(training.description());
  for (std::int64_t rank = 1; rank < ranks.size(); ++rank) ranks.send(rank, {plan, pieces});
}

// Until this rank's own trainings and those of the others are over, well or not. The rank that was
// lost, if one was.
std::optional<std::int64_t> attend(Ranks& ranks, const std::future<void>& own, Desk& desk) {
  std::optional<std::int64_t> lost;
  Clock::time_point called = Clock::now();
  std::optional<Clock::time_point> saving_since;
  while (true) {
    const bool own_over = own.wait_for(kBetweenVisits) == std::future_status::ready;
    desk.take_mail();
    if (own_over && desk.all_left()) return lost;
    if (interrupted() && !saving_since) saving_since = Clock::now();
    if (saving_since && Clock::now() - *saving_since > kToSave) return lost;
    if (Clock::now() - called < kBetweenCalls) continue;
    called = Clock::now();
    if (const auto rank = desk.silent(saving_since ? kToStir : ranks.patience())) {
      desk.give_up(*rank);
      if (!saving_since) {
        lost = rank;
        ranks.fail(lost_rank(*rank, ranks.patience()));
        interrupt();
      }
    }
  }
}

}  // namespace

void lead(Ranks& ranks, const Deal& deal, const std::vector<Training>& trainings,
          const std::string& pieces, Progress& progress) {
  announce(ranks, deal, trainings, pieces);
  Desk desk(ranks, trainings, progress);
  std::future<void> own = std::async(std::launch::async, [&] {
    try {
      run_dealt(ranks, deal, [&](std::size_t i, const RankGroup* group) {
        trainings[i].run(progress, {.group = group});
      });
    } catch (const Interrupted&) {
      throw;
    } catch (const std::exception& error) {
      ranks.fail(error);
      throw;
    }
  });
  // What went wrong first comes before what that did to this rank.
  if (const auto lost = attend(ranks, own, desk)) throw lost_rank(*lost, ranks.patience());
  if (const auto failure = ranks.failure(); failure && !failure->starts_with("rank 0: "))
    throw RankFailure(*failure);
  own.get();
  if (!desk.all_finished()) throw Interrupted();
}

}  // namespace isentrope::lab
