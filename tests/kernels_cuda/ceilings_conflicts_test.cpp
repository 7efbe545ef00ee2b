// The loop over shared memory must not spend its time on bank conflicts: every bank delivers a word
// per clock.
#include <gtest/gtest.h>

#include <vector>

#include "kernels_cuda/cuda.h"
#include "kernels_cuda/device/ceilings.h"
#include "kernels_cuda/on_cpu/access_counts.h"

namespace convlab::cuda {
namespace {

TEST(CardCeilingsAccesses, OfSharedMemoryHaveNoConflicts) {
  const auto device = make_cuda_device();
  const auto stream = device->make_stream();
  std::vector<unsigned> sums(ceiling_threads);
  const auto accesses = on_cpu::count_accesses(
      [&] { queue_shared_reads({.blocks = 1, .rounds = 9, .sums = sums.data()}, *stream); });
  EXPECT_EQ(accesses.size(), 2);  // the store that fills it, and the load
  for (const on_cpu::AccessCount& count : accesses) EXPECT_EQ(count.transactions, count.least);
}

}  // namespace
}  // namespace convlab::cuda
