// A CPU device whose copies from pinned memory happen as late as on a card: when their stream is
// synchronized.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/cpu_backed_device.h"

namespace convlab::nets {

class LateDevice final : public CpuBackedDevice {
 public:
  // As a card it has its own memory, which a DataLoader copies to. As a CPU it runs nets, whose
  // kernels do not wait, so data are copied at once; `changed_early` tells whether the source
  // changed before the stream was synchronized.
  explicit LateDevice(DeviceKind kind) : CpuBackedDevice({2, ""}) { info_.kind = kind; }
  bool changed_early() const { return changed_early_; }

  Buffer allocate_pinned(std::size_t bytes) override {
    Buffer buffer = CpuBackedDevice::allocate_pinned(bytes);
    const std::lock_guard lock(mutex_);
    pinned_.push_back(buffer.span());
    return buffer;
  }
  void copy_to_device(std::byte* to, ConstSpan from, Stream& stream) override {
    const std::lock_guard lock(mutex_);
    const bool late = std::any_of(pinned_.begin(), pinned_.end(), [&](Span pinned) {
      return from.data() >= pinned.data() && from.data() < pinned.data() + pinned.size();
    });
    if (late)
      static_cast<LateStream&>(stream).copies.push_back({to, from, {from.begin(), from.end()}});
    if (!late || info_.kind == DeviceKind::cpu) std::copy(from.begin(), from.end(), to);
  }
  void copy_to_host(Span to, const std::byte* from, Stream& stream) override {
    stream.synchronize();
    std::copy_n(from, to.size(), to.data());
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<LateStream>(*this); }
  void evict_from_caches(std::span<const ConstSpan>, Stream&) override {}

 private:
  struct Copy {
    std::byte* to;
    ConstSpan from;
    std::vector<std::byte> was;
  };
  struct LateStream final : Stream {
    explicit LateStream(LateDevice& d) : device(d) {}
    void synchronize() override {
      const std::lock_guard lock(device.mutex_);
      for (const Copy& copy : std::exchange(copies, {})) {
        if (device.info_.kind == DeviceKind::cuda)
          std::copy(copy.from.begin(), copy.from.end(), copy.to);
        else if (!std::equal(copy.from.begin(), copy.from.end(), copy.was.begin()))
          device.changed_early_ = true;
      }
    }
    LateDevice& device;
    std::vector<Copy> copies;
  };

  std::mutex mutex_;
  std::vector<Span> pinned_;
  std::atomic<bool> changed_early_ = false;
};

}  // namespace convlab::nets
