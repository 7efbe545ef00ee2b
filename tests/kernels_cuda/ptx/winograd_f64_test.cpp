// Winograd's transforms in f64 that the problems of the registry's test may pass by.
#include "tests/kernels_cuda/one_algo.h"

namespace convlab {
namespace {

class PtxWinograd : public OneCudaAlgo {
 protected:
  PtxWinograd() : OneCudaAlgo("winograd") {}
};

TEST_F(PtxWinograd, TakesEveryTileInF64) {
  for (const char* text : {"mb2ic3ih11oc5oh11kh5ph2", "mb2ic3ih8oc5kh3ph1"})
    for (const Pass pass : all_passes) {
      const ConvProblem p = problem(text, pass, Layout::nchw, DType::f64);
      const ReferenceCase reference(p, 1, DataKind::normal);
      for (const Config& config : algo_.configs(p, *device_))
        expect_right(p, config, reference, 1e-11);
    }
}

}  // namespace
}  // namespace convlab
