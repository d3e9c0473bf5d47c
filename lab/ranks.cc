#include "lab/ranks.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lab/interrupt.h"

namespace isentrope::lab {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::uint8_t>;

constexpr auto kBetweenBeats = 1s;
constexpr auto kBetweenLooks = 20ms;
constexpr auto kFarewell = 2s;
constexpr std::size_t kPiece = std::size_t{4} << 20;  // a store takes values of up to 8 MiB

constexpr const char *kFailure = "failure", *kNoted = "failure noted", *kClosed = "closed";

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::int64_t environment_number(const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = environment(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most)
    return value;
  throw Error(fmt::format(
      "[ranks] {} must be a whole number from {} to {}, as torchrun sets it; got \"{}\"", name,
      least, most, text));
}

// Whatever a store says when it cannot be reached any more.
template <typename Use>
auto reach(const Use& use) {
  try {
    return use();
  } catch (const c10::Error& error) {
    throw Error(fmt::format("[ranks] the store of torchrun must be there; got {}",
                            error.what_without_backtrace()));
  }
}

std::string letter(std::int64_t from, std::int64_t to, std::int64_t number) {
  return fmt::format("mail/{}/{}/{}", from, to, number);
}

std::string piece(const std::string& letter, std::size_t i) {
  return fmt::format("{}/{}", letter, i);
}

std::string pulse(std::int64_t rank) { return fmt::format("pulse/{}", rank); }

}  // namespace

Error lost_rank(std::int64_t rank, std::chrono::milliseconds patience) {
  return Error(fmt::format("[ranks] rank {} must stir every second; got nothing for {} s", rank,
                           std::chrono::duration<double>(patience).count()));
}

std::unique_ptr<Ranks> Ranks::of_environment() {
  if (environment("WORLD_SIZE").empty()) return {};
  const std::int64_t size = environment_number("WORLD_SIZE", 1, std::numeric_limits<int>::max());
  const std::int64_t rank = environment_number("RANK", 0, size - 1);
  const std::int64_t here = environment_number("LOCAL_WORLD_SIZE", 1, size);
  if (size == 1) return {};
  const auto port = static_cast<std::uint16_t>(environment_number("MASTER_PORT", 1, 65535));
  const std::string host = environment("MASTER_ADDR");
  if (host.empty()) throw Error("[ranks] MASTER_ADDR must name a machine, as torchrun sets it");
  const bool agent_keeps_it = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";

  // Each attempt begins with an empty one.
  const std::string name = fmt::format("isentrope/{}", attempt());
  const auto open = [=](bool serve) {
    return reach([&] {
      return c10::make_intrusive<c10d::TCPStore>(
          host, c10d::TCPStoreOptions{
                    .port = port, .isServer = serve, .waitWorkers = false, .timeout = 60s});
    });
  };
  c10::intrusive_ptr<c10d::Store> server;
  if (rank == 0 && !agent_keeps_it) server = open(true);
  // The server lives as long as whoever can be asked for a connection to it.
  return std::make_unique<Ranks>(rank, size, here,
                                 [open, name, server]() -> c10::intrusive_ptr<c10d::Store> {
                                   return c10::make_intrusive<c10d::PrefixStore>(name, open(false));
                                 });
}

std::int64_t Ranks::attempt() {
  constexpr const char* kName = "TORCHELASTIC_RESTART_COUNT";
  return environment(kName).empty() ? 0 : environment_number(kName, 0, 1 << 30);
}

Ranks::Ranks(std::int64_t rank, std::int64_t size, std::int64_t on_this_machine,
             std::function<c10::intrusive_ptr<c10d::Store>()> reopen,
             std::chrono::milliseconds patience)
    : rank_(rank),
      size_(size),
      on_this_machine_(on_this_machine),
      reopen_(std::move(reopen)),
      patience_(patience),
      store_(reopen_()),
      sent_(static_cast<std::size_t>(size)),
      received_(static_cast<std::size_t>(size)),
      pulses_(static_cast<std::size_t>(size)),
      heart_([this](const std::stop_token& stop) { beat(stop); }) {}

Ranks::~Ranks() {
  heart_.request_stop();
  heart_.join();
  try {
    store_->add(kClosed, 1);
    if (is_first()) wait_for_count(kClosed, size_);
  } catch (const std::exception&) {
    // Nobody is there.
  }
}

c10::intrusive_ptr<c10d::Store> Ranks::store(const std::string& name) const {
  return c10::make_intrusive<c10d::PrefixStore>(name, reopen_());
}

void Ranks::beat(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any bell;
  std::unique_lock lock(mutex);
  try {
    do {
      store_->add(pulse(rank_), 1);
      if (store_->check({kFailure})) interrupt();
    } while (!bell.wait_for(lock, stop, kBetweenBeats, [&] { return stop.stop_requested(); }));
  } catch (const std::exception&) {
    interrupt();  // whoever needs the store says why
  }
}

void Ranks::send(std::int64_t to, const RankMessage& message) {
  const std::string text =
      message.head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n' +
      message.content;
  const std::scoped_lock lock(sending_);
  const std::string key = letter(rank_, to, sent_[static_cast<std::size_t>(to)]++);
  reach([&] {
    std::size_t pieces = 0;
    for (std::string_view left = text; !left.empty();
         left.remove_prefix(std::min(kPiece, left.size()))) {
      const std::string_view now = left.substr(0, kPiece);
      store_->set(piece(key, pieces++), Bytes(now.begin(), now.end()));
    }
    store_->add(key, static_cast<std::int64_t>(pieces));  // it has arrived when this is there
  });
}

std::optional<RankMessage> Ranks::receive(std::int64_t from) {
  std::int64_t& number = received_[static_cast<std::size_t>(from)];
  const std::string key = letter(from, rank_, number);
  std::string text;
  const bool there = reach([&] {
    if (!store_->check({key})) return false;
    const std::int64_t pieces = store_->add(key, 0);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const std::string name = piece(key, static_cast<std::size_t>(i));
      const Bytes bytes = store_->get(name);
      text.append(bytes.begin(), bytes.end());
      store_->deleteKey(name);
    }
    store_->deleteKey(key);
    return true;
  });
  if (!there) return {};
  ++number;
  const std::size_t end = text.find('\n');
  return RankMessage{nlohmann::json::parse(text.substr(0, end)), text.substr(end + 1)};
}

RankMessage Ranks::wait_for(std::int64_t from) {
  while (true) {
    if (auto message = receive(from)) return *message;
    if (const auto text = failure()) throw RankFailure(*text);
    throw_if_interrupted();
    if (silence(from) > patience_) throw lost_rank(from, patience_);
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

std::int64_t Ranks::take() {
  return reach([&] { return store_->add("taken", 1); }) - 1;
}

void Ranks::fail(const std::exception& error) noexcept {
  try {
    const auto* torch = dynamic_cast<const c10::Error*>(&error);
    const std::string said = fmt::format(
        "rank {}: {}", rank_, torch == nullptr ? error.what() : torch->what_without_backtrace());
    store_->compareSet(kFailure, Bytes(), Bytes(said.begin(), said.end()));
  } catch (const std::exception&) {
    // The store is gone, and with it whoever would hear.
  }
}

void Ranks::wait_for_count(const char* name, std::int64_t count) {
  const Clock::time_point until = Clock::now() + kFarewell;
  while (store_->add(name, 0) < count && Clock::now() < until)
    std::this_thread::sleep_for(kBetweenLooks);
}

void Ranks::wait_until_noted() noexcept {
  try {
    wait_for_count(kNoted, size_ - 1);
  } catch (const std::exception&) {
    // As above.
  }
}

std::optional<std::string> Ranks::failure() {
  return reach([&]() -> std::optional<std::string> {
    if (!store_->check({kFailure})) return {};
    const Bytes text = store_->get(kFailure);
    return std::string(text.begin(), text.end());
  });
}

void Ranks::note_failure() noexcept {
  try {
    store_->add(kNoted, 1);
  } catch (const std::exception&) {
    // Nobody asks any more.
  }
}

std::chrono::milliseconds Ranks::silence(std::int64_t rank) {
  Pulse& last = pulses_[static_cast<std::size_t>(rank)];
  const std::int64_t beats = reach([&] { return store_->add(pulse(rank), 0); });
  if (beats != last.beats) last = {beats, Clock::now()};
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last.at);
}

}  // namespace isentrope::lab
