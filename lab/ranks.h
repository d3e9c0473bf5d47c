// Ranks: the processes that torchrun has started for one run, and what they tell each other through
// its store (c10d's TCPStore).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "isentrope/error.h"

namespace c10d {
class Store;
}

namespace isentrope::lab {

// Another rank failed: its number, and what it said.
class RankFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What one rank tells another: a few words, and the content of a file where one belongs to them.
struct RankMessage {
  nlohmann::json head;
  std::string content{};
};

// Says that a rank has not stirred for so long.
[[nodiscard]] Error lost_rank(std::int64_t rank, std::chrono::milliseconds patience);

class Ranks {
 public:
  // As torchrun says in the environment (RANK, WORLD_SIZE, MASTER_ADDR, ...); none when it says
  // nothing or there is but one rank. Throws Error when that makes no sense, or when no store is
  // there.
  [[nodiscard]] static std::unique_ptr<Ranks> of_environment();
  // How often torchrun has started the ranks again; 0 without torchrun.
  [[nodiscard]] static std::int64_t attempt();

  // `reopen` gives a connection of its own to the store. A rank that does not stir for so long is
  // taken for lost.
  Ranks(std::int64_t rank, std::int64_t size, std::int64_t on_this_machine,
        std::function<c10::intrusive_ptr<c10d::Store>()> reopen,
        std::chrono::milliseconds patience = std::chrono::seconds(60));
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  // The first rank waits for the others, two seconds at most: it may keep the store.
  ~Ranks();

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  // The one that has the output folder, shows progress and writes the result.
  [[nodiscard]] bool is_first() const { return rank_ == 0; }
  [[nodiscard]] std::int64_t on_this_machine() const { return on_this_machine_; }
  // A store of that name within torchrun's, with a connection of its own.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> store(const std::string& name) const;

  // Messages between two ranks arrive in the order in which they were sent. Any thread may send.
  void send(std::int64_t to, const RankMessage& message);
  // The next message of that rank, if it is there.
  std::optional<RankMessage> receive(std::int64_t from);
  // Waits for it. Throws RankFailure, Interrupted, and Error when that rank is lost.
  RankMessage wait_for(std::int64_t from);

  // Counts what all ranks take from one heap: 0, 1, 2, ...
  std::int64_t take();

  // Every rank is told what went wrong, and interrupted (interrupt.h); of several failures the
  // first counts.
  void fail(const std::exception& error) noexcept;
  // Two seconds at most: torchrun ends the others as soon as one has ended.
  void wait_until_noted() noexcept;
  // What a rank failed of.
  [[nodiscard]] std::optional<std::string> failure();
  void note_failure() noexcept;

  // How long that rank has not stirred.
  [[nodiscard]] std::chrono::milliseconds silence(std::int64_t rank);
  [[nodiscard]] std::chrono::milliseconds patience() const { return patience_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pulse {
    std::int64_t beats = 0;
    Clock::time_point at = Clock::now();
  };

  void beat(const std::stop_token& stop);
  void wait_for_count(const char* name, std::int64_t count);

  std::int64_t rank_, size_, on_this_machine_;
  std::function<c10::intrusive_ptr<c10d::Store>()> reopen_;
  std::chrono::milliseconds patience_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::mutex sending_;
  std::vector<std::int64_t> sent_, received_;  // messages, by rank
  std::vector<Pulse> pulses_;
  std::jthread heart_;
};

}  // namespace isentrope::lab
