// What oneDNN's algorithms share: its engine, its primitives in our memory and threads. Internal.
#pragma once

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>

#include "conv/algo.h"
#include "conv/error.h"
#include "kernels_cpu/device/team.h"

namespace convlab::cpu::onednn {

using dnnl::memory;

inline const dnnl::engine& engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

// oneDNN's ISA can be limited once, before its first use. The first device decides; later calls
// return the name that it was given.
inline const std::string& isa_in_force(const std::string& wanted) {
  static const std::string chosen = [&]() -> std::string {
    if (wanted == "avx512") return wanted;  // no limit
    const auto limit = wanted == "avx2" ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41;
    return dnnl::set_max_cpu_isa(limit) == dnnl::status::success ? wanted : "its own choice";
  }();
  return chosen;
}

inline std::optional<Refusal> refuse_other_isa(const DeviceInfo& device) {
  const std::string& isa = isa_in_force(device.isa);
  if (isa == device.isa) return {};
  return Refusal{Field::device,
                 fmt::format("the ISA {}, which oneDNN already uses in this process", isa),
                 device.isa};
}

inline dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// A primitive whose scratchpad is in the caller's memory.
class Primitive {
 public:
  using Args = std::unordered_map<int, memory>;

  explicit Primitive(const dnnl::primitive_desc_base& pd, const dnnl::primitive& primitive)
      : primitive_(primitive), scratchpad_(pd.query_md(dnnl::query::scratchpad_md)) {}

  std::size_t scratchpad_bytes() const { return scratchpad_.get_size(); }

  void execute(Args args, std::byte* scratchpad) const {
    args.insert({DNNL_ARG_SCRATCHPAD, memory(scratchpad_, engine(), scratchpad)});
    dnnl::stream stream(engine());
    primitive_.execute(stream, args);
    stream.wait();
  }

 private:
  dnnl::primitive primitive_;
  memory::desc scratchpad_;
};

inline Primitive reorder(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, user_scratchpad());
  return Primitive(pd, dnnl::reorder(pd));
}

inline memory view(const memory::desc& desc, const void* data) {
  return memory(desc, engine(), const_cast<void*>(data));
}

// A primitive knows how many threads it was made for, and with fewer it waits for ever or leaves
// outputs unwritten.
inline ThreadCount require_threads(int threads) {
  if (const int team = team_here(threads); team < threads)
    throw EnvironmentError(
        fmt::format("this oneDNN plan is for {} threads, and OpenMP gives {} here: run it "
                    "outside of parallel regions, or make it inside",
                    threads, team));
  return ThreadCount(threads);
}

}  // namespace convlab::cpu::onednn
