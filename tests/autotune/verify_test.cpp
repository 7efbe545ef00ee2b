#include "autotune/testbed/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "conv/error.h"
#include "conv/optional/scanning_device.h"
#include "conv/types/half.h"
#include "kernels_cpu/cpu.h"
#include "tests/cpu_backed_device.h"

namespace convlab {
namespace {

using RunFunction =
    std::function<void(const ReferenceCase&, const ConvProblem&, const ConvArgs&, Workspace)>;

// Knows the right answer, and may then corrupt it.
class Oracle : public ConvAlgo {
 public:
  Oracle(const ReferenceCase& reference, RunFunction run, std::size_t workspace_bytes = 0)
      : reference_(reference), run_(std::move(run)), workspace_bytes_(workspace_bytes) {}
  const AlgoInfo& info() const noexcept override { return info_; }
  std::optional<Refusal> refuse(const ConvProblem&, Device&) const override { return {}; }
  std::vector<Config> configs(const ConvProblem&, Device&) const override { return {Config{}}; }
  bool deterministic(const ConvProblem&, const Config&) const override { return true; }
  WorkEstimate work(const ConvProblem&, const Config&, Device&) const override { return {}; }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& problem, const Config&,
                                 Device&) const override {
    class Plan : public ConvPlan {
     public:
      Plan(const Oracle& oracle, const ConvProblem& problem) : oracle_(oracle), problem_(problem) {}
      std::size_t workspace_bytes() const noexcept override { return oracle_.workspace_bytes_; }
      void run(const ConvArgs& args, Workspace workspace, Stream&) const override {
        oracle_.run_(oracle_.reference_, problem_, args, workspace);
      }

     private:
      const Oracle& oracle_;
      ConvProblem problem_;
    };
    return std::make_unique<Plan>(*this, problem);
  }

 private:
  AlgoInfo info_;
  const ReferenceCase& reference_;
  RunFunction run_;
  std::size_t workspace_bytes_;
};

// Writes the expected forward output in the problem's layout, padding lanes as zero.
float* write_expected(const ReferenceCase& reference, const ConvProblem& problem,
                      const ConvArgs& args) {
  float* y = static_cast<float*>(args.out);
  const TensorDesc desc = problem.y_desc();
  std::fill(y, y + desc.elements(), 0.0f);
  for (std::int64_t i : reference.indices())
    y[desc.offset(i / (desc.w * desc.h * desc.c), i / (desc.w * desc.h) % desc.c,
                  i / desc.w % desc.h, i % desc.w)] = float(reference.expected()[std::size_t(i)]);
  return y;
}

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest() {
    problem_.n = 2, problem_.c = 3, problem_.h = problem_.w = problem_.p = problem_.q = 4;
    problem_.k = 10, problem_.y_layout = Layout::nchw8c;
  }
  CheckResult check(const RunFunction& run, std::size_t workspace_bytes = 0) {
    const ReferenceCase reference(problem_, 1);
    return check_candidate(Oracle(reference, run, workspace_bytes), problem_, {}, reference,
                           *device_, *stream_, 1e-6);
  }

  ConvProblem problem_;
  std::unique_ptr<Device> device_ = make_cpu_device();
  std::unique_ptr<Stream> stream_ = device_->make_stream();
};

TEST_F(VerifyTest, PassesTheRightAnswer) {
  const auto verdict = check([](auto& reference, auto& problem, auto& args, auto) {
    write_expected(reference, problem, args);
  });
  EXPECT_EQ(verdict.status, Status::ok) << verdict.reason;
  EXPECT_LT(verdict.rel_error, 1e-6);
  EXPECT_GT(verdict.rel_error, 0);  // rounded to float, so a real comparison
}

TEST_F(VerifyTest, FailsAnOutputThatWasNotWritten) {
  const auto verdict = check([](auto&, auto&, auto&, auto) {});
  EXPECT_EQ(verdict.status, Status::failed);
  EXPECT_EQ(verdict.reason, "output (0, 0, 0, 0) is NaN or was not written");
}

TEST_F(VerifyTest, FailsOneWrongElement) {
  const auto verdict = check([](auto& reference, auto& problem, auto& args, auto) {
    write_expected(reference, problem, args)[problem.y_desc().offset(1, 9, 3, 2)] = 100;
  });
  EXPECT_EQ(verdict.status, Status::failed);
  EXPECT_NE(verdict.reason.find("worst at (1, 9, 3, 2): 100 instead of"), std::string::npos)
      << verdict.reason;
}

TEST_F(VerifyTest, CallsASmallErrorInaccurate) {
  const auto verdict = check([](auto& reference, auto& problem, auto& args, auto) {
    float* y = write_expected(reference, problem, args);
    for (std::int64_t i = 0; i < problem.y_desc().elements(); ++i) y[i] *= 1.00001f;
  });
  EXPECT_EQ(verdict.status, Status::inaccurate);
  EXPECT_NEAR(verdict.rel_error, 1e-5, 1e-6);
}

TEST_F(VerifyTest, FailsADirtyPaddingLane) {
  const auto verdict = check([](auto& reference, auto& problem, auto& args, auto) {
    write_expected(reference, problem, args)[problem.y_desc().offset(0, 12, 1, 1)] = 1;
  });
  EXPECT_EQ(verdict.status, Status::failed);
  EXPECT_EQ(verdict.reason, "padding lane (0, 12, 1, 1) is not zero");
}

#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer stops the program at the write itself
TEST_F(VerifyTest, FailsAWritePastTheWorkspace) {
  const auto verdict = check(
      [](auto& reference, auto& problem, auto& args, auto workspace) {
        write_expected(reference, problem, args);
        workspace.data()[workspace.size()] = std::byte{0};
      },
      64);
  EXPECT_EQ(verdict.status, Status::failed);
  EXPECT_EQ(verdict.reason, "wrote past the end of the workspace");
}
#endif

TEST_F(VerifyTest, AnExceptionFailsAndOutOfMemoryRefuses) {
  EXPECT_EQ(check([](auto&, auto&, auto&, auto) { throw Error("boom"); }).status, Status::failed);
  EXPECT_EQ(check([](auto&, auto&, auto&, auto) { throw OutOfMemory("full"); }).status,
            Status::refused);
}

// Operands, output and old contents in the 16-bit types: the oracle must read the values it
// expects, and the values it writes must be read back.
template <class T>
void read_and_write(const ReferenceCase& reference, const ConvProblem& problem,
                    const ConvArgs& args) {
  const auto at = [](const TensorDesc& d, std::int64_t i) {
    return d.offset(i / (d.w * d.h * d.c), i / (d.w * d.h) % d.c, i / d.w % d.h, i % d.w);
  };
  const TensorDesc x = problem.x_desc(), y = problem.y_desc();
  for (std::int64_t i = 0; i < std::ssize(reference.input().x); ++i)
    ASSERT_EQ(double(static_cast<const T*>(args.x)[at(x, i)]), reference.input().x[std::size_t(i)]);
  std::fill_n(static_cast<T*>(args.out), y.elements(), T(0.0));
  for (std::int64_t i : reference.indices())
    static_cast<T*>(args.out)[at(y, i)] = T(reference.expected()[std::size_t(i)]);
}

TEST_F(VerifyTest, SixteenBitTypesAreRoundedOnTheWayInAndOut) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    problem_.dtype = dtype;
    const auto verdict = check([dtype](auto& reference, auto& problem, auto& args, auto) {
      if (dtype == DType::f16)
        read_and_write<Float16>(reference, problem, args);
      else
        read_and_write<BFloat16>(reference, problem, args);
    });
    // Only the output's own rounding is left: up to half a unit in the last place.
    const double half_ulp = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
    EXPECT_LE(verdict.rel_error, half_ulp) << verdict.reason;
    EXPECT_GT(verdict.rel_error, half_ulp / 16);
    const auto nothing = check([](auto&, auto&, auto&, auto) {});
    EXPECT_EQ(nothing.reason, "output (0, 0, 0, 0) is NaN or was not written");
  }
}

TEST_F(VerifyTest, AccumulatesOntoTheOldContents) {
  problem_.accumulate = true;
  const ReferenceCase fresh(
      [&] {
        ConvProblem p = problem_;
        p.accumulate = false;
        return p;
      }(),
      1);
  const auto verdict = check([&](auto&, auto& problem, auto& args, auto) {
    float* y = static_cast<float*>(args.out);
    const TensorDesc d = problem.y_desc();
    for (std::int64_t i : fresh.indices())
      y[d.offset(i / (d.w * d.h * d.c), i / (d.w * d.h) % d.c, i / d.w % d.h, i % d.w)] +=
          float(fresh.expected()[std::size_t(i)]);
  });
  EXPECT_EQ(verdict.status, Status::ok) << verdict.reason;
}

// A card, whose memory is far: counts the bytes that come home.
class FarDevice : public CpuBackedDevice, public ScanningDevice {
 public:
  std::size_t came_home = 0;

  void copy_to_host(Span to, const std::byte* from, Stream& stream) override {
    came_home += to.size();
    CpuBackedDevice::copy_to_host(to, from, stream);
  }
  std::int64_t count_not_finite(DType, ConstSpan elements, Stream&) override {
    const auto* const values = reinterpret_cast<const float*>(elements.data());
    return std::count_if(values, values + elements.size() / sizeof(float),
                         [](float v) { return !std::isfinite(v); });
  }
  void gather(DType, const std::byte* elements, std::span<const std::int64_t> places, Span to,
              Stream& stream) override {
    for (std::size_t i = 0; i < places.size(); ++i)
      copy_to_host(to.subspan(i * sizeof(float), sizeof(float)),
                   elements + places[i] * sizeof(float), stream);
  }
};

TEST(VerifyOnACard, OnlyTheSampleComesHome) {
  const ConvProblem problem = parse_problem("mb2ic64ih32oc32oh32kh5ph2").problem;
  const ReferenceCase reference(problem, 1, DataKind::normal, ReferenceCase::Evaluate::sample);
  const auto output_bytes = std::size_t(problem.output_bytes());
  ASSERT_LT(8 * reference.indices().size() * sizeof(float), output_bytes);
  FarDevice device;
  const auto stream = device.make_stream();
  const auto check = [&](const std::function<void(float*)>& corrupt) {
    const Oracle oracle(reference, [&](auto& r, auto& p, auto& args, auto) {
      auto* const y = static_cast<float*>(args.out);
      std::fill_n(y, p.y_desc().elements(), 0.0f);
      for (std::size_t i = 0; i < r.indices().size(); ++i)
        y[r.indices()[i]] = float(r.expected()[i]);
      corrupt(y);
    });
    device.came_home = 0;
    return check_candidate(oracle, problem, {}, reference, device, *stream, 1e-6);
  };
  EXPECT_EQ(check([](float*) {}).status, Status::ok);
  EXPECT_LT(device.came_home, output_bytes / 4);

  const std::int64_t sampled = reference.indices()[5];
  const CheckResult wrong = check([&](float* y) { y[sampled] = 100; });
  EXPECT_NE(wrong.reason.find("100 instead of"), std::string::npos) << wrong.reason;
  EXPECT_LT(device.came_home, output_bytes / 4);

  // Not in the sample: found all the same, and named.
  std::int64_t other = 0;
  while (std::ranges::binary_search(reference.indices(), other)) ++other;
  const CheckResult missing = check([&](float* y) { y[other] = NAN; });
  EXPECT_EQ(missing.reason, fmt::format("output (0, 0, 0, {}) is NaN or was not written", other));
}

TEST(ReferenceCaseTest, IsReproducibleAndSamplesLargeProblems) {
  ConvProblem f;
  f.n = 8, f.c = 64, f.k = 64, f.h = f.w = f.p = f.q = 112, f.r = f.s = 3, f.pad_h = f.pad_w = 1;
  const ReferenceCase a(f, 5), b(f, 5);
  EXPECT_TRUE(a.sampled());
  EXPECT_EQ(a.expected(), b.expected());
  EXPECT_NE(a.expected(), ReferenceCase(f, 6).expected());
}

TEST(ReferenceCaseTest, DataAreNormalOrSmallIntegers) {
  ConvProblem f;
  f.h = f.w = f.p = f.q = 200;
  const ReferenceCase normal(f, 1), integers(f, 1, DataKind::small_integers);
  double mean = 0, square = 0;
  for (double v : normal.input().x) mean += v / 40000, square += v * v / 40000;
  EXPECT_NEAR(mean, 0, 0.03);
  EXPECT_NEAR(square, 1, 0.05);
  for (double v : integers.input().x) EXPECT_TRUE(std::abs(v) <= 2 && v == std::round(v));
}

}  // namespace
}  // namespace convlab
