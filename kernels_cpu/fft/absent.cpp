// `fft` in a build without FFTW: it refuses everything.
#include "conv/error.h"
#include "kernels_cpu/algos.h"

namespace convlab::cpu {
namespace {

constexpr const char* absent = "FFTW, which this build lacks (CONVLAB_FFTW=OFF)";

class FftAbsent final : public ConvAlgo {
 public:
  const AlgoInfo& info() const noexcept override {
    static const AlgoInfo info{.id = "fft",
                               .version = 2,
                               .device = DeviceKind::cpu,
                               .origin = Origin::own,
                               .summary = "whole-image FFT: needs " + std::string(absent),
                               .libraries = {}};
    return info;
  }
  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override {
    return Refusal{Field::library, absent};
  }
  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }
  WorkEstimate work(const ConvProblem&, const Config&, Device&) const override { return {}; }
  std::unique_ptr<ConvPlan> plan(const ConvProblem&, const Config&, Device&) const override {
    throw EnvironmentError("fft needs " + std::string(absent));
  }
};

}  // namespace

std::string fftw_version() { return {}; }

std::unique_ptr<ConvAlgo> make_fft() { return std::make_unique<FftAbsent>(); }

}  // namespace convlab::cpu
