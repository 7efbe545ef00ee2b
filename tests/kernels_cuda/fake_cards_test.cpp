// Cards with less shared memory than sm_90's 227 KB a block: sm_80 has 163, sm_86 and sm_89 have
// 99, and each CUDA card has 48.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "conv/error.h"
#include "conv/types/math_type.h"
#include "kernels_cuda/on_cpu/device.h"
#include "kernels_cuda/on_cpu/executor.h"
#include "kernels_cuda/winograd/winograd.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/problems.h"

namespace convlab {
namespace {

constexpr int kilobytes[]{48, 99, 163, 227};

std::unique_ptr<Device> card(int kb) {
  DeviceInfo info = on_cpu::default_card();
  info.block_shared_bytes = kb << 10;
  info.l1_bytes = (kb + 1) << 10;
  return on_cpu::make_card(info);
}

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(FakeCards, FailALaunchBeyondTheirSharedMemory) {
  const auto device = card(48);
  const auto stream = device->make_stream();
  const auto kernel = +[] {};
  cuda::launch(kernel, 1, 32, 48 << 10, *stream);
  EXPECT_THROW(cuda::launch(kernel, 1, 32, (48 << 10) + 1, *stream), cuda::CudaError);
}

// Filters and strides for which direct's boxes and fft's tables are large; each tile of
// implicit_gemm is listed for all of them.
const char* const problems[]{"mb1ic16ih8oc64oh8kh3ph1", "mb1ic3ih23oc16oh12kh7sh2ph3",
                             "mb1ic8ih14oc16oh14kh5ph2", "mb1ic9ih17oc16oh17kh3dh5ph6"};

class EveryAlgoOnFakeCards : public testing::TestWithParam<std::string> {
 protected:
  const ConvAlgo& algo_ = cuda_algo(GetParam());

  // For each problem, size of elements and pass, in one layout or the other.
  template <class F>
  void for_problems(F f) {
    std::size_t turn = 0;
    for (const char* text : problems)
      for (const DType dtype : {DType::f32, DType::f64, DType::f16})
        for (const Pass pass : all_passes)
          if (const Layout layout = ++turn % 2 ? Layout::nchw : Layout::nhwc;
              !reduced() || text == problems[0])
            f(problem(text, pass, layout, dtype));
  }
};

// A config that a smaller card lists as well has run there.
TEST_P(EveryAlgoOnFakeCards, RunsEveryConfigThatItLists) {
  int ran = 0, refused = 0;
  for_problems([&](const ConvProblem& p) {
    std::set<std::string> known;
    const ReferenceCase reference(p, 3, DataKind::small_integers);
    for (const int kb : kilobytes) {
      const auto device = card(kb);
      if (const auto refusal = algo_.refuse(p, *device)) {
        refused += refusal->field == Field::device;
        continue;
      }
      const auto stream = device->make_stream();
      const std::vector<Config> configs = algo_.configs(p, *device);
      ASSERT_FALSE(configs.empty());
      for (const Config& config : configs) {
        if (!known.insert(config.text()).second) continue;
        const CheckResult verdict =
            check_candidate(algo_, p, config, reference, *device, *stream, 0.1);
        EXPECT_EQ(verdict.status, Status::ok) << fmt::format(
            "{} KB: {} '{}' {} {} {} {}: {}", kb, GetParam(), config.text(), to_text(p),
            to_string(p.pass), to_string(p.x_layout), to_string(p.dtype), verdict.reason);
        ++ran;
      }
    }
  });
  EXPECT_GT(ran, 0);
}

// What a larger card lists and a smaller one does not, its plan refuses in bytes, or it runs:
// splits follow the card too.
TEST_P(EveryAlgoOnFakeCards, RefusesTheOthersWithNumbers) {
  for_problems([&](const ConvProblem& p) {
    const auto large = card(kilobytes[3]);
    ASSERT_EQ(algo_.refuse(p, *large).has_value(),
              algo_.refuse(p, *make_cuda_device()).has_value());
    if (algo_.refuse(p, *large)) return;
    const ReferenceCase reference(p, 3, DataKind::small_integers);
    for (const int kb : kilobytes) {
      const auto device = card(kb);
      const auto stream = device->make_stream();
      const std::string has = std::to_string(kb << 10);
      if (const auto refusal = algo_.refuse(p, *device)) {
        EXPECT_EQ(refusal->field, Field::device);
        EXPECT_EQ(refusal->has, has);
        continue;
      }
      const std::vector<Config> listed = algo_.configs(p, *device);
      for (const Config& config : algo_.configs(p, *large)) {
        if (std::ranges::find(listed, config) != listed.end()) continue;
        const std::string says = message_of([&] { algo_.plan(p, config, *device); });
        if (says.empty()) {
          const CheckResult verdict =
              check_candidate(algo_, p, config, reference, *device, *stream, 0.1);
          EXPECT_EQ(verdict.status, Status::ok) << kb << " KB: " << config.text() << verdict.reason;
        } else {
          EXPECT_TRUE(says.ends_with("bytes of shared memory a block, the card has " + has))
              << says;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryAlgoOnFakeCards, testing::ValuesIn([] {
                           std::vector<std::string> ids;
                           for (const ConvAlgo* algo : cuda_registry().for_device(DeviceKind::cuda))
                             ids.push_back(algo->info().id);
                           return ids;
                         }()),
                         [](const auto& param) { return param.param; });

std::string refusal_of(const std::string& algo, const ConvProblem& p, int kb) {
  const auto refusal = cuda_algo(algo).refuse(p, *card(kb));
  return refusal ? refusal->reason() : "";
}

std::string plan_says(const std::string& algo, const ConvProblem& p, const char* config, int kb) {
  const auto device = card(kb);
  return message_of([&] { cuda_algo(algo).plan(p, Config::parse(config), *device); });
}

bool lists(const std::string& algo, const ConvProblem& p, const char* config, int kb) {
  const std::vector<Config> configs = cuda_algo(algo).configs(p, *card(kb));
  return std::ranges::find(configs, Config::parse(config)) != configs.end();
}

TEST(FakeCards, WinogradFusesInBlocksThatFit) {
  const ConvProblem p = problem("mb1ic16ih14oc64oh14kh3ph1", Pass::forward);
  const char* const f4 = "tile=4,schedule=fused,math=f32,split=1";
  const char* const f2 = "tile=2,schedule=fused,math=f32,split=1";
  EXPECT_EQ(
      plan_says("winograd", p, f4, 99),
      "winograd: 'tile=4,schedule=fused,math=f32,split=1' needs 147456 bytes of shared memory a "
      "block, the card has 101376");
  EXPECT_FALSE(lists("winograd", p, f4, 99));
  EXPECT_TRUE(lists("winograd", p, f4, 163));
  EXPECT_TRUE(lists("winograd", p, f2, 99));
  EXPECT_FALSE(lists("winograd", p, f2, 48));
  const cuda::WinogradFused run{cuda::WinogradShape(p, 2)};
  EXPECT_EQ(run.shared_bytes(card(99)->info()), 65536);
  EXPECT_EQ(run.shared_bytes(card(163)->info()), 131072);
  EXPECT_EQ(run.blocks(card(99)->info()), 2 * run.blocks(card(163)->info()));
}

TEST(FakeCards, ImplicitGemmLeavesOutTilesThatDoNotFit) {
  const ConvProblem p = problem("mb1ic16ih14oc64oh14kh3ph1", Pass::backward_filter);
  EXPECT_EQ(plan_says("implicit_gemm", p, "m=128,n=128,split=1,math=tf32x3", 99),
            "implicit_gemm: 'm=128,n=128,split=1,math=tf32x3' needs 104448 bytes of shared memory "
            "a block, the card has 101376");
  EXPECT_TRUE(lists("implicit_gemm", p, "m=128,n=128,split=1,math=tf32x3", 163));
  EXPECT_EQ(refusal_of("implicit_gemm", p, 48), "");
  ConvProblem half = p;
  half.dtype = DType::bf16;
  EXPECT_EQ(refusal_of("implicit_gemm", half, 48),
            "needs 55296 bytes of shared memory a block, has 49152");
  half.pass = Pass::forward;
  EXPECT_EQ(refusal_of("implicit_gemm", half, 48), "");
}

TEST(FakeCards, FourierTransformsAreRefusedWhereTheyDoNotFit) {
  const ConvProblem tall =
      problem("mb1ic1ih4000iw4oc1oh4000ow4kh3ph1", Pass::forward, Layout::nchw, DType::f64);
  EXPECT_EQ(refusal_of("fft", tall, 48), "needs 66096 bytes of shared memory a block, has 49152");
  EXPECT_EQ(refusal_of("fft", tall, 99), "");
  const ConvProblem wide = problem("mb1ic1ih32oc1oh32kh13ph6", Pass::forward);
  EXPECT_EQ(refusal_of("fft_tiled", wide, 48),
            "needs 65536 bytes of shared memory a block, has 49152");
  EXPECT_EQ(refusal_of("fft_tiled", wide, 99), "");
}

TEST(FakeCards, DirectTakesSmallerSharesOfSmallerCards) {
  const ConvProblem p =
      problem("mb1ic8ih64oc32oh64kh15ph7", Pass::forward, Layout::nchw, DType::f64);
  const char* const config = "kernel=staged,k=8,pixels=4,warps=4,width=32";
  const std::string says = plan_says("direct", p, config, 48);
  EXPECT_TRUE(says.ends_with("bytes of shared memory a block, the card has 49152")) << says;
  EXPECT_EQ(plan_says("direct", p, config, 227), "");
  EXPECT_EQ(refusal_of("direct", p, 48), "");
  EXPECT_TRUE(lists("direct", p, "kernel=plain,rows=8", 48));
}

TEST(FakeCards, NormalisationAcrossManyChannelsIsRefused) {
  const auto device = card(48);
  const auto stream = device->make_stream();
  const LrnDesc desc{.x = {1, 8000, 1, 1}, .size = 16000};
  const Buffer x = device->allocate(8000 * sizeof(double)), y = device->allocate(x.bytes());
  device->fill(x.span(), std::byte{0}, *stream);
  const auto run = [&](const Device& on) {
    const auto s = const_cast<Device&>(on).make_stream();
    on.ops().lrn_forward(DType::f64, desc, x.data(), y.data(), {}, *s);
  };
  EXPECT_EQ(message_of([&] { run(*device); }),
            "lrn on CUDA: 16000 channels around each take 128496 bytes of shared memory a block, "
            "the card has 49152");
  run(*card(227));
}

}  // namespace
}  // namespace convlab
