// Implicit GEMM on CUDA, beyond the test over the registry: several blocks in each dimension with
// ragged edges, both layouts, stride phases with different taps, split sums, epilogues.
#include "kernels_cuda/implicit_gemm/implicit_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string_view>
#include <vector>

#include "conv/error.h"
#include "conv/types/math_type.h"
#include "kernels_cuda/on_cpu/access_counts.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/problems.h"

namespace convlab {
namespace {

class CudaImplicitGemm : public OneCudaAlgo {
 protected:
  CudaImplicitGemm() : OneCudaAlgo("implicit_gemm") {}
};

using enum MathType;

Config with(std::int64_t m, std::int64_t n, std::int64_t split, MathType math = f32,
            DType dtype = DType::f32) {
  return with_math({{"m", m}, {"n", n}, {"split", split}}, dtype, math);
}

// Accumulates, or uses every part of forward's epilogue.
ConvProblem finishing(const char* text, Pass pass, bool accumulate, DType dtype = DType::f32) {
  ConvProblem p = problem(text, pass, Layout::nchw, dtype);
  p.accumulate = accumulate;
  if (!accumulate && pass == Pass::forward)
    p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
  return p;
}

// Sums of small integers are exact in any order, and these are small enough for bf16's 8 bits.
TEST_F(CudaImplicitGemm, EveryTileWithRaggedEdges) {
  // Two blocks and a part in the images' pixels, in K, and in C.
  for (const char* text : {"mb3ic6ih11iw9oc133kh3ph1", "mb1ic131ih12iw13oc20kh1ph0"})
    for (const Pass pass : all_passes)
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
        if (reduced() && dtype == DType::bf16) continue;  // f16's kernels except the conversion
        ConvProblem p = problem(text, pass);
        p.dtype = dtype;
        const ReferenceCase reference(p, 1, DataKind::small_integers);
        for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
          p.x_layout = p.y_layout = layout;
          for (const std::int64_t m : {64, 128})
            for (const std::int64_t n : {64, 128}) {
              expect_right(p, with(m, n, 3, f32, dtype), reference);
              if (dtype == DType::f32) expect_right(p, with(m, n, 1, tf32), reference);
            }
        }
      }
}

TEST_F(CudaImplicitGemm, StridesDilationAndPadding) {
  // Stride phases with several taps, with one, and with none; dilations that share a factor with
  // the stride or do not; padding wider than the filter's reach; bottom rows that no output reads;
  // vectors of four channels in NHWC.
  for (const char* text :
       {"mb2ic7ih15iw13oc5kh3sh2ph1", "mb1ic9ih13iw14oc10kh2kw1sh3sw2ph0",
        "mb1ic8ih17iw15oc12kh3sh2ph2dh1", "mb1ic4ih18iw19oc4kh3kw4sh2sw3ph3pw2dh2dw1",
        "mb2ic3ih31oc4kh11sh4ph2", "mb1ic12ih10oh5oc16kh3sh2ph0", "mb1ic5ih1oc3kh3ph1"})
    for (const Pass pass : all_passes) {
      const ReferenceCase reference(problem(text, pass), 1, DataKind::small_integers);
      for (const Layout layout : {Layout::nchw, Layout::nhwc})
        for (const std::int64_t split : {1, 2})
          for (const MathType math : {f32, split == 1 ? tf32 : tf32x3})
            expect_right(problem(text, pass, layout), with(64, 64, split, math), reference);
    }
}

// Groups whose channels fill tiles or do not, with padded vectors between them, and depth: strides
// and dilations that share a factor or do not, asymmetric padding, planes that no tap reaches.
TEST_F(CudaImplicitGemm, GroupsAndDepth) {
  for (const char* text :
       {"g3mb2ic21ih9iw11oc15kh3sh2ph1", "g2mb1ic136ih5oc144kh3ph1", "g10mb2ic10ih7oc20kh3dh1ph2",
        "mb2ic6id5ih6iw7oc9kd3kh3pd1ph1", "mb1ic5id11ih5oc9od5oh5kd3kh3sd2dd2pd1ph1",
        "mb1ic8id9ih5oc9kd3kh3sd3sh1dd2pd3ph1", "mb2ic8id3ih5oc9od6oh5kd4kh1pd4ph0",
        "mb1ic8id1ih7oc9od2oh7kd2kh3sd3sh1pd2ph1", "g3mb2ic12id4ih7oc24kd3kh3sd2sh2pd1ph1"})
    for (const Pass pass : all_passes)
      for (const std::int64_t split : {1, 3}) {
        ConvProblem p = finishing(text, pass, split == 3);
        const ReferenceCase reference(p, 1, DataKind::small_integers);
        for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
          p.x_layout = p.y_layout = layout;
          expect_right(p, with(64, 64, split, f32), reference);
          expect_right(p, with(64, 64, split, split == 1 ? tf32 : tf32x3), reference);
        }
      }
}

TEST_F(CudaImplicitGemm, GroupsAndDepthInShortTypes) {
  for (const char* text : {"g3mb2ic21ih9iw11oc15kh3sh2ph1", "g2mb2ic24id4ih7oc32kd3kh3sd2pd1ph1"})
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const Pass pass : all_passes) {
        ConvProblem p = problem(text, pass, Layout::nchw, dtype);
        const ReferenceCase reference(p, 1, DataKind::small_integers);
        for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
          p.x_layout = p.y_layout = layout;
          for (const std::int64_t split : {1, 2})
            expect_right(p, with(64, 64, split, f32, dtype), reference);
        }
      }
}

TEST_F(CudaImplicitGemm, FinishesTheOutput) {
  for (const Pass pass : all_passes)
    for (const bool accumulate : {false, true}) {
      ConvProblem p = finishing("mb2ic5ih9oc70kh3ph1", pass, accumulate);
      const ReferenceCase reference(p, 1, DataKind::small_integers);
      for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
        p.x_layout = p.y_layout = layout;
        for (const std::int64_t split : {1, 2})
          for (const MathType math : {f32, tf32})
            expect_right(p, with(128, 64, split, math), reference);
      }
    }
}

TEST_F(CudaImplicitGemm, FinishesShortTypes) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      ConvProblem p = problem("mb2ic5ih9oc70kh3ph1", Pass::forward, layout);
      p.dtype = dtype;
      p.epilogue = {.bias = true, .residual = true, .activation = ActivationKind::relu};
      const ReferenceCase reference(p, 1, DataKind::small_integers);
      for (const std::int64_t split : {1, 2})
        expect_right(p, with(64, 64, split, f32, dtype), reference);
    }
}

// A lane writes 16 bytes where the output's columns are contiguous. Nothing may be written beyond
// ragged edges, in any type, with the whole epilogue, and in the parts of a split sum.
TEST_F(CudaImplicitGemm, FinishesSixteenBytesAtATime) {
  for (const char* text :
       {"mb3ic5ih8oc72kh3ph1", "mb2ic72ih16iw12oc8kh1ph0", "mb2ic16ih17oc24kh3sh2ph1"})
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
        for (const bool accumulate : {false, true}) {
          ConvProblem p = finishing(text, pass, accumulate, dtype);
          const ReferenceCase reference(p, 1, DataKind::small_integers);
          for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
            p.x_layout = p.y_layout = layout;
            for (const std::int64_t split : {1, 2})
              expect_right(p, with(64, 128, split, f32, dtype), reference);
          }
        }
}

// With a 1x1 filter each output sums few products, so stores dominate the time. A warp stores 512
// bytes.
TEST_F(CudaImplicitGemm, WritesAWarpsWorthOfSixteenBytes) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      const ConvProblem p = problem("mb1ic16ih16oc128kh1", Pass::forward, layout, dtype);
      const ReferenceCase reference(p, 1, DataKind::small_integers);
      std::int64_t stores = 0;
      for (const on_cpu::AccessCount& count : on_cpu::count_accesses(
               [&] { expect_right(p, with(128, 64, 1, f32, dtype), reference); }))
        if (count.kind == on_cpu::AccessKind::global_store && count.bytes == 16)
          stores += count.requests;
      EXPECT_EQ(stores, p.y_bytes() / 512) << to_string(dtype) << ' ' << to_string(layout);
    }
}

// With more parts than slices, some parts have nothing to add.
TEST_F(CudaImplicitGemm, PartsMayBeEmpty) {
  for (const Pass pass : all_passes) {
    const ConvProblem p = problem("mb1ic2ih4oc3kh3ph1", pass);
    expect_right(p, with(64, 64, 40), ReferenceCase(p, 1, DataKind::small_integers));
  }
}

// For sums of 1000 products: f32 and 3xTF32 round only the sums; TF32 rounds operands to 11 bits.
TEST_F(CudaImplicitGemm, ErrsAsItsMathTypeSays) {
  for (const Pass pass : all_passes) {
    const ConvProblem p = problem("mb2ic112ih23oc16kh3ph1", pass, Layout::nhwc);
    const ReferenceCase reference(p, 1);
    expect_right(p, with(64, 64, 1, f32), reference, 1e-6);
    expect_right(p, with(64, 64, 1, tf32x3), reference, 1e-6);
    expect_right(p, with(64, 64, 1, tf32), reference, 5e-4);
    EXPECT_EQ(check_candidate(algo_, p, with(64, 64, 1, tf32), reference, *device_, *stream_, 1e-5)
                  .status,
              Status::inaccurate);
  }
}

float value(unsigned bits) { return std::bit_cast<float>(bits); }

// What the tensor core drops of a half, the bits beyond 11, counts as an error too.
TEST_F(CudaImplicitGemm, SplitsIntoTwoTf32Numbers) {
  using namespace cuda::implicit_gemm;
  constexpr unsigned read = 0xffffe000u;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 10000; ++i) {
    const float v = normal(random);
    unsigned big, small;
    split_rounded(v, big, small);
    EXPECT_EQ(value(big) + value(small), v);
    EXPECT_EQ(big & ~read, 0u);
    EXPECT_LE(std::abs(value(small)), std::abs(v) * 0x1p-11f);
    EXPECT_LE(std::abs(value(small) - value(small & read)), std::abs(v) * 0x1p-23f);
    const float pair = tf32_pair(v);
    EXPECT_LE(std::abs(pair - v), std::abs(v) * 0x1p-22f);
    split_pair(pair, big, small);
    EXPECT_EQ(value(big) + value(small), pair);
    EXPECT_EQ((big | small) & ~read, 0u);
    EXPECT_LE(std::abs(value(small)), std::abs(v) * 0x1p-10f);
  }
  for (const unsigned bits : {0x7fffffffu, 0xffffffffu, 0x7fc00000u, 0x7f800001u}) {
    unsigned big, small;
    split_rounded(value(bits), big, small);
    EXPECT_TRUE(std::isnan(value(big & read) + value(small & read))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(tf32_pair(value(bits)))) << std::hex << bits;
  }
}

TEST_F(CudaImplicitGemm, PacksFiltersAsItsMathTypeSays) {
  const ConvProblem p = problem("mb1ic5ih4oc6kh3ph1", Pass::forward);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> w(std::size_t(p.filter_elements()));
  for (float& v : w) v = normal(random);
  const ConstSpan filter = std::as_bytes(std::span(w));
  for (const auto& [math, round] :
       {std::pair<MathType, float (*)(float)>{f32, [](float v) { return v; }},
        {tf32, [](float v) { return std::bit_cast<float>(cuda::to_tf32(v)); }},
        {tf32x3, cuda::implicit_gemm::tf32_pair}}) {
    const auto plan = algo_.plan(p, with(64, 64, 1, math), *device_);
    const Buffer packed = device_->allocate(plan->packed_filter_bytes());
    plan->pack_filter(filter, packed.span(), *stream_);
    stream_->synchronize();
    std::vector<unsigned> wanted,
        there(packed.as<unsigned>(), packed.as<unsigned>() + packed.bytes() / sizeof(unsigned));
    for (const float v : w) wanted.push_back(std::bit_cast<unsigned>(round(v)));
    std::ranges::sort(wanted);
    std::ranges::sort(there);
    EXPECT_TRUE(std::ranges::includes(there, wanted)) << math_type_names[std::size_t(math)];
  }
}

// Shared memory has no bank conflicts. Global memory is accessed in whole sectors, except where the
// problem's shape prevents it: windows that start anywhere, and dw, which NHWC sums in another
// order.
TEST_F(CudaImplicitGemm, AccessesMemoryAsTheCardLikesIt) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  const char* const odd = "mb1ic33ih16oc65kh3ph1";  // backward_filter then takes single elements
  for (const Layout layout : {Layout::nchw, Layout::nhwc})
    for (const auto& [text, pass] : {std::pair{"mb1ic32ih16oc64kh3ph1", Pass::forward},
                                     {"mb1ic32ih16oc64kh3ph1", Pass::backward_data},
                                     {"mb1ic32ih16oc64kh3ph1", Pass::backward_filter},
                                     {odd, Pass::backward_filter}}) {
      const ConvProblem p = problem(text, pass, layout);
      const ReferenceCase reference(p, 1, DataKind::small_integers);
      for (const MathType math : {f32, tf32})
        for (const std::int64_t m : {64, 128}) {
          int lines = 0;
          for (const on_cpu::AccessCount& count : on_cpu::count_accesses(
                   [&] { expect_right(p, with(m, 192 - m, 1, math), reference); })) {
            const bool global = count.kind == on_cpu::AccessKind::global_load ||
                                count.kind == on_cpu::AccessKind::global_store;
            if (global && pass == Pass::backward_filter) continue;
            EXPECT_EQ(count.transactions, count.least)
                << to_string(layout) << ' ' << to_string(pass) << " m=" << m
                << " math=" << math_type_names[std::size_t(math)] << ' ' << count.site.file << ':'
                << count.site.line;
            ++lines;
          }
          EXPECT_GE(lines, 5);
        }
    }
}

// For 3xTF32 a packed filter holds pairs, as long as TF32's numbers: so both read shared memory in
// as many passes.
TEST_F(CudaImplicitGemm, PairsReadNoMoreSharedMemory) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  for (const Pass pass : {Pass::forward, Pass::backward_data}) {
    const ConvProblem p = problem("mb1ic32ih16oc64kh3ph1", pass, Layout::nhwc);
    const ReferenceCase reference(p, 1, DataKind::small_integers);
    std::int64_t passes[2]{};
    for (const MathType math : {tf32, tf32x3})
      for (const on_cpu::AccessCount& count :
           on_cpu::count_accesses([&] { expect_right(p, with(128, 64, 1, math), reference); }))
        if (count.kind == on_cpu::AccessKind::shared_load)
          passes[math == tf32] += count.transactions;
    EXPECT_GT(passes[0], 0);
    EXPECT_EQ(passes[0], passes[1]) << to_string(pass);
  }
}

// In the main loop of FMA each operand's vector is read in two passes of its warp.
TEST_F(CudaImplicitGemm, ReadsAVectorInTwoPasses) {
  if (reduced()) GTEST_SKIP() << "sanitizers see nothing in counts, and slow them down";
  const ConvProblem p = problem("mb1ic32ih16oc64kh3ph1", Pass::forward);
  const ReferenceCase reference(p, 1, DataKind::small_integers);
  for (const std::int64_t m : {64, 128}) {
    int lines = 0;
    for (const on_cpu::AccessCount& count :
         on_cpu::count_accesses([&] { expect_right(p, with(m, 192 - m, 1, f32), reference); })) {
      if (count.kind != on_cpu::AccessKind::shared_load || count.bytes != 16 ||
          !std::string_view(count.site.file).ends_with("fma.cu"))
        continue;
      EXPECT_EQ(count.transactions, 2 * count.requests) << "line " << count.site.line;
      ++lines;
    }
    EXPECT_EQ(lines, 4);
  }
}

TEST_F(CudaImplicitGemm, SplitsWhatWouldLeaveMultiprocessorsIdle) {
  const ConvProblem p = problem("mb1ic64ih4oc32kh3ph1", Pass::forward);
  EXPECT_GT(algo_.configs(p, *device_).front().get("split"), 1);
  const ConvProblem large = problem("mb16ic64ih56oc64kh3ph1", Pass::forward);
  EXPECT_EQ(algo_.configs(large, *device_).front().get("split"), 1);
}

TEST_F(CudaImplicitGemm, RejectsAConfigItDoesNotKnow) {
  const ConvProblem p = problem("mb1ic4ih4oc4kh3ph1", Pass::forward);
  for (const char* config :
       {"m=96,n=64,split=1,math=f32", "m=64,n=64,split=0,math=f32", "m=64,n=64,split=1,math=f16",
        "m=64,n=64,split=1,math=2", "m=64,n=64,split=1"})
    EXPECT_THROW(algo_.plan(p, Config::parse(config), *device_), InputError) << config;
  const ConvProblem f16 = problem("mb1ic4ih4oc4kh3ph1", Pass::forward, Layout::nchw, DType::f16);
  EXPECT_THROW(algo_.plan(f16, with(64, 64, 1), *device_), InputError);
}

TEST(CudaImplicitGemmJob, PartsOfALongSumDoNotOverflow) {
  for (const int slices : {1, 7, 1000, (1 << 28) - 3, 1 << 28})
    for (const int split : {1, 3, 256, 1024})
      for (const int part : {0, 1, split / 2, split - 1, split})
        EXPECT_EQ(cuda::part_start(part, slices, split), std::int64_t(slices) * part / split);
}

}  // namespace
}  // namespace convlab
