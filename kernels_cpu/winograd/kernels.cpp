// Winograd's loops in f32 (kernels-inl.h), and what a tile's transforms cost.
#include "kernels_cpu/winograd/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd/kernels.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/winograd/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

void PackF32(const Spec& s, const FilterViewOf<float>& filter, float* packed, std::int64_t thread,
             std::int64_t threads) {
  Pack(s, filter, packed, thread, threads);
}
void RunF32(const Spec& s, const WinogradOperandsOf<float>& data, std::int64_t thread,
            std::int64_t threads) {
  Run(s, data, thread, threads);
}

template <class Code>
double Flops() {
  return double(Code::outputs + Code::inputs) * Code::flops;
}
// Of one tile, which shares columns with its neighbours unless x is folded.
template <class Input, int M>
double InputFlops(const Geometry& g) {
  return g.folds() ? Flops<Input>() : double(M + Input::outputs) * Input::flops;
}
WinogradCosts Costs(const Geometry& g) {
  WinogradCosts costs;
  WithSizes(g, [&](auto m, auto r) {
    if (g.pass == Pass::backward_filter) {
      using Code = Transforms<r(), m(), ScaledSide::output>;
      costs = {InputFlops<typename Code::Input, m()>(g), Flops<typename Code::Filter>(),
               Flops<typename Code::Output>()};
    } else {
      using Code = Transforms<m(), r(), ScaledSide::filter>;
      costs = {InputFlops<typename Code::Input, m()>(g), Flops<typename Code::Filter>(),
               Flops<typename Code::Output>()};
    }
  });
  return costs;
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PackF32);
HWY_EXPORT(RunF32);
HWY_EXPORT(Costs);

void winograd_pack(const WinogradSpec& s, const FilterViewOf<float>& filter, float* packed,
                   std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(PackF32)(s, filter, packed, thread, threads);
}

void winograd_run(const WinogradSpec& s, const WinogradOperandsOf<float>& data, std::int64_t thread,
                  std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(RunF32)(s, data, thread, threads);
}

WinogradCosts winograd_costs(const WinogradGeometry& g) { return HWY_DYNAMIC_DISPATCH(Costs)(g); }

}  // namespace convlab::cpu
#endif  // HWY_ONCE
