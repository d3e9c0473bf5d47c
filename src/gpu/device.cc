#include "src/gpu/device.h"

#include <sstream>
#include <utility>

#include "isentrope/error.h"
#include "src/rules/numbers.h"

namespace isentrope::cuda {
namespace {

int attribute_of(int device, int attribute) {
  int value = 0;
  driver().require(driver().attribute(&value, attribute, device), "describe the device");
  return value;
}

// For destructors, which cannot report errors.
template <typename Body>
void quietly_within(Handle context, const Body& body) {
  Handle before = nullptr;
  if (driver().push_context(context) != 0) return;
  body();
  (void)driver().pop_context(&before);
}

}  // namespace

Current::Current(Handle context) {
  driver().require(driver().push_context(context), "make the device's context current");
}

Current::~Current() {
  Handle context = nullptr;
  (void)driver().pop_context(&context);
}

Device::State::State(const std::filesystem::path& kernels, int ordinal)
    : manifest_(kernels), ordinal_(ordinal) {
  int count = 0;
  driver().require(driver().device_count(&count), "count devices");
  if (ordinal < 0 || ordinal >= count) {
    throw Error("[cuda] ordinal must be that of one of " + std::to_string(count) +
                " devices; got " + std::to_string(ordinal));
  }
  driver().require(driver().device(&device_, ordinal), "find the device");
  units_ = attribute_of(device_, kUnits);
  choice_ = manifest_.choice(10 * attribute_of(device_, kMajor) + attribute_of(device_, kMinor));
  driver().require(driver().retain_context(&context_, device_), "make a context");
}

Device::State::~State() {
  const Driver& of = driver();
  quietly_within(context_, [&] {
    for (const auto& [kernel, module] : modules_) (void)of.unload_module(module);
    for (const auto& [key, table] : tables_) (void)of.free(table.address);
  });
  (void)of.release_context(device_);
}

Loaded Device::State::loaded(const Kernel& kernel) {
  const Driver& of = driver();
  const std::string image = manifest_.image(kernel, choice_.cubin);
  Handle module = nullptr, function = nullptr;
  of.require(of.load_module(&module, image.c_str()), ("load " + kernel.file).c_str());
  modules_[&kernel] = module;
  of.require(of.function(&function, module, kernel.symbol.c_str()), "find a kernel");
  if (kernel.shared > kSharedUnasked) {
    of.require(of.set_attribute(function, kSharedMemory, static_cast<int>(kernel.shared)),
               "give a kernel its shared memory");
  }
  return {&kernel, function};
}

Loaded Device::State::find(const Needs& needs) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = found_.try_emplace(text_of(needs));
  if (!is_new) return at->second;
  try {
    const Kernel& kernel = manifest_.find(choice_.chip, needs);
    // One kernel may serve different requirements.
    for (const auto& [text, other] : found_) {
      if (other.kernel == &kernel) return at->second = other;
    }
    return at->second = loaded(kernel);
  } catch (...) {
    found_.erase(at);
    throw;
  }
}

RuleTable Device::State::table(const ScaleRule& rule, LengthSource source, std::int64_t dim,
                               std::int64_t first, std::int64_t count, bool capped) {
  std::ostringstream key;
  key << rule.text() << ' ' << static_cast<int>(source) << ' ' << dim << ' ' << first << ' '
      << count << ' ' << capped;
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(key.str());
  if (found != tables_.end()) return found->second;
  const RuleNumbers numbers = rule_numbers(rule, source, dim, first, count, capped);
  RuleTable table{.heads = numbers.heads, .count = numbers.count};
  const std::size_t bytes = numbers.factors.size() * sizeof(double);
  if (bytes > 0) {
    driver().require(driver().allocate(&table.address, bytes), "allocate a rule's table");
    const int copied = driver().to_device(table.address, numbers.factors.data(), bytes);
    if (copied != 0) (void)driver().free(table.address);
    driver().require(copied, "copy a rule's table, which no captured stream can");
  }
  return tables_[key.str()] = table;
}

void* Device::State::allocate(std::size_t bytes) const {
  const Current current(context_);
  Address address = 0;
  driver().require(driver().allocate(&address, bytes), "allocate memory");
  return reinterpret_cast<void*>(address);  // NOLINT(*-no-int-to-ptr): the driver's are numbers
}

void Device::State::free(void* data) const noexcept {
  if (data == nullptr) return;
  quietly_within(context_, [&] { (void)driver().free(reinterpret_cast<Address>(data)); });
}

void Device::State::write(void* to, const void* from, std::size_t bytes) const {
  const Current current(context_);
  driver().require(driver().to_device(reinterpret_cast<Address>(to), from, bytes),
                   "copy to the device");
}

void Device::State::read(void* to, const void* from, std::size_t bytes) const {
  const Current current(context_);
  driver().require(driver().to_host(to, reinterpret_cast<Address>(from), bytes),
                   "copy from the device");
}

Device::Device(const std::filesystem::path& kernels, int ordinal)
    : state_(std::make_unique<State>(kernels, ordinal)) {}
Device::~Device() = default;
Device::Device(Device&&) noexcept = default;
Device& Device::operator=(Device&&) noexcept = default;

Memory::Memory(const Device& device, std::size_t bytes)
    : device_(&device.state()), data_(device_->allocate(bytes)), bytes_(bytes) {}

Memory::~Memory() { device_->free(data_); }

Memory::Memory(Memory&& other) noexcept
    : device_(other.device_), data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

void Memory::write(const void* from) { device_->write(data_, from, bytes_); }

void Memory::read(void* to) const { device_->read(to, data_, bytes_); }

}  // namespace isentrope::cuda
