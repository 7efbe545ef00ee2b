#include "kernels_cpu/amx/amx.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "conv/error.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace convlab::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)

AmxSupport detect() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {false, "the CPU has no AMX"};
  const unsigned subleaves = a;
  const bool has_tiles = (d >> 24 & 1) != 0, has_bf16 = (d >> 22 & 1) != 0;
  if (!has_tiles) return {false, "the CPU has no AMX"};
  if (!has_bf16) return {false, "the CPU's AMX has no bf16"};
  if (subleaves < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a >> 5 & 1) == 0)
    return {false, "the CPU has no AVX512_BF16"};

  // XCR0 tells which registers the system saves: bits 17 and 18 are the tiles' configuration and
  // data.
  constexpr unsigned osxsave = 1u << 27, tile_state = 3u << 17;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & osxsave) == 0)
    return {false, "the system does not save extended registers"};
  unsigned low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & tile_state) != tile_state) return {false, "the system does not save tile registers"};

  // The request also fails if a thread's alternative signal stack is too small for tiles.
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0)
    return {false,
            fmt::format("the system does not permit tile registers: {}", std::strerror(errno))};
  return {true, {}};
}

#else
AmxSupport detect() { return {false, "not built for x86-64 Linux"}; }
#endif

}  // namespace

const AmxSupport& amx_support() {
  static const AmxSupport support = detect();
  return support;
}

std::string matrix_unit(std::string_view isa) {
  const char* const variable = std::getenv("CONVLAB_AMX");
  const std::string_view wanted = variable == nullptr ? "" : variable;
  if (wanted == "emulated") return std::string(emulated_amx_unit);
  if (wanted == "off") return {};
  if (!wanted.empty())
    throw InputError(fmt::format("CONVLAB_AMX={}: expected emulated or off", wanted));
  // Its kernels also need vectors of 16 channels.
  if (isa != "avx512" || !amx_support().usable) return {};
  return std::string(amx_unit);
}

}  // namespace convlab::cpu
