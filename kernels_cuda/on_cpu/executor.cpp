#include "kernels_cuda/on_cpu/executor.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace convlab::on_cpu {
namespace {

// The launches that the card's driver would refuse.
cudaError_t refusal(const Launch& launch) {
  const dim3 grid = launch.grid, block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
      grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > 1024 || block.y > 1024 ||
      block.z > 64 || launch.threads() > 1024)
    return cudaErrorInvalidConfiguration;
  if (launch.shared_bytes > 227 << 10) return cudaErrorInvalidValue;
  return cudaSuccess;
}

std::vector<std::size_t> block_order(const Launch& launch) {
  std::vector<std::size_t> order(launch.blocks());
  std::iota(order.begin(), order.end(), std::size_t(0));
  if (launch.seed) std::shuffle(order.begin(), order.end(), std::mt19937(launch.seed));
  return order;
}

}  // namespace

cudaError_t run(const Launch& launch) {
  if (const cudaError_t error = refusal(launch)) return error;
  // Kept from launch to launch: stacks cost time to make.
  static std::vector<std::unique_ptr<Worker>> workers;
  static std::mutex one_launch;
  const std::lock_guard lock(one_launch);

  const std::vector<std::size_t> order = block_order(launch);
  const std::size_t count = counting ? 1 : std::clamp<std::size_t>(config.workers, 1, order.size());
  while (workers.size() < count) workers.push_back(std::make_unique<Worker>());
  // Workers have fixed shares: a queue of blocks would order them, and so hide a race.
  const auto work = [&](std::size_t share) {
    Worker& worker = *workers[share];
    worker.begin(launch);
    for (std::size_t i = share; i < order.size(); i += count) worker.run_block(order[i]);
    worker.end();
  };
  std::vector<std::thread> team;
  for (std::size_t share = 1; share < count; ++share) team.emplace_back(work, share);
  work(0);
  for (std::thread& thread : team) thread.join();
  return cudaSuccess;
}

}  // namespace convlab::on_cpu
