// The rules of cuDNN's convolutions that need neither cuDNN nor a card: names, refusals, math
// types, workspace.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conv/algo.h"
#include "conv/types/math_type.h"

namespace convlab::cuda {

// One name in cuDNN's lists of algorithms, and its number in each pass's list; -1 where it has
// none.
struct CudnnAlgo {
  const char* name;
  std::array<int, 3> number;  // by Pass
  // The rate of direct convolution's FLOPs as a share of the f32 peak: by FMA, and with tensor
  // cores allowed. Forward and algo_0's backward_data are measured (bench/results), the rest of the
  // backward passes is not.
  double fma = 0.4, tensor_cores = 2.5;
};
inline constexpr std::array cudnn_algos{
    CudnnAlgo{"implicit_gemm", {0, -1, -1}, 0.3, 0.25},
    CudnnAlgo{"implicit_precomp_gemm", {1, -1, -1}},
    CudnnAlgo{"gemm", {2, -1, -1}, 0.15, 0.15},
    CudnnAlgo{"direct", {3, -1, -1}},
    CudnnAlgo{"algo_0", {-1, 0, 0}, 0.006, 0.006},
    CudnnAlgo{"algo_1", {-1, 1, 1}},
    CudnnAlgo{"algo_3", {-1, -1, 3}},
    CudnnAlgo{"fft", {4, 2, 2}, 0.3, 0.3},
    CudnnAlgo{"fft_tiling", {5, 3, 6}, 0.3, 0.3},
    CudnnAlgo{"winograd", {6, 4, 4}},
    CudnnAlgo{"winograd_nonfused", {7, 5, 5}, 0.9, 0.9},
};
std::optional<Refusal> refuse_pass(const CudnnAlgo&, Pass);

// Versions as cudnnGetVersion counts them: 91900 -> "9.19.0".
std::string cudnn_version_text(std::size_t version);
// Why a version that was found at run time is unusable; empty if it is usable.
std::string cudnn_version_obstacle(std::size_t version);

// Atomic additions make the gradients of algo_0 and algo_3 differ from run to run. Null, a choice
// of cuDNN's own, may be either.
bool is_deterministic(const CudnnAlgo*, const ConvProblem&);

// The algorithm that a chooser of cuDNN's took, for the tables: its name, and the math it is
// allowed.
enum class CudnnMath : std::uint8_t { fma, tensor_cores, unspecified };
std::string choice_text(Pass, int number, CudnnMath);

// A chooser's answers come best first. One to a query about FMA may still name another math type,
// which rounds f32 to TF32 from sm_80 on: strict_f32 takes FMA only. Empty if none will do.
struct CudnnAnswer {
  bool works = false;
  CudnnMath math = CudnnMath::fma;
};
std::optional<std::size_t> first_usable(std::span<const CudnnAnswer>, bool strict_f32);

// For all algorithms of the old interface, or all engines of the graph interface: mixed and blocked
// layouts, 2^31 elements and more, and padding that the interface cannot express.
enum class CudnnInterface : std::uint8_t { legacy, graph };
std::optional<Refusal> refuse_shape(const ConvProblem&, CudnnInterface);

// The padding below or to the right as a parameter for cuDNN, which computes the output's size by
// rounding down; empty if none gives `outputs`.
std::optional<std::int64_t> padding_after(std::int64_t inputs, std::int64_t outputs,
                                          std::int64_t taps, std::int64_t stride,
                                          std::int64_t dilation, std::int64_t padding_before);

// The math types that cuDNN offers; MathType::f32 alone for types without a choice.
std::vector<MathType> math_types(DType);

// Whether an engine with these notes computes in this math type: f32 takes none of them, TF32 at
// least one.
struct EngineNotes {
  bool tensor_cores = false, rounds_inputs = false;
};
bool does_math(DType, MathType, EngineNotes);

// Whether KCRS, our filters' order, differs from KRSC, which cuDNN's fast kernels take in NHWC.
bool rearranges_filter(const ConvProblem&);

// A run's workspace: cuDNN's part, then the filter gradient as KRSC if that is rearranged.
struct CudnnWorkspace {
  std::size_t library_bytes = 0, filter_at = 0, total_bytes = 0;
};
CudnnWorkspace cudnn_workspace(const ConvProblem&, std::size_t library_bytes);

// Null: a choice of cuDNN's own, which is mostly implicit_precomp_gemm or better.
WorkEstimate cudnn_work(const CudnnAlgo*, const ConvProblem&, MathType);

}  // namespace convlab::cuda
