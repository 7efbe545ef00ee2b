// Winograd's transforms of 5x5 filters in f64, which the problems of the registry's test pass by.
#include "tests/kernels_cuda/one_algo.h"

namespace convlab {
namespace {

class PtxWinograd : public OneCudaAlgo {
 protected:
  PtxWinograd() : OneCudaAlgo("winograd") {}
};

TEST_F(PtxWinograd, TakesFiveByFiveInF64) {
  for (const Pass pass : all_passes) {
    const ConvProblem p = problem("mb2ic3ih11oc5oh11kh5ph2", pass, Layout::nchw, DType::f64);
    const ReferenceCase reference(p, 1, DataKind::normal);
    for (const Config& config : algo_.configs(p, *device_))
      expect_right(p, config, reference, 1e-11);
  }
}

}  // namespace
}  // namespace convlab
