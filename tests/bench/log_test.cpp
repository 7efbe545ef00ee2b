// Logs of other libraries, each in the format of its releases.
#include "bench/logs/log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "autotune/problem.h"
#include "conv/error.h"
#include "conv/text/text_file.h"
#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

ConvLog read(const std::string& name) {
  return read_log(read_text_file(std::string(CONVLAB_LOGS) + "/" + name, "a log"), name);
}

// "mb1... fwd f32 bias+relu x2 0.75 ms", with the transposed one's text and pass.
std::vector<std::string> shown(const ConvLog& log) {
  std::vector<std::string> lines;
  for (const LoggedConv& conv : log.convs) {
    LayerProblem layer;
    layer.problem = conv.problem;
    layer.transposed = conv.transposed;
    const std::string extras = extras_of(conv.problem);
    lines.push_back(fmt::format("{} {} {}{}{} x{}{}", layer.text(), to_string(layer.pass()),
                                to_string(conv.problem.dtype), extras.empty() ? "" : " ", extras,
                                conv.count, conv.timed > 0 ? fmt::format(" {} ms", conv.ms) : ""));
  }
  return lines;
}

using Lines = std::vector<std::string>;
using Remarks = std::vector<LogRemark>;

std::string refusal(const std::string& text) {
  try {
    read_log(text, "f");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// One line of oneDNN, as a release without a template line prints it.
std::string line(const std::string& sizes, const std::string& attributes = "",
                 const std::string& pass = "forward_inference", const std::string& time = ",1") {
  return fmt::format(
      "onednn_verbose,exec,cpu,convolution,jit:avx2,{},src_f32::blocked:abcd:f0 "
      "wei_f32::blocked:Acdb8a:f0 bia_undef::undef::f0 dst_f32::blocked:aBcd8b:f0,{},"
      "alg:convolution_direct,{}{}\n",
      pass, attributes, sizes, time);
}

TEST(Log, ReadsOnednn1) {
  const ConvLog log = read("onednn_1.log");
  EXPECT_EQ(log.source, "oneDNN v1.1.2");
  EXPECT_EQ(shown(log), (Lines{"mb2ic16ih7oc16oh7kh5ph2 fwd f32 bias x1 0.5 ms",
                               "g2mb2ic16ih7oc16oh7kh3ph2dh1 fwd f32 x1 0.25 ms",
                               "mb2ic16ih7oc16oh7kh3ph1 fwd f32 bias+residual+relu x1 0.125 ms",
                               "mb2ic16ih7oc16oh7kh5ph2 bwd_w f32 x1 0.75 ms"}));
  EXPECT_EQ(log.skipped, (Remarks{{"not convolutions (reorder 1)", 1, 4},
                                  {"the post-ops eltwise_bounded_relu:5;", 1, 8}}));
  EXPECT_EQ(log.simplified, (Remarks{{"the bias's gradient is left out", 1, 9}}));
}

TEST(Log, ReadsOnednn2) {
  const ConvLog log = read("onednn_2.log");
  EXPECT_EQ(log.source, "oneDNN v2.6.3");
  EXPECT_EQ(shown(log), (Lines{"mb1ic3ih16oc16oh8kh3sh2ph1 fwd f32 bias+relu x2 0.75 ms",
                               "mb1ic16ih8oc16oh8kh3ph1 fwd f32 residual+relu x1 0.125 ms",
                               "deconv:mb1ic16ih8oc8oh16kh3sh2ph1 fwd f32 x1 0.5 ms",
                               "deconv:mb1ic16ih8oc8oh16kh3sh2ph1 bwd_d f32 x1 0.25 ms",
                               "g16mb1ic16ih8oc16oh8kh3ph1 bwd_d f32 x1 0.0625 ms",
                               "mb1ic16ih8oc16oh8kh3ph1 bwd_w bf16 x1 0.0625 ms"}));
  EXPECT_EQ(log.skipped, (Remarks{{"the post-ops eltwise_relu+sum", 1, 8},
                                  {"the types u8, s8, u8 of src, wei, dst", 1, 9},
                                  {"not convolutions (eltwise 1)", 1, 12},
                                  {"the types bf16, f32, bf16 of src, wei, dst", 1, 14},
                                  {"a cut line", 1, 16}}));
  EXPECT_EQ(log.simplified, (Remarks{{"the bias of a transposed convolution is left out", 1, 10}}));
  EXPECT_EQ(log.runs(), 7);
  EXPECT_EQ(log.ms(), 1.75);
}

TEST(Log, ReadsActivationsOfOnednn) {
  const std::string sizes = "mb1ic8ih8oc8oh8kh3ph1";
  const std::pair<const char*, const char*> activations[] = {
      {"eltwise_relu", "relu"},
      {"eltwise_clip:0:6", "relu6"},
      {"eltwise_bounded_relu:6", "relu6"},
      {"eltwise_hardsigmoid:0.166667:0.5", "hardsigmoid"},
      {"eltwise_hardswish:0.166667:0.5", "hardswish"},
      {"eltwise_swish:1", "silu"},
      {"eltwise_gelu_erf", "gelu"},
      {"eltwise_logistic", "sigmoid"},
      {"eltwise_tanh", "tanh"}};
  for (const auto& [op, name] : activations)
    EXPECT_EQ(shown(read_log(line(sizes, std::string("attr-post-ops:") + op + " "), "a.log")),
              Lines{sizes + " fwd f32 " + name + " x1 1 ms"});
  for (const char* op : {"eltwise_clip:-1:6", "eltwise_clip:0:7", "eltwise_swish:1.5",
                         "eltwise_hardswish:0.2:0.5", "eltwise_relu:0:0:2", "eltwise_gelu_tanh"})
    EXPECT_THROW(read_log(line(sizes, std::string("attr-post-ops:") + op + " "), "a.log"),
                 InputError)
        << op;
}

TEST(Log, ReadsOnednn3WithTimestampsAndFormatVersion) {
  const ConvLog log = read("onednn_3.log");
  EXPECT_EQ(log.source, "oneDNN v3.13.3");
  EXPECT_EQ(shown(log),
            (Lines{"mb1ic8ih1iw40oc8oh1ow40kh1kw5ph0pw2 fwd f32 x1 0.25 ms",
                   "mb1ic8id4ih9iw9oc8od4oh9ow9kd3kh3kw3pd1ph1pw1 fwd f32 bias x1 0.5 ms",
                   "mb1ic16ih10oc16oh10kh3ph1 fwd f64 bias+residual+relu x1 0.75 ms"}));
  EXPECT_EQ(log.skipped, (Remarks{{"the post-ops binary_add:f32:2", 1, 9},
                                  {"the post-ops eltwise_relu:0.1", 1, 10},
                                  {"not convolutions (matmul 1)", 1, 12}}));
  EXPECT_EQ(log.simplified,
            (Remarks{{"fpmath:bf16 lets oneDNN multiply in a smaller type", 1, 7}}));
}

// The template says where columns stand.
TEST(Log, FollowsOnednnsTemplate) {
  const ConvLog log = read_log(
      "onednn_verbose,v1,primitive,info,template:timestamp,operation,engine,primitive,problem_desc,"
      "exec_time,prop_kind,memory_descriptors,attributes\n"
      "12:00:01 worker onednn_verbose,v1,17.5,primitive,exec,cpu,convolution,"
      "mb1ic8ih8oc8oh8kh3ph1,0.5,backward_data,src:f32::x wei:f32::x dst:f32::x,\n",
      "f");
  EXPECT_EQ(shown(log), (Lines{"mb1ic8ih8oc8oh8kh3ph1 bwd_d f32 x1 0.5 ms"}));
  const ConvLog untimed = read_log(
      "onednn_verbose,info,prim_template:operation,engine,primitive,implementation,prop_kind,"
      "memory_descriptors,attributes,auxiliary,problem_desc\n" +
          line("mb1ic8ih8oc8oh8kh3ph1", "", "forward_inference", ""),
      "f");
  EXPECT_EQ(shown(untimed), (Lines{"mb1ic8ih8oc8oh8kh3ph1 fwd f32 x1"}));
}

TEST(Log, ReadsRunsWithoutTimes) {
  const std::string sizes = "mb1ic8ih8oc8oh8kh3ph1";
  const ConvLog log = read_log(line(sizes, "", "forward_inference", "") + line(sizes), "f");
  ASSERT_EQ(log.convs.size(), 1u);
  EXPECT_EQ(log.convs[0].count, 2);
  EXPECT_EQ(log.convs[0].timed, 1);
  for (const std::string time : {",-1", ",nan", ",inf", ",1e300", ",x"})
    EXPECT_EQ(read_log(line(sizes, "", "forward_inference", time), "f").convs[0].timed, 0) << time;
}

// The last mask lacks the height: a row is added to each row.
TEST(Log, TellsEpiloguesApart) {
  const std::string sizes = "mb1ic8ih8oc8oh8kh3ph1";
  const ConvLog log = read_log(line(sizes) + line(sizes, "attr-post-ops:eltwise_relu ") +
                                   line(sizes, "attr-post-ops:binary_add:f32:14 ") +
                                   line(sizes, "attr-post-ops:sum ") +
                                   line(sizes, "attr-post-ops:binary_add:f32:10 "),
                               "f");
  EXPECT_EQ(shown(log), (Lines{"mb1ic8ih8oc8oh8kh3ph1 fwd f32 x1 1 ms",
                               "mb1ic8ih8oc8oh8kh3ph1 fwd f32 relu x1 1 ms",
                               "mb1ic8ih8oc8oh8kh3ph1 fwd f32 residual x2 2 ms"}));
  EXPECT_EQ(log.skipped, (Remarks{{"the post-ops binary_add:f32:10", 1, 5}}));
}

TEST(Log, CountsPreparationsWhereNothingRan) {
  std::string text = line("mb1ic8ih8oc8oh8kh3ph1");
  text.replace(text.find(",exec,"), 6, ",create:cache_miss,");
  const ConvLog log = read_log(text + text, "f");
  EXPECT_TRUE(log.only_prepared);
  EXPECT_EQ(shown(log), (Lines{"mb1ic8ih8oc8oh8kh3ph1 fwd f32 x2"}));
  const ConvLog ran = read_log(text + line("mb1ic8ih8oc8oh8kh3ph1"), "f");
  EXPECT_FALSE(ran.only_prepared);
  EXPECT_EQ(shown(ran), (Lines{"mb1ic8ih8oc8oh8kh3ph1 fwd f32 x1 1 ms"}));
}

TEST(Log, ReadsMiopensDriverCommands) {
  const ConvLog log = read("miopen.log");
  EXPECT_EQ(log.source, "MIOpen");
  EXPECT_EQ(shown(log), (Lines{"mb8ic3ih32oc16oh32kh3ph1 fwd f32 x2",
                               "g4mb2ic16ih14iw28oc32oh7ow28kh3kw5sh2sw1ph2pw4dh1dw1 bwd_d f16 x1",
                               "mb1ic16id5ih10iw6oc16od5oh10ow6kd3kh1kw1pd1ph0pw0 bwd_w bf16 x1",
                               "deconv:mb4ic16ih8oc8oh16kh4sh2ph1 fwd f32 x1",
                               "mb4ic16ih8oc8oh6kh3ph0 fwd f32 x1 0.25 ms",
                               "mb4ic16ih8oc8oh6kh3ph0 bwd_d f32 x1 0.5 ms",
                               "mb4ic16ih8oc8oh6kh3ph0 bwd_w f32 x1 0.75 ms"}));
  EXPECT_EQ(log.skipped,
            (Remarks{{"the type of convint8", 1, 7},
                     {"-m trans: MIOpen logs no output channels of transposed convolutions", 1, 8},
                     {"not convolutions (bnorm 1)", 1, 9}}));
}

TEST(Log, ReadsTheFlagsOfMiopensDriver) {
  EXPECT_EQ(shown(read_log("MIOpenDriver conv --in_channels=8 -n \"1\" -k 8 -F 1", "f")),
            (Lines{"mb1ic8ih32oc8oh30kh3ph0 fwd f32 x1"}));
  EXPECT_EQ(shown(read_log("MIOpenDriver conv -n 1 -c 8 -k 8 -p 1 -q 1 -z valid -F 1", "f")),
            (Lines{"mb1ic8ih32oc8oh30kh3ph0 fwd f32 x1"}));
  // Output padding.
  EXPECT_EQ(
      shown(read_log("MIOpenDriver conv -n 1 -c 8 -H 4 -W 4 -k 2 -u 2 -v 2 -p 1 -q 1 -m trans "
                     "-Y 1 -X 1 -F 4",
                     "f")),
      (Lines{"deconv:mb1ic8ih4oc2oh8kh3sh2ph1 bwd_w f32 x1"}));
  for (const auto& [flags, why] : std::vector<std::pair<std::string, std::string>>{
           {"-n", "a cut line"},
           {"-n 1x", "a flag that is not a whole number"},
           {"-n 99999999999999999999", "a flag that is not a whole number"},
           {"-n 0", "sizes that no convolution has"},
           {"-H 2 -F 1", "sizes that no convolution has"},
           {"-H 1000000000000000000 -F 1", "sizes that no convolution has"},
           {"-z same", "the padding mode same"},
           {"-m group", "the mode group"},
           {"--spatial_dim 1", "1 dimensions"},
           {"-F 8", "the pass of -F"}})
    EXPECT_TRUE(contains(refusal("MIOpenDriver conv " + flags), ": " + why)) << flags;
}

// Only runs have times: a search is none, and may be the log's first line.
TEST(Log, GivesTimesToRunsOfMiopensDriver) {
  const std::string search = "[LogCmdFindConvolution] MIOpenDriver conv -n 1 -F 1\n",
                    time = "GPU Kernel Time Forward Conv. Elapsed: 2 ms (average)\n";
  const ConvLog log = read_log(time + search + time, "f");
  EXPECT_TRUE(log.only_prepared);
  EXPECT_EQ(log.ms(), 0);
  const ConvLog ran = read_log("MIOpenDriver conv -n 1 -F 1\n" + time + time, "f");
  EXPECT_EQ(ran.ms(), 2);
}

TEST(Log, ReadsCudnnsClassicCalls) {
  const ConvLog log = read("cudnn.log");
  EXPECT_EQ(log.source, "cuDNN");
  EXPECT_EQ(shown(log), (Lines{"mb1ic3ih32oc16oh16kh5sh2ph2 fwd f32 x2",
                               "g4mb2ic16ih8oc32oh8kh3ph2dh1 bwd_d f16 x1",
                               "mb1ic8id4ih9iw9oc8od4oh9ow9kd3kh3kw3pd1ph1pw1 bwd_w f32 x1",
                               "mb1ic16ih8oc16oh8kh3ph1 fwd f32 bias+residual+relu x1"}));
  EXPECT_EQ(log.skipped,
            (Remarks{{"a result added to what is there (beta)", 1, 214},
                     {"not convolutions (cudnnConvolutionBackwardBias 1)", 1, 248},
                     {"the type CUDNN_DATA_INT8", 1, 265},
                     {"a run of the graph API, whose log does not name its problem", 1, 297}}));
}

// A log that ends within a call, or in which other calls write between its lines.
TEST(Log, ReadsCutCudnnCalls) {
  const std::string text = read_text_file(std::string(CONVLAB_LOGS) + "/cudnn.log", "a log");
  const std::size_t call = text.find("function cudnnConvolutionBackwardFilter");
  const ConvLog log = read_log(text.substr(0, text.find("dwDesc", call)), "f");
  EXPECT_EQ(log.convs.size(), 2u);
  ASSERT_EQ(log.skipped.size(), 1u);
  EXPECT_EQ(log.skipped[0].reason, "a cut call");
}

TEST(Log, ReadsSeveralLibrariesInOneFile) {
  const ConvLog log =
      read_log("MIOpenDriver conv -n 1 -F 1\r\n" + line("mb1ic3ih32oc32oh30kh3ph0"), "f");
  EXPECT_EQ(log.source, "MIOpen and oneDNN");
  EXPECT_EQ(shown(log), (Lines{"mb1ic3ih32oc32oh30kh3ph0 fwd f32 x2 1 ms"}));
}

TEST(Log, RefusesWhatIsNoLogOrHasNoConvolution) {
  const std::string no_log = "'f' is not a log that convlab reads: expected oneDNN's";
  for (const std::string& text :
       {std::string(), std::string("hello\nworld"), std::string("\0\xff\x80\n", 4),
        std::string("mb1ic8ih8oc8oh8kh3ph1\n"), std::string("the MIOpenDriver\n")})
    EXPECT_TRUE(contains(refusal(text), no_log)) << refusal(text);
  const std::string what = refusal(line("mb1ic8ih8oc8oh8kh3ph1", "attr-scales:wei") +
                                   line("mb1ic8ih8oc9oh8kh3ph7") + line("mb1ic8"));
  EXPECT_EQ(what,
            "'f' is a log of oneDNN without a convolution that convlab takes: skipped 1, first in "
            "line 1: the attribute scales; and 1 other reason");
  EXPECT_TRUE(contains(refusal("mkldnn_verbose,exec,convolution,jit:avx2,forward_inference\n"),
                       "before oneDNN 1.0"));
}

TEST(Log, SurvivesHostileText) {
  std::string text = line("mb1ic8ih8oc8oh8kh3ph1");
  text += line("mb99999999999999999999ic8ih8oc8oh8kh3ph1");
  text += line("mb1ic1152921504606846976ih1152921504606846976oc8kh3ph1");
  text += line(std::string(1 << 20, '9'));
  text += line("mb1ic8ih8oc8oh8kh3ph1\x1b[2J\xff");
  text += "onednn_verbose," + std::string(1 << 20, ',') + "\n";
  text += "onednn_verbose,exec,cpu,\x1b[2J" + std::string(1 << 20, 'x') + ",\n";
  for (int i = 0; i < 1000; ++i) {
    text += line("mb1ic8ih8oc8oh8kh3ph1", fmt::format("attr-a{}:1", i));
    text += fmt::format("dnnl_verbose,info,oneDNN v{}\n", i);
    text += fmt::format("dnnl_verbose,exec,cpu,kind{},x\n", i);
  }
  text += "I! CuDNN (v1) function cudnnConvolutionForward() called:\ni!     xDesc: type=t:\n" +
          std::string(1 << 20, ' ') + "i!         dimA: type=int; val=[" +
          std::string(1 << 20, ',') + "];";
  const ConvLog log = read_log(text, "f");
  EXPECT_EQ(shown(log), (Lines{"mb1ic8ih8oc8oh8kh3ph1 fwd f32 x1 1 ms"}));
  EXPECT_LT(log.skipped.size(), 50u);
  EXPECT_LT(log.source.size(), 200u);
  for (const LogRemark& remark : log.skipped) {
    EXPECT_LT(remark.reason.size(), 2000u);
    EXPECT_FALSE(contains(remark.reason, "\x1b")) << remark.reason;
  }
}

}  // namespace
}  // namespace convlab
