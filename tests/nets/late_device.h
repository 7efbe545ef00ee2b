// A CPU device whose copies from pinned memory happen as late as a card's may: when their stream is
// synchronized, of whatever is there then. Kernels run at once, as ever.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels_cpu/cpu.h"

namespace convlab {

class LateDevice final : public Device {
 public:
  // As a card, it has memory of its own, which a DataLoader copies to; as a CPU, nets run on it,
  // and what is copied is there at once as well.
  explicit LateDevice(DeviceKind kind) : info_(cpu_->info()) { info_.kind = kind; }

  const DeviceInfo& info() const noexcept override { return info_; }
  Buffer allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  Buffer allocate_pinned(std::size_t bytes) override {
    Buffer buffer = cpu_->allocate_pinned(bytes);
    const std::lock_guard lock(mutex_);
    pinned_.push_back(buffer.span());
    return buffer;
  }
  void copy_to_device(std::byte* to, ConstSpan from, Stream& stream) override {
    const std::lock_guard lock(mutex_);
    const bool late = std::any_of(pinned_.begin(), pinned_.end(), [&](Span pinned) {
      return from.data() >= pinned.data() && from.data() < pinned.data() + pinned.size();
    });
    if (late) static_cast<LateStream&>(stream).copies.emplace_back(to, from);
    if (!late || info_.kind == DeviceKind::cpu) std::copy(from.begin(), from.end(), to);
  }
  void copy_to_host(Span to, const std::byte* from, Stream& stream) override {
    stream.synchronize();
    std::copy_n(from, to.size(), to.data());
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<LateStream>(); }
  void evict_from_caches(std::span<const ConstSpan>, Stream&) override {}
  const LayerOps& ops() const override { return cpu_->ops(); }

 private:
  struct LateStream final : Stream {
    void synchronize() override {
      for (const auto& [to, from] : std::exchange(copies, {}))
        std::copy(from.begin(), from.end(), to);
    }
    std::vector<std::pair<std::byte*, ConstSpan>> copies;
  };

  const std::unique_ptr<Device> cpu_ = make_cpu_device({2, ""});
  DeviceInfo info_;
  std::mutex mutex_;
  std::vector<Span> pinned_;
};

}  // namespace convlab
