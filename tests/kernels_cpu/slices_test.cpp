// Which slices are convolved with which taps, in what order and in which batches.
#include "kernels_cpu/slices/slices.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernels_cpu/algos.h"
#include "kernels_cpu/cpu.h"
#include "tests/problems.h"

namespace convlab::cpu {
namespace {

std::vector<SliceCall> calls_of(const char* text, Pass pass, Layout layout, Views views,
                                Epilogue epilogue = {}) {
  ConvProblem p = parse_problem(text).problem;
  p.pass = pass;
  p.x_layout = p.y_layout = layout;
  p.epilogue = epilogue;
  return slice_calls(p, views);
}

constexpr const char* usual = "mb1ic32id8ih6oc32kd3kh3pd1ph1";

TEST(Slices, AllOfAnImageAreABatch) {
  // The middle tap reaches all slices; each other one misses one of them.
  const auto calls = calls_of(usual, Pass::forward, Layout::nhwc, Views::none);
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].tap, 1);
  EXPECT_EQ(calls[0].problem.n, 8);
  EXPECT_FALSE(calls[0].problem.accumulate);
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(calls[i].problem.n, 7);
    EXPECT_TRUE(calls[i].problem.accumulate);
    EXPECT_FALSE(calls[i].problem.is_view());
    EXPECT_FALSE(calls[i].problem.has_depth());
  }
  const std::int64_t slice = 32 * 6 * 6;
  EXPECT_EQ(calls[1].tap, 0);
  EXPECT_EQ(calls[1].x_at, 0);
  EXPECT_EQ(calls[1].y_at, slice);
  EXPECT_EQ(calls[2].x_at, slice);
  EXPECT_EQ(calls[2].y_at, 0);
}

TEST(Slices, ChannelsOfAViewLieADepthApart) {
  for (const SliceCall& call : calls_of(usual, Pass::forward, Layout::nchw16c, Views::all)) {
    EXPECT_EQ(call.problem.x_steps, (Steps{6 * 6 * 16, 8 * 6 * 6 * 16}));
    EXPECT_EQ(call.problem.y_steps, call.problem.x_steps);
  }
  // One channel block, and one image at a time, has no views.
  for (const SliceCall& call :
       calls_of("mb1ic16id8ih6oc16kd3kh3pd1ph1", Pass::forward, Layout::nchw16c, Views::none))
    EXPECT_FALSE(call.problem.is_view());
}

TEST(Slices, StridesAreViewsOrSingleImages) {
  const char* const strided = "mb1ic32id8ih6oc32kd3kh3sd2sh1pd1ph1";
  for (const SliceCall& call : calls_of(strided, Pass::forward, Layout::nhwc, Views::all)) {
    EXPECT_GE(call.problem.n, 3);
    EXPECT_EQ(call.problem.x_steps.image, 2 * 32 * 6 * 6);
  }
  for (const SliceCall& call : calls_of(strided, Pass::forward, Layout::nhwc, Views::none)) {
    EXPECT_EQ(call.problem.n, 1);
    EXPECT_FALSE(call.problem.is_view());
  }
}

TEST(Slices, ManyImagesOfFewSlicesAreTheBatch) {
  for (const SliceCall& call :
       calls_of("mb9ic32id2ih6oc32kd3kh3pd1ph1", Pass::forward, Layout::nhwc, Views::all))
    EXPECT_GE(call.problem.n, 9);
  // Where a tap joins all slices of x with all of y, all images are one batch.
  EXPECT_EQ(
      calls_of("mb9ic32id2ih6oc32kd1kh3pd0ph1", Pass::forward, Layout::nhwc, Views::none).size(),
      1u);
}

// Each output slice takes each of its taps once: the first does not accumulate and has the bias and
// the residual, the last has the ReLU.
TEST(Slices, EveryTapOnceAndTheEpilogueAtItsPlace) {
  for (const std::string& text : depth_problem_texts())
    for (const Pass pass : {Pass::forward, Pass::backward_data})
      for (const Layout layout : {Layout::nchw, Layout::nhwc, Layout::nchw16c})
        for (const Views views : {Views::all, Views::none}) {
          ConvProblem p = parse_problem(text).problem;
          p.pass = pass;
          p.x_layout = p.y_layout = layout;
          if (pass == Pass::forward) p.epilogue = {true, true, ActivationKind::relu};
          const bool forward = pass == Pass::forward;
          const TensorDesc out = forward ? p.y_desc() : p.x_desc();
          const std::int64_t depth = forward ? p.z : p.d, rows = forward ? p.p : p.h;
          std::map<std::int64_t, std::vector<std::pair<std::int64_t, ConvProblem>>> by_slice;
          for (const SliceCall& call : slice_calls(p, views)) {
            const TensorDesc slice = forward ? call.problem.y_desc() : call.problem.x_desc();
            for (std::int64_t i = 0; i < slice.n; ++i)
              by_slice[(forward ? call.y_at : call.x_at) + slice.offset(i, 0, 0, 0)].push_back(
                  {call.tap, call.problem});
          }
          std::set<std::int64_t> expected;
          std::int64_t joined = 0;
          for (std::int64_t n = 0; n < p.n; ++n)
            for (std::int64_t at = 0; at < depth; ++at) {
              std::set<std::int64_t> taps;
              for (std::int64_t t = 0; t < p.t; ++t) {
                const std::int64_t shift = t * p.dilation_d - p.pad_d;
                const std::int64_t d = at * p.stride_d + shift, z = at - shift;
                if (forward ? d >= 0 && d < p.d
                            : z >= 0 && z % p.stride_d == 0 && z / p.stride_d < p.z)
                  taps.insert(t);
              }
              const auto found = by_slice.find(out.offset(n, 0, at * rows, 0));
              EXPECT_EQ(found == by_slice.end(), taps.empty()) << text;
              if (found == by_slice.end()) continue;
              joined += std::int64_t(found->second.size());
              const auto& uses = found->second;
              EXPECT_EQ(uses.size(), taps.size()) << text;
              for (std::size_t i = 0; i < uses.size(); ++i) {
                const auto& [tap, slice] = uses[i];
                EXPECT_EQ(taps.erase(tap), 1u) << text;
                EXPECT_EQ(slice.accumulate, i > 0) << text;
                EXPECT_EQ(slice.epilogue.bias, forward && i == 0) << text;
                EXPECT_EQ(slice.epilogue.residual, forward && i == 0) << text;
                EXPECT_EQ(slice.epilogue.activation.has_value(), forward && i + 1 == uses.size())
                    << text;
              }
            }
          std::int64_t all = 0;
          for (const auto& [at, uses] : by_slice) all += std::int64_t(uses.size());
          EXPECT_EQ(all, joined) << text << ": a slice that is none of the output's";
        }
}

TEST(Slices, OfDepthAreRefusedWhereChannelsLieApart) {
  const BySlices im2col(make_im2col(), Views::none);
  const auto device = make_cpu_device({1, ""});
  ConvProblem p = parse_problem(usual).problem;
  const auto refusal = im2col.refuse(p, *device);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->field, Field::depth);
  EXPECT_EQ(refusal->reason(),
            "needs slices of a depth that are tensors themselves, as in nhwc, has nchw to nchw");
  p.x_layout = p.y_layout = Layout::nhwc;
  EXPECT_FALSE(im2col.refuse(p, *device));
}

}  // namespace
}  // namespace convlab::cpu
