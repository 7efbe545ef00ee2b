#include <cpuid.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "conv/config.h"
#include "conv/error.h"
#include "kernels_cpu/algos.h"
#include "kernels_cpu/avx512_bf16/dot_unit.h"
#include "kernels_cpu/cpu.h"
#include "kernels_cpu/device/ceilings.h"
#include "kernels_cpu/device/cpu_limits.h"
#include "kernels_cpu/gemm/openblas.h"
#include "kernels_cpu/layers/layer_ops.h"
#include "kernels_cpu/separable/separable.h"

namespace convlab {
namespace {

struct Isa {
  std::string name;
  int vector_bytes;
  std::int64_t target;  // Highway's bit
};

const std::array<Isa, 3>& all_isas() {
  static const std::array<Isa, 3> isas{Isa{"baseline", 16, HWY_EMU128}, Isa{"avx2", 32, HWY_AVX2},
                                       Isa{"avx512", 64, HWY_AVX3}};
  return isas;
}

// A sanitizer's build has one ISA. A build for a newer CPU (-march=haswell) has no baseline.
bool build_has(const Isa& isa) { return (HWY_TARGETS & isa.target) != 0; }

// Detected once, since a forced ISA hides the others.
bool cpu_has(const Isa& isa) {
  static const std::int64_t detected = hwy::SupportedTargets() | HWY_EMU128;
  return (detected & isa.target) != 0;
}

// Every HWY_DYNAMIC_DISPATCH of the process takes its table's entry for the chosen target. Highway
// chooses again at each query of the supported targets.
void force_isa(const Isa& isa) {
  hwy::SetSupportedTargetsForTest(isa.target);
  hwy::GetChosenTarget().Update(isa.target);
}

const Isa& choose_isa(std::string name) {
  const char* const variable = name.empty() ? std::getenv("CONVLAB_ISA") : nullptr;
  if (variable != nullptr) name = variable;
  const std::string asked = name.empty() || variable == nullptr ? "" : "CONVLAB_ISA=" + name + ": ";
  if (name.empty()) name = supported_isas().back();
  const auto isa = std::find_if(all_isas().begin(), all_isas().end(),
                                [&](const Isa& i) { return i.name == name; });
  if (isa == all_isas().end())
    throw InputError(fmt::format("{}expected baseline, avx2 or avx512",
                                 asked.empty() ? fmt::format("unknown ISA '{}': ", name) : asked));
  if (!cpu_has(*isa) || !build_has(*isa))
    throw EnvironmentError(fmt::format("{}this {} has no {}: expected one of {}", asked,
                                       cpu_has(*isa) ? "build" : "CPU", name,
                                       fmt::join(supported_isas(), ", ")));
  return *isa;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_name() {
  std::array<unsigned, 12> words{};
  for (unsigned i = 0; i < 3; ++i)
    if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                     &words[4 * i + 3]))
      return "x86-64 CPU";
  std::array<char, 49> text{};
  std::memcpy(text.data(), words.data(), 48);
  std::string name = text.data();
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  return name;
}

// "48K" or "480M" in bytes; 0 for an empty text.
std::int64_t parse_size(const std::string& text) {
  if (text.empty()) return 0;
  const std::int64_t number = std::atoll(text.c_str());
  return text.back() == 'K' ? number << 10 : text.back() == 'M' ? number << 20 : number;
}

void read_caches(DeviceInfo& info) {
  for (int i = 0; i < 8; ++i) {
    const std::string cache = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = first_line(cache + "level");
    const std::int64_t bytes = parse_size(first_line(cache + "size"));
    if (first_line(cache + "type") == "Instruction") continue;
    if (level == "1") info.l1_bytes = bytes;
    if (level == "2") info.l2_bytes = bytes;
    if (level == "3") info.l3_bytes = bytes;
  }
  // Containers may hide sysfs; kernels block for these sizes and need some number.
  if (info.l1_bytes == 0) info.l1_bytes = 32 << 10;
  if (info.l2_bytes == 0) info.l2_bytes = 512 << 10;
}

// $CONVLAB_MACHINE describes another machine, so that tests plan for it:
// "l2=262144,l3=0,threads=96". Values that it leaves out are this machine's.
struct OtherMachine {
  std::optional<std::int64_t> l1, l2, l3, threads;

  OtherMachine() {
    const char* const text = std::getenv("CONVLAB_MACHINE");
    if (text == nullptr) return;
    const Config sizes = Config::parse(text);
    for (const auto& [name, value] : sizes.values()) {
      const auto* const number = std::get_if<std::int64_t>(&value);
      std::optional<std::int64_t>* const size = name == "l1"        ? &l1
                                                : name == "l2"      ? &l2
                                                : name == "l3"      ? &l3
                                                : name == "threads" ? &threads
                                                                    : nullptr;
      const std::int64_t most = name == "threads" ? most_threads : std::int64_t{1} << 40;
      if (!size || !number || *number < (name == "l3" ? 0 : 1) || *number > most)
        throw InputError(
            fmt::format("CONVLAB_MACHINE: {}: {}: expected bytes of l1, l2, l3, or 1 to {} threads",
                        text, name, most_threads));
      *size = *number;
    }
  }
};

DeviceInfo describe(const Isa& isa, int threads, const OtherMachine& other) {
  DeviceInfo info;
  info.kind = DeviceKind::cpu;
  info.name = cpu_name();
  info.isa = isa.name;
  info.vector_bytes = isa.vector_bytes;
  info.threads = threads;
  read_caches(info);
  info.l1_bytes = other.l1.value_or(info.l1_bytes);
  info.l2_bytes = other.l2.value_or(info.l2_bytes);
  info.l3_bytes = other.l3.value_or(info.l3_bytes);
  if (const std::string version = cpu::fftw_version(); !version.empty())
    info.libraries["fftw"] = version;
#if CONVLAB_HAVE_ONEDNN
  info.libraries["onednn"] = cpu::onednn_version();
#endif
  cpu::set_bf16_units(info);
  info.memory_bytes = usable_memory();
  info.libraries["openblas"] = openblas_info().text();
  return info;
}

class CpuStream : public Stream {
 public:
  void synchronize() override {}
};

class CpuDevice : public Device, public CeilingDevice, public SeparableDevice {
 public:
  explicit CpuDevice(DeviceInfo info) : info_(std::move(info)), ops_(info_) {}

  const DeviceInfo& info() const noexcept override { return info_; }

  // Huge pages spare the TLB in kernels that stride through whole channels; a smaller buffer would
  // only waste them.
  Buffer allocate(std::size_t bytes) override {
    constexpr std::size_t huge_page = 2 << 20;
    const bool huge = bytes >= 2 * huge_page;
    void* data = nullptr;
    if (bytes > std::size_t(info_.memory_bytes) ||
        posix_memalign(&data, huge ? huge_page : 64, std::max<std::size_t>(bytes, 1)) != 0)
      throw OutOfMemory(
          fmt::format("cannot allocate {} bytes: this machine has {}", bytes, info_.memory_bytes));
    if (huge) madvise(data, bytes, MADV_HUGEPAGE);  // advice: failure is of no consequence
    return Buffer(static_cast<std::byte*>(data), bytes, [](std::byte* p) { std::free(p); });
  }

  Buffer allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void copy_to_device(std::byte* to, ConstSpan from, Stream&) override {
    copy(to, from.data(), from.size());
  }
  void copy_to_host(Span to, const std::byte* from, Stream&) override {
    copy(to.data(), from, to.size());
  }
  void fill(Span span, std::byte value, Stream&) override { std::ranges::fill(span, value); }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CpuStream>(); }

  // On x86 line by line with clflush, which is exact whatever the size of L3; elsewhere by
  // streaming through a buffer larger than the caches (at most 256 MB, so a larger L3 stays partly
  // warm).
  void evict_from_caches(std::span<const ConstSpan> memory, Stream&) override {
#if HWY_ARCH_X86
    constexpr std::size_t line = 64;
    for (ConstSpan span : memory)
      for (std::size_t i = 0; i < span.size(); i += line) hwy::FlushCacheline(span.data() + i);
    hwy::FlushStream();
#else
    (void)memory;
    static std::vector<unsigned char> sweep(std::size_t(256) << 20);
    for (std::size_t i = 0; i < sweep.size(); i += 32) ++sweep[i];
#endif
  }

  const LayerOps& ops() const override { return ops_; }

  std::vector<CeilingLoop> ceiling_loops(int threads) override {
    return cpu::ceiling_loops(info_, threads);
  }

  std::optional<Refusal> refuse(const SeparableProblem& p) override {
    return cpu::refuse_separable(p, info_);
  }
  std::unique_ptr<SeparablePlan> plan(const SeparableProblem& p) override {
    return cpu::plan_separable(p, info_);
  }

 private:
  // One thread alone does not reach the memory's bandwidth.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
    constexpr std::size_t piece = 1 << 16, serial = 4 * piece;
    if (bytes <= serial) {
      if (bytes > 0) std::memcpy(to, from, bytes);
      return;
    }
#pragma omp parallel for num_threads(info_.threads) schedule(static)
    for (std::size_t begin = 0; begin < bytes; begin += piece)
      std::memcpy(to + begin, from + begin, std::min(piece, bytes - begin));
  }

  DeviceInfo info_;
  cpu::CpuLayerOps ops_;
};

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Isa& isa : all_isas())
    if (cpu_has(isa) && build_has(isa)) names.push_back(isa.name);
  return names;
}

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  const Isa& isa = choose_isa(options.isa);
  force_isa(isa);
  const OtherMachine other;
  const int threads =
      start_threads(options.threads != 0 ? options.threads : int(other.threads.value_or(0)));
  return std::make_unique<CpuDevice>(describe(isa, threads, other));
}

}  // namespace convlab
