// Compiled kernels in which one thing is changed: each change must be found, by the interpreter or
// in the result.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "conv/types/math_type.h"
#include "kernels_cuda/on_cpu/schedule.h"
#include "kernels_cuda/ptx/runtime.h"
#include "tests/kernels_cuda/one_algo.h"

namespace convlab {
namespace {

const std::string& compiled() {
  static const std::string text = [] {
    std::ifstream file(CONVLAB_PTX, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return text;
}

// Changes the lines with `mark` of the kernels that are compiled from `source`.
struct Change {
  const char* name;
  const char* algo;
  DType dtype;
  Pass pass;
  MathType math;
  const char* source;  // in the names of its kernels
  const char* mark;
  std::function<std::string(std::string)> line;
  const char* found;  // what is said
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

std::string changed(const Change& change, int& count) {
  std::string text;
  bool inside = false;
  for (std::size_t at = 0; at < compiled().size();) {
    const std::size_t end = std::min(compiled().find('\n', at), compiled().size() - 1) + 1;
    std::string line = compiled().substr(at, end - at);
    at = end;
    if (line.starts_with(".entry")) inside = line.find(change.source) != line.npos;
    if (inside && line.find(change.mark) != line.npos) {
      line = change.line(line);
      ++count;
    }
    text += line;
  }
  return text;
}

class ChangedKernels : public testing::TestWithParam<Change> {
 protected:
  // With the epilogue that shows most: none.
  CheckResult check() {
    const Change& change = GetParam();
    const ConvAlgo& algo = cuda_algo(change.algo);
    // 9 and 35 channels: no tile is whole.
    const ConvProblem p =
        problem("mb2ic35ih9oc9oh9kh3ph1", change.pass, Layout::nhwc, change.dtype);
    const auto device = make_cuda_device();
    const auto stream = device->make_stream();
    for (const Config& config : algo.configs(p, *device)) {
      if (math_type(config) != change.math) continue;
      const ReferenceCase reference(p, 1, DataKind::normal);
      const double bound = change.dtype == DType::f16      ? 1e-2
                           : change.math == MathType::tf32 ? 2e-3
                                                           : 5e-5;
      return check_candidate(algo, p, config, reference, *device, *stream, bound);
    }
    ADD_FAILURE() << "no config with this math type";
    return {};
  }

  void TearDown() override { ptx::replace_library(ptx::Library(compiled(), "kernels.ptx")); }
};

TEST_P(ChangedKernels, AreFound) {
  on_cpu::config.seed = 1;
  const CheckResult right = check();
  ASSERT_EQ(right.status, Status::ok) << right.reason;
  int count = 0;
  ptx::replace_library(ptx::Library(changed(GetParam(), count), "changed.ptx"));
  ASSERT_GT(count, 0);
  const CheckResult wrong = check();
  EXPECT_NE(wrong.status, Status::ok);
  EXPECT_NE(wrong.reason.find(GetParam().found), std::string::npos) << wrong.reason;
}

std::string without(std::string) { return "\n"; }
auto replaced(std::string from, std::string to) {
  return [=](std::string line) { return line.replace(line.find(from), from.size(), to); };
}
// The second and third register of the vector number `which` change places.
auto swapped(int which) {
  return [=](std::string line) {
    std::size_t open = line.find('{');
    for (int i = 0; i < which; ++i) open = line.find('{', open + 1);
    const std::size_t first = line.find(',', open) + 1, second = line.find(',', first) + 1;
    const std::size_t end = line.find_first_of(",}", second);
    const std::string a = line.substr(first, second - 1 - first),
                      b = line.substr(second, end - second);
    return line.substr(0, first) + b + "," + a + line.substr(end);
  };
}
// cp.async [to], [from], 16, valid: all bytes are valid.
std::string copies_all(std::string line) {
  return line.erase(line.rfind(','), line.rfind(';') - line.rfind(','));
}

constexpr Pass fwd = Pass::forward, bwd_w = Pass::backward_filter;
constexpr MathType fma = MathType::f32, tf32 = MathType::tf32, tf32x3 = MathType::tf32x3;
constexpr const char* tensor = "tensor_cu";

INSTANTIATE_TEST_SUITE_P(
    Compiled, ChangedKernels,
    testing::Values(Change{"missing_wait", "implicit_gemm", DType::f16, fwd, fma, tensor,
                           "cp.async.wait_group",
                           [](std::string) { return std::string("cp.async.wait_group 9;\n"); }, ""},
                    Change{"missing_commit", "implicit_gemm", DType::f16, fwd, fma, tensor,
                           "cp.async.commit_group", without, ""},
                    Change{"missing_barrier", "implicit_gemm", DType::f16, fwd, fma, tensor,
                           "bar.sync", without, "since the last barrier"},
                    Change{"operands_of_mma", "implicit_gemm", DType::f16, fwd, fma, tensor,
                           "mma.sync", swapped(1), "rel_error"},
                    Change{"result_of_mma", "implicit_gemm", DType::f32, fwd, tf32, tensor,
                           "mma.sync", swapped(0), "wrong result"},
                    Change{"fragment", "implicit_gemm", DType::f16, fwd, fma, tensor, ".x4.shared",
                           swapped(0), "wrong result"},
                    Change{"transposed_fragment", "implicit_gemm", DType::f16, bwd_w, fma, tensor,
                           ".trans.shared", replaced(".trans", ""), "wrong result"},
                    Change{"not_split", "implicit_gemm", DType::f32, fwd, tf32x3, tensor,
                           ", -8192;", replaced(", -8192;", ", -1;"), "rel_error"},
                    Change{"copy_past_the_end", "implicit_gemm", DType::f32, fwd, fma, "fma_cu",
                           "cp.async.ca.shared.global", copies_all, "nothing is allocated"},
                    Change{"dropped_predicate", "im2col", DType::f32, fwd, fma, "im2col_cu", "@%p",
                           without, "nothing is allocated"},
                    Change{"signed_shift", "implicit_gemm", DType::f32, fwd, fma, "fma_cu",
                           "shl.b32", replaced("shl.b32", "shr.b32"), "misaligned"}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace convlab
