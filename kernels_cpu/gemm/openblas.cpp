#include "kernels_cpu/gemm/openblas.h"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"

// Exported, but in none of its headers. OpenBLAS keeps buffers that are given back.
extern "C" void* blas_memory_alloc(int);
extern "C" void blas_memory_free(void*);

namespace convlab {
namespace {

constexpr const char* coretype_variable = "OPENBLAS_CORETYPE";
constexpr const char* restarted_variable = "CONVLAB_OPENBLAS_RESTARTED";

constexpr std::array<std::string_view, 4> avx512_cores{"SkylakeX", "Cooperlake", "SapphireRapids",
                                                       "Zen5"};
constexpr std::array<std::string_view, 3> avx2_cores{"Haswell", "Zen", "Excavator"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& cores, std::string_view core) {
  const auto same_letter = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
  return std::any_of(cores.begin(), cores.end(), [&](std::string_view known) {
    return std::equal(known.begin(), known.end(), core.begin(), core.end(), same_letter);
  });
}

bool memory_is_limited() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA})
    if (rlimit limit{}; getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      return true;
  return false;
}

bool there_is_room_for(int buffers) {
  std::vector<void*> taken;
  const auto take = [&] {
    void* const at = mmap(nullptr, openblas_buffer_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) taken.push_back(at);
    return at != MAP_FAILED;
  };
  while (int(taken.size()) < buffers && take()) continue;
  for (void* const at : taken) munmap(at, openblas_buffer_bytes);
  return int(taken.size()) == buffers;
}

}  // namespace

std::string OpenBlasInfo::text() const {
  return version + ' ' + core + (openmp ? " openmp" : " not-openmp");
}

OpenBlasInfo openblas_info() {
  OpenBlasInfo info;
  std::istringstream config(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  config >> info.version >> info.version;
  info.core = openblas_get_corename();
  info.openmp = openblas_get_parallel() == 2;
  info.advisable_core = advisable_openblas_core(info.core, supported_isas().back());
  return info;
}

std::string advisable_openblas_core(const std::string& core, const std::string& isa) {
  if (isa == "avx512" && !contains(avx512_cores, core)) return "SkylakeX";
  if (isa == "avx2" && !contains(avx2_cores, core)) return "Haswell";
  return "";
}

std::string openblas_core_to_restart_with(const OpenBlasInfo& info, bool coretype_is_set,
                                          bool restarted) {
  return coretype_is_set || restarted ? "" : info.advisable_core;
}

void reserve_openblas_memory(int threads) {
  if (!memory_is_limited()) return;
  // One for each thread's part of a product, and one for each product at a time.
  const int buffers = threads + std::max(0, threads - openblas_get_num_threads());
  if (!there_is_room_for(buffers))
    throw EnvironmentError(fmt::format(
        "OpenBLAS needs {} buffers of {} MiB for {} threads, and the memory limit leaves no room: "
        "raise ulimit -v, or lower --threads",
        buffers, openblas_buffer_bytes >> 20, threads));
  if (threads > openblas_get_num_threads()) openblas_set_num_threads(threads);
  std::vector<void*> products;
  for (int i = 0; i < threads; ++i) products.push_back(blas_memory_alloc(0));
  for (void* const buffer : products) blas_memory_free(buffer);
}

void restart_with_suitable_openblas(char** argv) {
  const std::string core =
      openblas_core_to_restart_with(openblas_info(), std::getenv(coretype_variable) != nullptr,
                                    std::getenv(restarted_variable) != nullptr);
  if (core.empty()) return;
  setenv(coretype_variable, core.c_str(), 1);
  setenv(restarted_variable, "1", 1);
  execv("/proc/self/exe", argv);
}

}  // namespace convlab
