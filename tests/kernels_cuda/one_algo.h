// Tests of one algorithm of CUDA's registry.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autotune/testbed/verify.h"
#include "conv/registry.h"
#include "kernels_cuda/cuda.h"

namespace convlab {

inline const AlgoRegistry& cuda_registry() {
  static const AlgoRegistry registry = [] {
    AlgoRegistry r;
    append_cuda_algos(r);
    return r;
  }();
  return registry;
}

inline const RecurrentRegistry& cuda_recurrent() {
  static const RecurrentRegistry registry = [] {
    RecurrentRegistry r;
    append_cuda_recurrent_algos(r);
    return r;
  }();
  return registry;
}

inline const ConvAlgo& cuda_algo(const std::string& id) {
  return cuda_registry().get(DeviceKind::cuda, id);
}

inline ConvProblem problem(const std::string& text, Pass pass, Layout layout = Layout::nchw,
                           DType dtype = DType::f32) {
  ConvProblem p = parse_problem(text).problem;
  p.pass = pass;
  p.dtype = dtype;
  p.x_layout = p.y_layout = layout;
  return p;
}

class OneCudaAlgo : public testing::Test {
 protected:
  explicit OneCudaAlgo(const std::string& id) : algo_(cuda_algo(id)) {}

  void expect_right(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
                    double max_error = 0) {
    const CheckResult verdict =
        check_candidate(algo_, p, config, reference, *device_, *stream_, max_error);
    EXPECT_EQ(verdict.status, Status::ok)
        << fmt::format("'{}' {} {} {} {}: {}", config.text(), to_string(p.pass), to_text(p),
                       to_string(p.x_layout), to_string(p.dtype), verdict.reason);
  }

  const ConvAlgo& algo_;
  const std::unique_ptr<Device> device_ = make_cuda_device();
  const std::unique_ptr<Stream> stream_ = device_->make_stream();
};

}  // namespace convlab
