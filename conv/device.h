// A device: facts, memory, streams, and the operations of layers other than convolution. It
// outlives everything it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "conv/layer_ops.h"
#include "conv/types/span.h"

namespace convlab {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;              // among several cards: cuda:1
  std::string bus_id;         // a card's, as nvidia-smi shows it: "0000:1b:00.0"
  std::string name;           // "AMD EPYC 9R45", "NVIDIA H200"
  std::string isa;            // in force: "baseline", "avx2", "avx512"; "sm_90" on CUDA
  int vector_bytes = 16;      // of the ISA in force; 64 with AVX-512
  int threads = 1;            // OpenMP threads that runs use; multiprocessors on CUDA
  std::int64_t l1_bytes = 0;  // data cache of one core; shared memory of one multiprocessor
  std::int64_t block_shared_bytes = 0;  // the most shared memory of one block on CUDA
  std::int64_t l2_bytes = 0;            // of one core, or the card's
  std::int64_t l3_bytes = 0;            // shared; 0 on CUDA
  std::int64_t memory_bytes = 0;        // usable in total
  // A card's theoretical peaks per second, from its units and clocks: multiply-adds of its ordinary
  // cores, 2 FLOPs each, and bytes of memory. 0 on the CPU, whose ceilings are measured by
  // its loops (conv/optional/ceiling_loops.h).
  double peak_f32_flops = 0, peak_f64_flops = 0, peak_bandwidth = 0;
  std::map<std::string, std::string> libraries;  // library name -> version and build, as loaded
  // A card's driver compiles kernels from PTX when they are first used: the build has none for it.
  bool compiles_kernels = false;
};

// Memory on a device, freed with the object. Aligned to at least 64 bytes; contents undefined.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::byte* data, std::size_t bytes, std::function<void(std::byte*)> free)
      : data_(data, std::move(free)), bytes_(bytes) {}

  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  std::size_t bytes() const { return bytes_; }
  Span span() const { return {data_.get(), bytes_}; }

 private:
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{nullptr, [](std::byte*) {}};
  std::size_t bytes_ = 0;
};

// An ordered queue of work. On the CPU work is done when the call returns. On CUDA a stream owns
// the vendor libraries' handles.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void synchronize() = 0;  // throws Error or DeviceLost if anything queued has failed

  // Seconds per call, measured by the device. `enqueue`, which only queues on this stream, is
  // called back to back, about `runs` times but no more (once if runs is 1), after earlier queued
  // work is done. On the CPU, the host's clock is used. On CUDA, events around the work are used,
  // and the work is replayed as a graph so that the host's launch rate does not limit short
  // kernels.
  virtual double time(const std::function<void()>& enqueue, int runs);
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const noexcept = 0;

  virtual Buffer allocate(std::size_t bytes) = 0;         // on the device; throws OutOfMemory
  virtual Buffer allocate_pinned(std::size_t bytes) = 0;  // on the host, fast to copy from
  // Queued: `from` must stay unchanged until the stream is synchronized.
  virtual void copy_to_device(std::byte* to, ConstSpan from, Stream&) = 0;
  virtual void copy_to_host(Span to, const std::byte* from, Stream&) = 0;  // done on return
  virtual void fill(Span, std::byte value, Stream&) = 0;                   // queued

  virtual std::unique_ptr<Stream> make_stream() = 0;
  // Queued: evicts this memory from every cache of the device.
  virtual void evict_from_caches(std::span<const ConstSpan> memory, Stream&) = 0;
  virtual const LayerOps& ops() const = 0;
};

}  // namespace convlab
