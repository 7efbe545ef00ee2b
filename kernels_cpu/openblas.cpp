#include "kernels_cpu/openblas.h"

#include <cblas.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "kernels_cpu/cpu.h"

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
