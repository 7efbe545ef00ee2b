// Winograd's loops in f64 (kernels-inl.h): a file of its own, to compile beside those in f32.
#include "kernels_cpu/winograd/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels_cpu/winograd/kernels_f64.cpp"
#include <hwy/foreach_target.h>  // first: compiles the rest once per target
#include <hwy/highway.h>

#include "kernels_cpu/winograd/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convlab::cpu::HWY_NAMESPACE {

void PackF64(const Spec& s, const FilterViewOf<double>& filter, double* packed, std::int64_t thread,
             std::int64_t threads) {
  Pack(s, filter, packed, thread, threads);
}
void RunF64(const Spec& s, const WinogradOperandsOf<double>& data, std::int64_t thread,
            std::int64_t threads) {
  Run(s, data, thread, threads);
}

}  // namespace convlab::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convlab::cpu {

HWY_EXPORT(PackF64);
HWY_EXPORT(RunF64);

void winograd_pack(const WinogradSpec& s, const FilterViewOf<double>& filter, double* packed,
                   std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(PackF64)(s, filter, packed, thread, threads);
}

void winograd_run(const WinogradSpec& s, const WinogradOperandsOf<double>& data,
                  std::int64_t thread, std::int64_t threads) {
  HWY_DYNAMIC_DISPATCH(RunF64)(s, data, thread, threads);
}

}  // namespace convlab::cpu
#endif  // HWY_ONCE
