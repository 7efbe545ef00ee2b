// The interpreter on programs of a few lines: what each opcode computes, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels_cuda/ptx/block.h"

namespace convlab::ptx {
namespace {

// A kernel with two parameters, the addresses of `in` and `out`, and these lines; %rd1 is the
// address of the thread's 8 bytes of `in`, %rd2 of `out`; %r1 is the thread, %r2 the lane.
std::string kernel(const std::string& lines, const std::string& declarations = "") {
  return R"(.version 9.0
.target sm_90
.address_size 64
.entry k(
.param .u64 k_param_0,
.param .u64 k_param_1
)
{
.reg .pred %p<9>;
.reg .b16 %rs<9>;
.reg .f32 %f<9>;
.reg .b32 %r<19>;
.reg .f64 %fd<9>;
.reg .b64 %rd<19>;
)" + declarations +
         R"(
ld.param.u64 %rd11, [k_param_0];
ld.param.u64 %rd12, [k_param_1];
cvta.to.global.u64 %rd11, %rd11;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %laneid;
mul.wide.u32 %rd3, %r1, 8;
add.s64 %rd1, %rd11, %rd3;
add.s64 %rd2, %rd12, %rd3;
)" + lines +
         R"(
ret;
}
)";
}

struct Ran {
  std::vector<std::uint64_t> out;
  std::string fault;  // empty: none
};

// One block. `out` is ones before.
Ran run(const std::string& text, std::vector<std::uint64_t> in = std::vector<std::uint64_t>(32, 0),
        unsigned threads = 32, unsigned seed = 0) {
  in.resize(threads);
  Ran ran{std::vector<std::uint64_t>(threads, ~0ull), {}};
  const auto range = [](const std::vector<std::uint64_t>& v) {
    const auto begin = reinterpret_cast<std::uintptr_t>(v.data());
    return Allocation{begin, begin + 8 * v.size()};
  };
  std::vector<Allocation> allocations{range(in), range(ran.out)};
  if (allocations[1].begin < allocations[0].begin) std::swap(allocations[0], allocations[1]);
  const std::uint64_t parameters[2]{reinterpret_cast<std::uintptr_t>(in.data()),
                                    reinterpret_cast<std::uintptr_t>(ran.out.data())};
  try {
    Library library(text, "test.ptx");
    const Program& program = library.program("k");
    execute(program, {.grid = 1,
                      .block = threads,
                      .shared_bytes = 256,
                      .parameters = std::as_bytes(std::span(parameters)),
                      .allocations = allocations,
                      .seed = seed});
  } catch (const Fault& fault) {
    ran.fault = fault.what();
  }
  return ran;
}

void expect_fault(const std::string& lines, const std::string& says,
                  const std::string& declarations = "", unsigned threads = 32) {
  const Ran ran = run(kernel(lines, declarations), {}, threads, 1);
  EXPECT_NE(ran.fault.find(says), std::string::npos) << ran.fault << "\n" << lines;
}

// What lane 0 gets of `lines`, which leave it in %r9.
std::uint32_t result(const std::string& lines) {
  const Ran ran = run(kernel(lines + "\nst.global.u32 [%rd2], %r9;"));
  EXPECT_EQ(ran.fault, "") << lines;
  return std::uint32_t(ran.out[0]);
}
// The same of %f9... in f32.
float result_f32(const std::string& lines) {
  return std::bit_cast<float>(result(lines + "\nmov.b32 %r9, %f8;"));
}
std::string f32(float v) { return fmt::format("0f{:08X}", std::bit_cast<std::uint32_t>(v)); }

TEST(PtxPrograms, IntegerArithmetic) {
  EXPECT_EQ(result("add.s32 %r9, 5, -7;"), std::uint32_t(-2));
  EXPECT_EQ(result("mul.hi.s32 %r9, 954437177, 18;"), 4u);
  EXPECT_EQ(result("mul.hi.u32 %r9, -1, -1;"), 0xfffffffeu);
  EXPECT_EQ(result("mad.lo.s32 %r9, 3, 4, -1;"), 11u);
  EXPECT_EQ(result("div.s32 %r9, -7, 2;"), std::uint32_t(-3));
  EXPECT_EQ(result("rem.s32 %r9, -7, 2;"), std::uint32_t(-1));
  EXPECT_EQ(result("div.u32 %r9, -7, 2;"), 0x7ffffffcu);
  EXPECT_EQ(result("shl.b32 %r9, 1, 33;"), 0u);
  EXPECT_EQ(result("shr.s32 %r9, -8, 40;"), ~0u);
  EXPECT_EQ(result("shr.u32 %r9, -8, 28;"), 15u);
  EXPECT_EQ(result("bfi.b32 %r9, 3, 0, 5, 27;"), 3u << 5);
  EXPECT_EQ(result("bfi.b32 %r9, -1, 0, 4, 2;"), 0x30u);
  EXPECT_EQ(result("max.u32 %r9, -1, 1;"), ~0u);
  EXPECT_EQ(result("max.s32 %r9, -1, 1;"), 1u);
  EXPECT_EQ(result("add.s32 %r9, 017, 0;"), 15u);  // octal
}

TEST(PtxPrograms, FloatArithmetic) {
  const float eps = std::numeric_limits<float>::epsilon();
  // The product of 1 + eps and itself is not a float; only fma keeps the rest.
  EXPECT_EQ(
      result_f32(fmt::format("fma.rn.f32 %f8, {0}, {0}, {1};", f32(1 + eps), f32(-1 - 2 * eps))),
      eps * eps);
  EXPECT_EQ(result_f32(fmt::format("mul.f32 %f1, {0}, {0};\nadd.f32 %f8, %f1, {1};", f32(1 + eps),
                                   f32(-1 - 2 * eps))),
            0);
  EXPECT_EQ(result_f32(fmt::format("fma.rm.f32 %f8, {}, {}, {};", f32(1), f32(1), f32(eps / 4))),
            1);
  EXPECT_EQ(result_f32(fmt::format("fma.rm.f32 %f8, {}, {}, {};", f32(1), f32(1), f32(-eps / 8))),
            1 - eps / 2);
  EXPECT_EQ(result_f32(fmt::format("add.rz.f32 %f8, {}, {};", f32(1), f32(eps * 0.75f))), 1);
  EXPECT_EQ(result_f32(fmt::format("add.rz.f32 %f8, {}, {};", f32(-1), f32(eps / 8))),
            -1 + eps / 2);
  EXPECT_EQ(result_f32(fmt::format("max.f32 %f8, {}, {};", f32(NAN), f32(2))), 2);
  EXPECT_EQ(result_f32(fmt::format("copysign.f32 %f8, {}, {};", f32(-1), f32(3))), -3);
  // Approximations are off, but by no more than is promised.
  const float third = result_f32(fmt::format("rcp.approx.ftz.f32 %f8, {};", f32(3)));
  EXPECT_NE(third, 1 / 3.f);
  EXPECT_NEAR(third, 1 / 3.f, std::ldexp(1.f, -24));
  EXPECT_NEAR(result_f32(fmt::format("ex2.approx.ftz.f32 %f8, {};", f32(0.5f))), std::sqrt(2.f),
              std::ldexp(1.f, -22));
  EXPECT_EQ(result_f32(fmt::format("ex2.approx.ftz.f32 %f8, {};", f32(-7))), std::ldexp(1.f, -7));
  EXPECT_EQ(result_f32(fmt::format("rcp.approx.ftz.f32 %f8, {};", f32(1e-40f))), INFINITY);
  EXPECT_NEAR(result_f32(fmt::format("rcp.approx.f32 %f8, {};", f32(1e-38f))), 1e38f, 1e32f);
  EXPECT_EQ(result_f32(fmt::format("ex2.approx.f32 %f8, {};", f32(-140))), std::ldexp(1.f, -140));
  EXPECT_EQ(result_f32(fmt::format("ex2.approx.ftz.f32 %f8, {};", f32(-140))), 0);
  EXPECT_EQ(result_f32(fmt::format("lg2.approx.f32 %f8, {};", f32(8))), 3);
  EXPECT_EQ(result_f32(fmt::format("lg2.approx.f32 %f8, {};", f32(std::ldexp(1.f, -140)))), -140);
  EXPECT_EQ(result_f32(fmt::format("lg2.approx.ftz.f32 %f8, {};", f32(1e-40f))), -INFINITY);
  const float log = result_f32(fmt::format("lg2.approx.ftz.f32 %f8, {};", f32(3)));
  EXPECT_NE(log, std::log2(3.f));
  EXPECT_NEAR(log, std::log2(3.f), std::ldexp(1.f, -22));
  EXPECT_TRUE(std::isnan(result_f32(fmt::format("lg2.approx.f32 %f8, {};", f32(-1)))));
}

// The other operand, whatever the NaN; and -0 is below 0.
TEST(PtxPrograms, MinimumAndMaximum) {
  for (const char* how : {"min", "max"})
    for (const char* nan : {"0f7FC00000", "0f7F800001", "0fFFFFFFFF"}) {
      EXPECT_EQ(result_f32(fmt::format("{}.f32 %f8, {}, {};", how, nan, f32(2))), 2);
      EXPECT_EQ(result_f32(fmt::format("{}.f32 %f8, {}, {};", how, f32(2), nan)), 2);
      EXPECT_TRUE(std::isnan(result_f32(fmt::format("{}.f32 %f8, {}, {};", how, nan, nan))));
    }
  for (const auto& [a, b] : {std::pair(0.f, -0.f), std::pair(-0.f, 0.f)}) {
    EXPECT_TRUE(std::signbit(result_f32(fmt::format("min.f32 %f8, {}, {};", f32(a), f32(b)))));
    EXPECT_FALSE(std::signbit(result_f32(fmt::format("max.f32 %f8, {}, {};", f32(a), f32(b)))));
  }
}

TEST(PtxPrograms, Conversions) {
  EXPECT_EQ(result("mov.f32 %f1, 0f40200000;\ncvt.rzi.s32.f32 %r9, %f1;"), 2u);  // 2.5
  EXPECT_EQ(
      result("mov.f32 %f1, 0f40200000;\ncvt.rni.f32.f32 %f2, %f1;\ncvt.rzi.s32.f32 %r9, %f2;"), 2u);
  EXPECT_EQ(result("mov.f32 %f1, 0f7FC00000;\ncvt.rzi.s32.f32 %r9, %f1;"), 0u);  // NaN
  // NaN of or to 64 bits is the highest bit.
  EXPECT_EQ(result("mov.f64 %fd1, 0d7FF8000000000000;\ncvt.rzi.s32.f64 %r9, %fd1;"), 0x80000000u);
  for (const char* type : {"s64.f64 %rd5, %fd1", "u64.f64 %rd5, %fd1", "s64.f32 %rd5, %f1"})
    EXPECT_EQ(result(fmt::format("mov.f64 %fd1, 0d7FF8000000000000;\nmov.f32 %f1, 0f7FC00000;\n"
                                 "cvt.rzi.{};\nshr.u64 %rd5, %rd5, 32;\ncvt.u32.u64 %r9, %rd5;",
                                 type)),
              0x80000000u);
  EXPECT_EQ(result("mov.f32 %f1, 0f60000000;\ncvt.rzi.s32.f32 %r9, %f1;"), 0x7fffffffu);
  EXPECT_EQ(result("mov.u64 %rd5, -3;\ncvt.s64.s32 %rd6, %rd5;\ncvt.u32.u64 %r9, %rd6;"), ~0u - 2);
  // Half the last place: away from zero in TF32, to even in f16 and bf16.
  EXPECT_EQ(result("mov.b32 %f1, 0x3f801000;\ncvt.rna.tf32.f32 %r9, %f1;"), 0x3f802000u);
  // NaN stays one where only its high bits are read.
  EXPECT_EQ(result("mov.b32 %f1, 0xff800001;\ncvt.rna.tf32.f32 %r9, %f1;"), 0x7fffffffu);
  EXPECT_EQ(result("mov.b32 %f1, 0xff800001;\ncvt.rn.f16.f32 %rs1, %f1;\ncvt.u32.u16 %r9, %rs1;"),
            0x7fffu);
  EXPECT_EQ(result("mov.b32 %f1, 0x3f801000;\ncvt.rn.f16.f32 %rs1, %f1;\ncvt.u32.u16 %r9, %rs1;"),
            0x3c00u);
  EXPECT_EQ(result("mov.b32 %f1, 0x3f818000;\ncvt.rn.bf16.f32 %rs1, %f1;\ncvt.u32.u16 %r9, %rs1;"),
            0x3f82u);
  EXPECT_EQ(result("mov.u16 %rs1, 0x3c01;\ncvt.f32.f16 %f1, %rs1;\nmov.b32 %r9, %f1;"),
            0x3f802000u);
  EXPECT_EQ(result("mov.f32 %f1, 0f7FC00000;\ncvt.sat.f32.f32 %f2, %f1;\nmov.b32 %r9, %f2;"), 0u);
  EXPECT_EQ(result("mov.u32 %r3, 7;\nmov.u32 %r4, 8;\nmov.b64 %rd5, {%r3, %r4};\n"
                   "mov.b64 {%r5, %r9}, %rd5;"),
            8u);
}

TEST(PtxPrograms, Predicates) {
  // NaN is in no order, and unordered with everything.
  const auto compared = [](const char* how) {
    return result(
        fmt::format("mov.f32 %f1, 0f7FC00000;\nmov.f32 %f2, 0f3F800000;\n"
                    "setp.{}.f32 %p1, %f1, %f2;\nselp.b32 %r9, 1, 0, %p1;",
                    how));
  };
  for (const char* how : {"eq", "ne", "lt", "le", "gt", "ge", "num"}) EXPECT_EQ(compared(how), 0u);
  for (const char* how : {"equ", "neu", "ltu", "leu", "gtu", "geu", "nan"})
    EXPECT_EQ(compared(how), 1u);
  EXPECT_EQ(result("setp.lt.u32 %p1, -1, 1;\nselp.b32 %r9, 1, 0, %p1;"), 0u);
  EXPECT_EQ(result("setp.lt.s32 %p1, -1, 1;\nselp.b32 %r9, 1, 0, %p1;"), 1u);
  EXPECT_EQ(result("mov.pred %p1, -1;\nnot.pred %p2, %p1;\nor.pred %p3, %p2, %p1;\n"
                   "selp.b32 %r9, 1, 0, %p3;"),
            1u);
}

// Lanes part at branches and meet again: in loops of their own lengths, and in nested branches.
TEST(PtxPrograms, LanesPartAndMeet) {
  const Ran ran = run(kernel(R"(
mov.u32 %r3, 0;
mov.u32 %r4, 0;
$LOOP:
setp.ge.u32 %p1, %r4, %r2;
@%p1 bra $DONE;
and.b32 %r5, %r4, 1;
setp.eq.b32 %p2, %r5, 0;
@!%p2 bra $ODD;
add.s32 %r3, %r3, 10;
bra.uni $NEXT;
$ODD:
add.s32 %r3, %r3, 1;
$NEXT:
add.s32 %r4, %r4, 1;
bra.uni $LOOP;
$DONE:
mov.u32 %r6, 31;
mov.u32 %r7, -1;
shfl.sync.bfly.b32 %r8|%p3, %r3, 1, %r6, %r7;
cvt.u64.u32 %rd5, %r8;
st.global.u64 [%rd2], %rd5;)"));
  ASSERT_EQ(ran.fault, "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned other = lane ^ 1;
    EXPECT_EQ(ran.out[lane], (other + 1) / 2 * 10 + other / 2) << lane;
  }
}

TEST(PtxPrograms, LanesExitOneByOne) {
  const Ran ran = run(kernel(R"(
setp.lt.u32 %p1, %r2, 20;
@%p1 ret;
cvt.u64.u32 %rd5, %r2;
st.global.u64 [%rd2], %rd5;)"));
  ASSERT_EQ(ran.fault, "");
  for (unsigned lane = 0; lane < 32; ++lane) EXPECT_EQ(ran.out[lane], lane < 20 ? ~0ull : lane);
}

// Lanes that leave from within a loop, by ret or by a branch to it, are not waited for: the others
// meet behind the loop.
TEST(PtxPrograms, LanesExitFromALoop) {
  for (const char* leave : {"@%p1 ret;", "@%p1 bra $END;"}) {
    std::string text = kernel(fmt::format(R"(
mov.u32 %r3, 0;
$LOOP:
setp.gt.u32 %p1, %r2, 27;
{}
add.s32 %r3, %r3, 1;
setp.lt.u32 %p2, %r3, %r2;
@%p2 bra $LOOP;
mov.u32 %r6, 31;
mov.u32 %r7, 0x0fffffff;
shfl.sync.up.b32 %r8|%p3, %r3, 3, 0, %r7;
shfl.sync.idx.b32 %r9, %r8, 9, %r6, -1;
bar.sync 0;
cvt.u64.u32 %rd5, %r8;
st.global.u64 [%rd2], %rd5;
$END:)",
                                          leave));
    const Ran ran = run(text, {}, 64, 5);
    ASSERT_EQ(ran.fault, "") << leave;
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned lane = i % 32, from = lane < 3 ? lane : lane - 3;
      EXPECT_EQ(ran.out[i], lane > 27 ? ~0ull : std::max(from, 1u)) << leave << i;
    }
  }
}

// A guard that is false in all lanes is nobody's barrier.
TEST(PtxPrograms, BarrierOfNobody) {
  EXPECT_EQ(run(kernel("setp.gt.u32 %p1, %r1, 31;\n@%p1 bar.sync 0;"), {}, 64).fault, "");
  EXPECT_EQ(run(kernel("setp.gt.u32 %p1, %r1, 99;\n@%p1 bar.sync 0;"), {}, 64).fault, "");
}

TEST(PtxPrograms, LoopsThatDoNotEnd) {
  expect_fault("$LOOP:\nbra $LOOP;", "does not end");
  expect_fault("$LOOP:\nsetp.lt.u32 %p1, %r2, 5;\n@%p1 bra $LOOP;", "does not end");
}

TEST(PtxPrograms, LocalArrays) {
  const char* const arrays =
      ".local .align 8 .b8 depot[16];\n.local .b32 one;\n.reg .b64 %SP;\n.reg .b64 %SPL;";
  const std::string address = R"(
mov.u64 %SPL, depot;
cvta.local.u64 %SP, %SPL;
add.u64 %rd5, %SPL, 8;
)";
  const Ran ran = run(kernel(address + R"(
st.local.u32 [%rd5+4], %r2;
st.local.v2.u16 [depot], {%rs1, %rs2};
ld.local.u64 %rd6, [%rd5];
st.global.u64 [%rd2], %rd6;)",
                             arrays));
  ASSERT_EQ(ran.fault, "");
  for (std::uint64_t lane = 0; lane < 32; ++lane) EXPECT_EQ(ran.out[lane], lane << 32 | 0xffffffff);
  for (const char* bad : {"[%rd5+8]", "[%rd5+-12]", "[%SP+13]", "[one+4]", "[4]"})
    EXPECT_NE(run(kernel(address + fmt::format("ld.local.u32 %r5, {};", bad), arrays)).fault, "")
        << bad;
  expect_fault(address + "ld.local.u32 %r5, [%rd5+8];", "local memory has no array", arrays);
  expect_fault(address + "ld.local.u32 %r5, [%rd5+2];", "of local memory", arrays);
}

TEST(PtxPrograms, AtomicsFlush) {
  const Ran ran =
      run(kernel("mov.u64 %rd5, 0;\nst.global.u64 [%rd2], %rd5;\n"
                 "red.global.add.f32 [%rd2], 0f00000001;"));
  ASSERT_EQ(ran.fault, "");
  EXPECT_EQ(ran.out[0], 0u);
}

TEST(PtxPrograms, Calls) {
  const std::string function = R"(.func (.param .b64 f_retval0) twice(
.param .b64 twice_param_0
)
{
.reg .pred %p<2>;
.reg .f64 %fd<4>;
ld.param.f64 %fd1, [twice_param_0];
setp.lt.f64 %p1, %fd1, 0d0000000000000000;
@%p1 bra $NEGATIVE;
add.f64 %fd2, %fd1, %fd1;
st.param.f64 [f_retval0], %fd2;
ret;
$NEGATIVE:
mov.f64 %fd2, 0d0000000000000000;
st.param.f64 [f_retval0+0], %fd2;
ret;
}
)";
  const std::string call = R"({
.param .b64 param0;
st.param.f64 [param0+0], %fd1;
.param .b64 retval0;
call.uni (retval0),
twice,
(
param0
);
ld.param.f64 %fd1, [retval0+0];
})";
  std::string part = call;
  part.replace(part.find("ld.param.f64 %fd1, [retval0+0]"), 30, "ld.param.u32 %r5, [retval0+4]");
  std::string text = kernel(part);
  text.insert(text.find(".entry"), function);
  EXPECT_NE(run(text).fault.find("part of a parameter"), std::string::npos);
  text = kernel("ld.global.f64 %fd1, [%rd1];\n" + call + call + "\nst.global.f64 [%rd2], %fd1;");
  text.insert(text.find(".entry"), function);
  std::vector<std::uint64_t> in;
  for (int i = 0; i < 32; ++i) in.push_back(std::bit_cast<std::uint64_t>(double(i - 16)));
  const Ran ran = run(text, in);
  ASSERT_EQ(ran.fault, "");
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(std::bit_cast<double>(ran.out[std::size_t(i)]), i < 16 ? 0. : 4. * (i - 16)) << i;
}

constexpr const char* shared =
    ".shared .align 16 .b8 tile[512];\n.shared .align 16 .b8 other[256];";

TEST(PtxPrograms, SharedMemory) {
  const std::string to = "shl.b32 %r3, %r1, 2;\nmov.u32 %r4, tile;\nadd.s32 %r3, %r3, %r4;\n";
  const Ran ran = run(kernel(to + R"(
st.shared.u32 [%r3], %r1;
bar.sync 0;
xor.b32 %r5, %r1, 32;
shl.b32 %r5, %r5, 2;
add.s32 %r5, %r5, %r4;
ld.shared.u32 %rd5, [%r5];
st.global.u64 [%rd2], %rd5;)",
                             shared),
                      {}, 64, 3);
  ASSERT_EQ(ran.fault, "");
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(ran.out[i], i ^ 32);
  // Without the barrier one warp reads what the other writes.
  expect_fault(to + R"(
st.shared.u32 [%r3], %r1;
xor.b32 %r5, %r1, 32;
shl.b32 %r5, %r5, 2;
add.s32 %r5, %r5, %r4;
ld.shared.u32 %rd5, [%r5];)",
               "since the last barrier", shared, 64);
  expect_fault("mov.u32 %r4, tile;\nst.shared.u32 [%r4+512], %r1;", "has no array", shared);
  expect_fault("mov.u32 %r4, tile;\nst.shared.u32 [%r4+-4], %r1;", "has no array", shared);
  expect_fault("mov.u64 %rd5, -4;\nst.shared.u32 [%rd5], %r1;", "has no array", shared);
  expect_fault("ret;", "several dimensions", ".shared .b32 tile[4][4];");
  expect_fault("ret;", "too much static shared", ".shared .b8 tile[140000];");
  expect_fault("mov.u32 %r4, tile;\nld.shared.v2.u32 {%r5, %r6}, [%r4+4];", "misaligned", shared);
}

TEST(PtxPrograms, CopiesArriveInTheWait) {
  const std::string start = R"(
shl.b32 %r3, %r1, 3;
mov.u32 %r4, tile;
add.s32 %r3, %r3, %r4;
cp.async.ca.shared.global [%r3], [%rd1], 8, %r5;
cp.async.commit_group;)";
  const std::string finish = "\nld.shared.u64 %rd5, [%r3];\nst.global.u64 [%rd2], %rd5;";
  std::vector<std::uint64_t> in;
  for (std::uint64_t i = 0; i < 32; ++i) in.push_back(i << 32 | i);
  const auto out = [&](const std::string& valid, const std::string& wait) {
    const Ran ran = run(
        kernel("mov.u32 %r5, " + valid + ";" + start + wait + finish + "\ncp.async.wait_group 0;",
               shared),
        in);
    EXPECT_EQ(ran.fault, "");
    return ran.out[7];
  };
  EXPECT_EQ(out("8", "\ncp.async.wait_group 0;"), in[7]);
  EXPECT_EQ(out("4", "\ncp.async.wait_group 0;"), 7u);  // the rest is zeros
  EXPECT_EQ(out("0", "\ncp.async.wait_group 0;"), 0u);
  EXPECT_EQ(out("3", "\ncp.async.wait_group 0;"), 7u);
  EXPECT_EQ(out("8", "\ncp.async.wait_group 1;"), ~0ull);  // not yet
  EXPECT_EQ(out("8", ""), ~0ull);
  expect_fault("mov.u32 %r5, 16;" + start, "reads more than it copies", shared);
}

// Values from memory, so that the matrices are known: element e of row r of matrix i is 64 i + 8 r
// + e.
TEST(PtxPrograms, MatricesAndProducts) {
  std::string load = R"(
shl.b32 %r3, %r1, 4;
mov.u32 %r4, tile;
add.s32 %r3, %r3, %r4;
shl.b32 %r5, %r1, 19;
shl.b32 %r6, %r1, 3;
or.b32 %r5, %r5, %r6;
add.s32 %r5, %r5, 65536;
add.s32 %r6, %r5, 131074;
add.s32 %r7, %r6, 131074;
add.s32 %r8, %r7, 131074;
st.shared.v4.u32 [%r3], {%r5, %r6, %r7, %r8};
ldmatrix.sync.aligned.m8n8.x4.HOW.shared.b16 {%r10,%r11,%r12,%r13}, [%r3];
mov.b64 %rd5, {%r10, %r11};
st.global.u64 [%rd2], %rd5;)";
  const std::size_t how = load.find(".HOW");
  const Ran straight = run(kernel(load.replace(how, 4, ""), shared));
  const Ran transposed = run(kernel(load.insert(how, ".trans"), shared));
  ASSERT_EQ(straight.fault + transposed.fault, "");
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    const std::uint64_t a = lane / 4, b = 2 * (lane % 4);
    const auto at = [](std::uint64_t i, std::uint64_t r, std::uint64_t e) {
      return 64 * i + 8 * r + e;
    };
    EXPECT_EQ(straight.out[lane],
              at(0, a, b) | at(0, a, b + 1) << 16 | at(1, a, b) << 32 | at(1, a, b + 1) << 48);
    EXPECT_EQ(transposed.out[lane],
              at(0, b, a) | at(0, b + 1, a) << 16 | at(1, b, a) << 32 | at(1, b + 1, a) << 48);
  }
  // a is 1 in row 3, column 2; b is 5 in row 2, column 6; so d is 5 in row 3, column 6 and c
  // elsewhere. The 13 low bits of an operand are not read.
  const Ran product = run(kernel(R"(
mov.u32 %r3, 0;
setp.eq.u32 %p1, %r2, 14;
selp.b32 %r4, 0x3f801fff, 0, %p1;
setp.eq.u32 %p2, %r2, 26;
selp.b32 %r5, 0x40a01000, 0, %p2;
mov.f32 %f1, 0f40000000;
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f2,%f3,%f4,%f5}, {%r4,%r3,%r3,%r3}, {%r5,%r3}, {%f1,%f1,%f1,%f1};
st.global.v2.f32 [%rd2], {%f2, %f3};)"));
  ASSERT_EQ(product.fault, "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    const std::uint64_t two = std::bit_cast<std::uint32_t>(2.f),
                        seven = std::bit_cast<std::uint32_t>(7.f);
    EXPECT_EQ(product.out[lane], (lane == 15 ? seven : two) | two << 32) << lane;
  }
}

TEST(PtxPrograms, WhatAWarpDoesTogether) {
  const std::string part = "setp.lt.u32 %p1, %r2, 9;\n@%p1 ";
  expect_fault(part + "bar.sync 0;", "part of a warp");
  expect_fault(part + "shfl.sync.bfly.b32 %r8|%p3, %r3, 1, 31, -1;", "its mask is not");
  expect_fault(part + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r4];",
               "needs all 32 lanes");
  expect_fault("shfl.sync.bfly.b32 %r8|%p3, %r3, 1, 31, 0x3ff;", "its mask is not");
}

TEST(PtxPrograms, WhatIsNotThere) {
  expect_fault("ld.global.u64 %rd5, [%rd11+256];", "nothing is allocated");
  expect_fault("ld.global.v4.u32 {%r5,%r6,%r7,%r8}, [%rd11+248];", "of an allocation of 256");
  expect_fault("ld.global.v4.u64 {%rd5,%rd6,%rd7,%rd8}, [%rd11];", "more than 16 bytes");
  expect_fault("ld.global.f32 %rd5, [%rd11];", "has another size");
  for (const char* line :
       {"add.b32 %r5, %r1, 1;", "add.rn.s32 %r5, %r1, 1;", "and.u32 %r5, %r1, 1;",
        "shl.s32 %r5, %r1, 1;", "setp.lt.b32 %p1, %r1, 1;", "div.f32 %f1, %f2, %f3;"})
    expect_fault(line, "unknown opcode");
  expect_fault("mov.f32 %f1, 0f3F80000000;", "no constant of this type");
  expect_fault("$L:\n$L:\nbra $L;", "is there twice");
  expect_fault("ld.global.u64 %rd5, [%rd1+4];", "misaligned");
  expect_fault("ld.global.u32 %r5, [%rd3];", "nothing is allocated");
  expect_fault("ld.param.u64 %rd5, [k_param_0+16];", "16 bytes of parameters");
  expect_fault("add.s32 %r5, %r1, 1;\nfoo.bar.s32 %r5, %r1, 1;", "unknown opcode 'foo.bar.s32'");
  expect_fault("add.sat.s32 %r5, %r1, 1;", "unknown opcode 'add.sat.s32'");
  expect_fault("add.s32 %r5, %r1, %rd1;", "%rd1 has 8 bytes");
  expect_fault("add.s32 %r5, %r99, 1;", "%r99 is not declared");
  expect_fault("add.s32 %r5, %r1;", "an operand is missing");
  expect_fault("add.s32 %r5, %r1, 1, 2;", "one operand too many");
  expect_fault("bra $NOWHERE;", "no label $NOWHERE");
  std::string clustered = kernel("");
  clustered.insert(clustered.find('{'), ".reqntid 32\n");
  EXPECT_NE(run(clustered).fault.find(".reqntid is not known"), std::string::npos);
  // The line is that of the text.
  const std::string text = kernel("foo %r1;");
  const auto line =
      std::count(text.begin(), text.begin() + std::ptrdiff_t(text.find("foo")), '\n') + 1;
  expect_fault("foo %r1;", fmt::format("test.ptx, line {}: ", line));
}

}  // namespace
}  // namespace convlab::ptx
