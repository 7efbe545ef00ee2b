// A CPU device from which tests derive devices with changed behaviour or changed properties.
#pragma once

#include <memory>

#include "conv/optional/ceiling_loops.h"
#include "kernels_cpu/cpu.h"

namespace convlab {

class CpuBackedDevice : public Device, public CeilingDevice {
 public:
  explicit CpuBackedDevice(const CpuOptions& options = {}) : cpu_(make_cpu_device(options)) {}

  const DeviceInfo& info() const noexcept override { return info_; }
  Buffer allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  Buffer allocate_pinned(std::size_t bytes) override { return cpu_->allocate_pinned(bytes); }
  void copy_to_device(std::byte* to, ConstSpan from, Stream& stream) override {
    cpu_->copy_to_device(to, from, stream);
  }
  void copy_to_host(Span to, const std::byte* from, Stream& stream) override {
    cpu_->copy_to_host(to, from, stream);
  }
  void fill(Span span, std::byte value, Stream& stream) override {
    cpu_->fill(span, value, stream);
  }
  std::unique_ptr<Stream> make_stream() override { return cpu_->make_stream(); }
  void evict_from_caches(std::span<const ConstSpan> memory, Stream& stream) override {
    cpu_->evict_from_caches(memory, stream);
  }
  const LayerOps& ops() const override { return cpu_->ops(); }
  std::vector<CeilingLoop> ceiling_loops(int threads) override {
    return dynamic_cast<CeilingDevice&>(*cpu_).ceiling_loops(threads);
  }

 private:
  std::unique_ptr<Device> cpu_;

 protected:
  DeviceInfo info_ = cpu_->info();
};

}  // namespace convlab
