#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "kernels_cuda/cudnn/filter_layout.h"
#include "kernels_cuda/cudnn/rules.h"

namespace convlab::cuda {
namespace {

ConvProblem problem(const char* text, Layout layout = Layout::nchw) {
  ConvProblem p = parse_problem(text).problem;
  p.x_layout = p.y_layout = layout;
  return p;
}

std::string reason(const std::optional<Refusal>& refusal) {
  return refusal ? refusal->reason() : "";
}

TEST(CudnnRules, EveryNumberOfEveryPassHasOneName) {
  for (const auto& [pass, numbers] :
       {std::pair{Pass::forward, 8}, {Pass::backward_data, 6}, {Pass::backward_filter, 7}}) {
    std::set<int> seen;
    for (const CudnnAlgo& algo : cudnn_algos) {
      const int number = algo.number[std::size_t(pass)];
      if (number < 0) continue;
      EXPECT_TRUE(seen.insert(number).second) << algo.name;
    }
    EXPECT_EQ(int(seen.size()), numbers) << to_string(pass);
    EXPECT_EQ(*seen.rbegin(), numbers - 1) << to_string(pass);
  }
  EXPECT_EQ(reason(refuse_pass(cudnn_algos[0], Pass::backward_data)), "needs fwd, has bwd_d");
  EXPECT_EQ(reason(refuse_pass(cudnn_algos[4], Pass::forward)), "needs bwd_d or bwd_w, has fwd");
  EXPECT_EQ(reason(refuse_pass(cudnn_algos[7], Pass::forward)), "");
}

TEST(CudnnRules, AtomicAdditionsAreNotDeterministic) {
  ConvProblem p = problem("ic8ih8oc8kh3ph1");
  EXPECT_TRUE(is_deterministic(nullptr, p));
  p.pass = Pass::backward_filter;
  for (const CudnnAlgo& algo : cudnn_algos) {
    const std::string_view name = algo.name;
    EXPECT_EQ(is_deterministic(&algo, p), name != "algo_0" && name != "algo_3") << name;
  }
  EXPECT_FALSE(is_deterministic(nullptr, p));
}

TEST(CudnnRules, PaddingIsToldAsCudnnRounds) {
  // ResNet's first layer: padding of 3 before and 2 after equals 3 and 3 when sizes are rounded
  // down.
  EXPECT_EQ(padding_after(224, 112, 7, 2, 1, 3), 3);
  EXPECT_EQ(padding_after(9, 9, 3, 1, 1, 1), 1);
  EXPECT_EQ(padding_after(9, 8, 3, 1, 1, 1), 0);
  EXPECT_EQ(padding_after(9, 10, 3, 1, 1, 1), 2);
  EXPECT_EQ(padding_after(9, 4, 3, 2, 1, 0), 0);
  EXPECT_EQ(padding_after(9, 5, 3, 1, 2, 0), 0);
  EXPECT_EQ(padding_after(9, 3, 3, 1, 1, 0), std::nullopt);  // four rows are not read
}

TEST(CudnnRules, RefuseWithTheNumberThatDecides) {
  const auto legacy = [](const ConvProblem& p) {
    return reason(refuse_shape(p, CudnnInterface::legacy));
  };
  const auto graph = [](const ConvProblem& p) {
    return reason(refuse_shape(p, CudnnInterface::graph));
  };
  EXPECT_EQ(legacy(problem("ic3ih224oc64oh112kh7sh2ph3")), "");
  EXPECT_EQ(legacy(problem("ic3ih9oc4oh8kh3ph1")),
            "needs the same padding on both sides, has 1x1 before and 0x0 after");
  EXPECT_EQ(graph(problem("ic3ih9oc4oh8kh3ph1")), "");
  ConvProblem cropped = problem("ic3ih9oc4kh3");
  cropped.p = cropped.q = 3;
  EXPECT_EQ(graph(cropped),
            "needs all of the input to be read, has padding -4 below and -4 to the right");
  ConvProblem p = problem("ic8ih8oc8kh3ph1");
  p.y_layout = Layout::nhwc;
  EXPECT_EQ(legacy(p), "needs one layout for x and y, has nchw and nhwc");
  p.x_layout = Layout::nchw8c;
  EXPECT_EQ(legacy(p), "needs nchw or nhwc, has nchw8c");
  EXPECT_EQ(legacy(problem("mb32768ic64ih32oc64kh1")),
            "needs tensors of fewer than 2^31 elements, has 2147483648");
}

TEST(CudnnRules, EnginesAreSelectedByTheirNotes) {
  EXPECT_EQ(math_types(DType::f32), (std::vector<MathType>{MathType::f32, MathType::tf32}));
  EXPECT_EQ(math_types(DType::f16), std::vector<MathType>{MathType::f32});
  const EngineNotes fma{}, tensor{.tensor_cores = true}, rounding{.rounds_inputs = true};
  EXPECT_TRUE(does_math(DType::f32, MathType::f32, fma));
  EXPECT_FALSE(does_math(DType::f32, MathType::tf32, fma));
  for (const EngineNotes notes : {tensor, rounding}) {
    EXPECT_FALSE(does_math(DType::f32, MathType::f32, notes));
    EXPECT_TRUE(does_math(DType::f32, MathType::tf32, notes));
    EXPECT_TRUE(does_math(DType::bf16, MathType::f32, notes));
  }
}

TEST(CudnnRules, TheFilterGradientLiesBehindCudnnsWorkspace) {
  ConvProblem p = problem("ic8ih8oc8kh3ph1", Layout::nhwc);
  EXPECT_TRUE(rearranges_filter(p));
  EXPECT_EQ(cudnn_workspace(p, 1000).total_bytes, 1000u);
  p.pass = Pass::backward_filter;
  EXPECT_EQ(cudnn_workspace(p, 1000).library_bytes, 1000u);
  EXPECT_EQ(cudnn_workspace(p, 1000).filter_at, 1024u);
  EXPECT_EQ(cudnn_workspace(p, 1000).total_bytes, 1024u + 8 * 8 * 9 * 4);
  p.x_layout = p.y_layout = Layout::nchw;
  EXPECT_EQ(cudnn_workspace(p, 1000).total_bytes, 1000u);
  EXPECT_FALSE(rearranges_filter(problem("ic8ih8oc8kh1", Layout::nhwc)));
  EXPECT_FALSE(rearranges_filter(problem("g8ic8ih8oc8kh3ph1", Layout::nhwc)));
}

template <class T>
void expect_rearranged(DType dtype) {
  ConvProblem p = problem("g2ic10ih9oc6kh3kw5ph1pw2");
  p.dtype = dtype;
  const std::int64_t c = p.c / p.groups, rs = p.r * p.s;
  std::vector<T> kcrs(std::size_t(p.filter_elements())), krsc(kcrs.size()), back(kcrs.size());
  std::iota(kcrs.begin(), kcrs.end(), T(1));
  const auto device = make_cuda_device();
  const auto stream = device->make_stream();
  Buffer from = device->allocate(kcrs.size() * sizeof(T)), to = device->allocate(from.bytes());
  device->copy_to_device(from.data(), std::as_bytes(std::span(kcrs)), *stream);
  kcrs_to_krsc(p, from.data(), to.data(), *stream);
  device->copy_to_host(std::as_writable_bytes(std::span(krsc)), to.data(), *stream);
  for (std::int64_t k = 0; k < p.k; ++k)
    for (std::int64_t i = 0; i < c; ++i)
      for (std::int64_t j = 0; j < rs; ++j)
        ASSERT_EQ(krsc[(k * rs + j) * c + i], kcrs[(k * c + i) * rs + j]);
  krsc_to_kcrs(p, to.data(), from.data(), *stream);
  device->copy_to_host(std::as_writable_bytes(std::span(back)), from.data(), *stream);
  EXPECT_EQ(back, kcrs);
}

TEST(CudnnRules, FiltersAreRearrangedThereAndBack) {
  expect_rearranged<std::uint16_t>(DType::bf16);
  expect_rearranged<float>(DType::f32);
  expect_rearranged<double>(DType::f64);
}

TEST(CudnnRules, AVersionThatIsTooOldIsRefused) {
  EXPECT_EQ(cudnn_version_text(91900), "9.19.0");
  EXPECT_EQ(cudnn_version_obstacle(90800), "");
  EXPECT_EQ(cudnn_version_obstacle(90701), "needs cuDNN 9.8.0 or newer, has 9.7.1");
}

TEST(CudnnRules, NamesWhatAChooserTook) {
  EXPECT_EQ(choice_text(Pass::forward, 7, CudnnMath::fma),
            "took winograd_nonfused without tensor cores");
  EXPECT_EQ(choice_text(Pass::backward_filter, 6, CudnnMath::tensor_cores),
            "took fft_tiling with tensor cores allowed");
  EXPECT_EQ(choice_text(Pass::backward_data, 99, CudnnMath::unspecified),
            "took algorithm 99 with its default math");
}

TEST(CudnnRules, ChoosersAreHeldToFmaInF32) {
  const CudnnAnswer tensor{true, CudnnMath::tensor_cores},
      unspecified{true, CudnnMath::unspecified}, fma{true, CudnnMath::fma},
      broken{false, CudnnMath::fma};
  const CudnnAnswer answers[]{broken, unspecified, tensor, fma};
  EXPECT_EQ(first_usable(answers, true), 3u);
  EXPECT_EQ(first_usable(answers, false), 1u);
  EXPECT_EQ(first_usable(std::span(answers).first(3), true), std::nullopt);
  EXPECT_EQ(first_usable({}, false), std::nullopt);
}

// algo_0 takes a hundred times as long as the others, so untuned nets must not choose it.
TEST(CudnnRules, TheSlowOnesAreExpectedToBeSlow) {
  const ConvProblem p = problem("mb64ic256ih56oc512oh28kh1sh2ph0");
  const auto share = [&](const char* name) {
    const auto algo = std::ranges::find(cudnn_algos, std::string_view(name), &CudnnAlgo::name);
    return cudnn_work(algo, p, MathType::f32).phases.front().efficiency;
  };
  EXPECT_LT(10 * share("algo_0"), share("algo_1"));
  EXPECT_LT(share("gemm"), share("implicit_precomp_gemm"));
  const auto choosers = [&](MathType math) {
    return cudnn_work(nullptr, p, math).phases.front().efficiency;
  };
  EXPECT_EQ(choosers(MathType::f32), share("implicit_precomp_gemm"));
  EXPECT_GT(choosers(MathType::tf32), 1);
}

}  // namespace
}  // namespace convlab::cuda
