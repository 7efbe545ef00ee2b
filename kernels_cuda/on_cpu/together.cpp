#include "kernels_cuda/on_cpu/together.h"

#include <barrier>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels_cuda/on_cpu/access_counts.h"

namespace convlab::on_cpu {
namespace {

thread_local std::barrier<>* all_blocks = nullptr;

}  // namespace

cudaError_t run_together(const Launch& launch) {
  if (counting) return cudaErrorNotSupported;           // one thread counts
  static std::vector<std::unique_ptr<Worker>> workers;  // kept: stacks cost time to make
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);
  const std::size_t blocks = launch.blocks();
  while (workers.size() < blocks) workers.push_back(std::make_unique<Worker>());
  std::barrier<> barrier{std::ptrdiff_t(blocks)};
  std::vector<std::thread> team;
  for (std::size_t block = 0; block < blocks; ++block)
    team.emplace_back([&, block] {
      all_blocks = &barrier;
      Worker& worker = *workers[block];
      worker.begin(launch);
      worker.run_block(block);
      worker.end();
    });
  for (std::thread& thread : team) thread.join();
  return cudaSuccess;
}

void wait_for_blocks(const unsigned* arrived, unsigned round, Site at) {
  if (all_blocks == nullptr)
    self->fail("wait_for_grid: only the blocks of launch_together() are resident at once", at);
  if (round == 1 && *arrived != 0)
    self->fail("wait_for_grid: the counter was not zero before the launch", at);
  all_blocks->arrive_and_wait();
}

}  // namespace convlab::on_cpu
