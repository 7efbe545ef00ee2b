// The interface of every convolution algorithm.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conv/config.h"
#include "conv/device.h"
#include "conv/phases.h"
#include "conv/problem.h"

namespace convlab {

// The property of a problem, or of the device, that an algorithm does not support.
enum class Field : std::uint8_t {
  dtype,
  pass,
  layout,
  depth,   // D, T and Z
  filter,  // R and S
  stride,
  dilation,
  groups,
  padding,
  channels,  // C and K
  image,     // H and W, P and Q
  size,      // elements, or a count that a kernel limits
  epilogue,
  library,  // a vendor's: absent, or without such a convolution
  device,
};

// Why an algorithm does not take a problem. {Field::stride, "stride 1", "2x2"} reads "needs stride
// 1, has 2x2"; without `has` it reads "needs stride 1"; without `needs` it is a library's own
// message, `has`. Clauses without full stop.
struct Refusal {
  Field field;
  std::string needs;
  std::string has = {};

  std::string reason() const;
};

enum class Origin : std::uint8_t { own, vendor };

struct AlgoInfo {
  std::string id;  // "winograd"; unique in a registry; vendor ones are "cudnn.fft", "onednn.direct"
  int version = 1;  // raise it when results or speed may change: the store drops only these rows
  DeviceKind device = DeviceKind::cpu;
  Origin origin = Origin::own;
  std::string summary;                 // one line for `convlab list`
  std::vector<std::string> libraries;  // names in DeviceInfo::libraries that it depends on
  std::string family = {};             // shared by several, "winograd"; empty: the only one
};

// On a card each pointer of a run is a multiple of this many bytes: vector loads and cuDNN need it.
inline constexpr std::int64_t operand_alignment = 16;
// Whether a batch may be run in parts like this one.
inline bool keeps_alignment(const ConvProblem& part) {
  return part.x_bytes() % operand_alignment == 0 && part.y_bytes() % operand_alignment == 0;
}

// Pointers for one run. The pass and the epilogue decide which are read; the rest are ignored. All
// point to device memory in the problem's layouts. Nothing overlaps. `residual` and `out` must
// differ too, since tiles may overlap and partial sums may be stored.
struct ConvArgs {
  const void* x = nullptr;     // forward, backward_filter
  const void* w = nullptr;     // forward, backward_data: KCTRS, or what pack_filter wrote if the
                               // plan's packed_filter_bytes() > 0
  const void* dy = nullptr;    // backward_data, backward_filter
  const void* bias = nullptr;  // K values, if epilogue.bias
  const void* residual = nullptr;  // like y, if epilogue.residual
  void* out = nullptr;             // y, dx, or dw (KCTRS)
  PhaseRecorder* phases = nullptr;
};

// Immutable, made for one problem, config and device. May be run from several threads at once with
// different workspaces and outputs.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual std::size_t workspace_bytes() const noexcept = 0;
  virtual std::size_t packed_filter_bytes() const noexcept { return 0; }  // 0: takes w as KCTRS
  // w: KCTRS of the problem's dtype; packed: packed_filter_bytes() bytes, 64-byte aligned.
  virtual void pack_filter(ConstSpan w, Span packed, Stream&) const;
  // Allocates nothing. The workspace has at least workspace_bytes() and is 64-byte aligned. Its
  // contents are garbage, and so are the output's unless the problem accumulates.
  virtual void run(const ConvArgs&, Workspace, Stream&) const = 0;
};

// One strategy. Stateless.
class ConvAlgo {
 public:
  virtual ~ConvAlgo() = default;
  virtual const AlgoInfo& info() const noexcept = 0;
  virtual std::optional<Refusal> refuse(const ConvProblem&, Device&) const = 0;
  // The configurations worth trying, at least one; front() is the untuned default. This function
  // and those below are only called with a problem that is not refused.
  virtual std::vector<Config> configs(const ConvProblem&, Device&) const = 0;
  // Bit-identical results from run to run for one thread count.
  virtual bool deterministic(const ConvProblem&, const Config&) const = 0;
  virtual WorkEstimate work(const ConvProblem&, const Config&, Device&) const = 0;
  // Throws InputError for a config this algorithm does not know.
  virtual std::unique_ptr<ConvPlan> plan(const ConvProblem&, const Config&, Device&) const = 0;
};

}  // namespace convlab
