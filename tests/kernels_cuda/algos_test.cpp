// Every algorithm of CUDA's registry, executed on the CPU in shuffled schedules, against the
// reference: problems x passes x layouts x configs x types. New algorithms are picked up from the
// registry, one test each, so that tests run side by side.
//
// A case that takes minutes on the executor takes milliseconds on a card, so each problem runs with
// an algorithm's default and one more of its configurations. Over all problems, most configurations
// have their turn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "conv/types/math_type.h"
#include "kernels_cuda/on_cpu/schedule.h"
#include "tests/inner_product.h"
#include "tests/kernels_cuda/one_algo.h"
#include "tests/listed_configs.h"
#include "tests/nan_epilogue.h"
#include "tests/problems.h"

namespace convlab {
namespace {

// These only multiply and add, so sums of small integers are exact to the last bit, in TF32 too.
// The others transform their operands.
bool is_exact(const ConvAlgo& algo) {
  static const std::set<std::string> ids{"direct", "im2col", "implicit_gemm"};
  return ids.contains(algo.info().id);
}

// TF32 rounds to 11 bits, and transforms amplify that. In f16 and bf16 the results themselves are
// rounded. For the others see the CPU's tests.
double max_error(const ConvAlgo& algo, const Config& config, DType dtype) {
  if (dtype == DType::f16) return 1e-2;
  if (dtype == DType::bf16) return 5e-2;
  if (is_exact(algo)) return 0;
  if (dtype == DType::f64) return 1e-12;
  return math_type(config) == MathType::tf32 ? 1e-2 : 5e-5;
}

// A failure names the schedule, which only the executor has, and the command that repeats the check
// on a card.
std::string command(const ConvAlgo& algo, const ConvProblem& p, const Config& config,
                    std::uint64_t seed) {
  return fmt::format(
      "convlab check {} --device cuda --pass {} --dtype {} --algos {} --seed {}"
      "  (x {}, y {}, config '{}'{}{}{}{}, schedule {})",
      to_text(p), to_string(p.pass), to_string(p.dtype), algo.info().id, seed,
      to_string(p.x_layout), to_string(p.y_layout), config.text(), p.epilogue.bias ? " +bias" : "",
      p.epilogue.residual ? " +residual" : "", p.epilogue.activation ? " +relu" : "",
      p.accumulate ? " accumulate" : "", on_cpu::config.seed);
}

// An algorithm and a type that it supports.
struct TypedAlgo {
  std::string algo;
  DType dtype;
};

void PrintTo(const TypedAlgo& typed, std::ostream* out) {
  *out << typed.algo << " " << to_string(typed.dtype);
}

std::vector<TypedAlgo> typed_algos() {
  const auto device = make_cuda_device();
  std::vector<TypedAlgo> all;
  for (const ConvAlgo* algo : cuda_registry().for_device(DeviceKind::cuda))
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      ConvProblem p = parse_problem("mb2ic32ih12oc32oh12kh3ph1").problem;
      p.dtype = dtype;
      const auto takes = [&](Layout layout) {
        p.x_layout = p.y_layout = layout;
        return !algo->refuse(p, *device);
      };
      if (takes(Layout::nchw) || takes(Layout::nhwc)) all.push_back({algo->info().id, dtype});
    }
  return all;
}

class EveryCudaAlgo : public testing::TestWithParam<TypedAlgo> {
 protected:
  const ConvAlgo& algo() const { return cuda_registry().get(DeviceKind::cuda, GetParam().algo); }

  // Every n-th problem, including the last but four, which every algorithm takes. Types other than
  // f32 run a third as many, and CONVLAB_TEST_REDUCED a fourth. In three dimensions implicit_gemm
  // goes without many groups: each takes a tile, and shows nothing that a few do not.
  template <class F>
  void for_problems(std::size_t n, F body) {
    if (GetParam().dtype != DType::f32) n *= 3;
    if (reduced()) n *= 4;
    const std::size_t all = problem_texts().size() + depth_problem_texts().size();
    for (std::size_t i = (problem_texts().size() - 5) % n; i < all; i += n) {
      ConvProblem p = test_problem(i).problem;
      if (GetParam().algo == "implicit_gemm" && p.t > 1 && p.groups >= 20) continue;
      p.dtype = GetParam().dtype;
      turn_ = i;
      on_cpu::config.seed = unsigned(i);  // the first in order
      body(p);
    }
  }

  // The default in every pair of layouts that the algorithm takes, and the next configuration in
  // one of the pairs.
  void check(ConvProblem p, std::uint64_t seed, DataKind data = DataKind::small_integers) {
    const ReferenceCase reference(p, seed, data);
    std::vector<ConvProblem> taken;
    for (const Layout x_layout : {Layout::nchw, Layout::nhwc})
      for (const Layout y_layout : {Layout::nchw, Layout::nhwc}) {
        p.x_layout = x_layout;
        p.y_layout = y_layout;
        if (!algo().refuse(p, *device_))
          taken.push_back(p);
        else
          EXPECT_TRUE(algo().refuse(unfinished(p), *device_))
              << "takes it only without its epilogue, or without adding to the output\n  "
              << command(algo(), p, {}, seed);
      }
    for (const ConvProblem& each : taken)
      check(each, algo().configs(each, *device_).front(), reference, seed, data);
    if (taken.empty()) return;
    const ConvProblem& other = taken[turn_ % taken.size()];
    const std::vector<Config> configs = algo().configs(other, *device_);
    if (const std::size_t i = turn_++ % configs.size(); i != 0)
      check(other, configs[i], reference, seed, data);
  }

  std::unique_ptr<Device> device_ = make_cuda_device();
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  int ran_ = 0;

 private:
  void check(const ConvProblem& p, const Config& config, const ReferenceCase& reference,
             std::uint64_t seed, DataKind data) {
    double bound = max_error(algo(), config, p.dtype);
    if (data == DataKind::normal && bound == 0)
      bound = p.dtype == DType::f64 ? 1e-12 : math_type(config) == MathType::tf32 ? 2e-3 : 2e-6;
    const CheckResult verdict =
        check_candidate(algo(), p, config, reference, *device_, *stream_, bound);
    if (verdict.status == Status::refused) return;  // its workspace is too large
    EXPECT_EQ(verdict.status, Status::ok)
        << verdict.reason << "\n  " << command(algo(), p, config, seed);
    ++ran_;
  }

  std::size_t turn_ = 0;  // index of the next configuration beside the default
};

TEST_P(EveryCudaAlgo, AgreesWithTheReference) {
  for_problems(1, [&](ConvProblem p) {
    for (const Pass pass : all_passes) {
      p.pass = pass;
      check(p, 1);
    }
  });
  EXPECT_GT(ran_, 0);
}

// N(0,1) data shows errors that small integers hide, such as a default that multiplies in TF32.
TEST_P(EveryCudaAlgo, IsAsAccurateAsItsType) {
  ConvProblem p = parse_problem("mb2ic36ih13oc40oh13kh3ph1").problem;
  p.dtype = GetParam().dtype;
  on_cpu::config.seed = 5;
  for (const Pass pass : all_passes) {
    p.pass = pass;
    check(p, 5, DataKind::normal);
  }
  EXPECT_GT(ran_, 0);
}

TEST_P(EveryCudaAlgo, AccumulatesIntoTheOutput) {
  for_problems(3, [&](ConvProblem p) {
    p.accumulate = true;
    for (const Pass pass : all_passes) {
      p.pass = pass;
      check(p, 2);
    }
  });
  EXPECT_GT(ran_, 0);
}

TEST_P(EveryCudaAlgo, AppliesTheEpilogue) {
  for_problems(5, [&](ConvProblem p) {
    for (const Epilogue e : {Epilogue{true, false}, Epilogue{false, true},
                             Epilogue{false, false, ActivationKind::relu},
                             Epilogue{true, true, ActivationKind::relu}}) {
      p.epilogue = e;
      check(p, 3);
    }
  });
  EXPECT_GT(ran_, 0);
}

TEST_P(EveryCudaAlgo, PlansOnlyTheConfigsThatItLists) {
  ConvProblem p = parse_problem("mb2ic32ih12oc32oh12kh3ph1").problem;
  p.dtype = GetParam().dtype;
  int refused = 0;
  for (const Pass pass : all_passes)
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      p.pass = pass;
      p.x_layout = p.y_layout = layout;
      if (algo().refuse(p, *device_)) continue;
      refused += expect_only_listed(algo(), p, *device_);
      expect_unknown_name_refused(algo(), p, *device_);
    }
  EXPECT_GT(refused, 0);
}

// A net with one bad weight must not output a plausible class.
TEST_P(EveryCudaAlgo, LetsNaNsThroughTheEpilogue) {
  ConvProblem p = parse_problem("mb1ic8ih6oc12oh6kh3ph1").problem;
  p.dtype = GetParam().dtype;
  p.epilogue = {true, true, ActivationKind::relu};
  int ran = 0;
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    p.x_layout = p.y_layout = layout;
    if (algo().refuse(p, *device_)) continue;
    for (const Config& config : algo().configs(p, *device_)) {
      EXPECT_EQ(lost_nan(algo(), p, config, *device_), "") << command(algo(), p, config, 7);
      ++ran;
    }
  }
  EXPECT_GT(ran, 0);
}

// <conv(x, w), dy> = <x, bwd_d(dy, w)> = <w, bwd_w(x, dy)> holds independently of the reference.
TEST_P(EveryCudaAlgo, PassesAreAdjoint) {
  if (GetParam().dtype != DType::f32) GTEST_SKIP() << "in f32";
  for_problems(3, [&](const ConvProblem& p) {
    ConvProblem forward = p, data = p, filter = p;
    data.pass = Pass::backward_data;
    filter.pass = Pass::backward_filter;
    const ReferenceCase reads_xw(forward, 4, DataKind::small_integers);
    const ReferenceCase reads_dy(data, 4, DataKind::small_integers);
    for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
      for (ConvProblem* each : {&forward, &data, &filter}) each->x_layout = each->y_layout = layout;
      if (algo().refuse(forward, *device_) || algo().refuse(data, *device_) ||
          algo().refuse(filter, *device_))
        continue;
      const double y = inner_product(algo(), forward, reads_dy.input().dy, *device_);
      const double x = inner_product(algo(), data, reads_xw.input().x, *device_);
      const double w = inner_product(algo(), filter, reads_xw.input().w, *device_);
      // Summands are integers of at most 4 * 2; a transform's rounding errors average out.
      const double margin =
          is_exact(algo()) ? 0 : 1e-4 * std::sqrt(forward.flops()) + 1e-5 * std::abs(y);
      EXPECT_NEAR(y, x, margin) << command(algo(), data, {}, 4);
      EXPECT_NEAR(y, w, margin) << command(algo(), filter, {}, 4);
    }
  });
}

TEST_P(EveryCudaAlgo, TakesRandomProblems) {
  const std::uint64_t seed = random_problems_seed();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  // Draws until enough problems ran.
  for (int i = 0, enough = reduced() ? 4 : 16; i < enough || (ran_ < enough && i < 2000); ++i) {
    ConvProblem p = random_problem(random);
    p.dtype = GetParam().dtype;
    if (p.epilogue.activation) p.epilogue.activation = ActivationKind::relu;  // the only one
    on_cpu::config.seed = unsigned(i);
    SCOPED_TRACE(fmt::format("CONVLAB_TEST_SEED={}, problem {}", seed, i));
    check(p, std::uint64_t(i));
  }
  EXPECT_GT(ran_, 0);
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryCudaAlgo, testing::ValuesIn(typed_algos()),
                         [](const auto& param) {
                           return param.param.algo + "_" +
                                  std::string(to_string(param.param.dtype));
                         });

TEST(CudaRegistry, EveryAlgorithmIsTested) {
  std::set<std::string> tested;
  for (const TypedAlgo& typed : typed_algos()) tested.insert(typed.algo);
  for (const ConvAlgo* algo : cuda_registry().for_device(DeviceKind::cuda))
    EXPECT_TRUE(tested.contains(algo->info().id)) << algo->info().id << " refused every type";
  EXPECT_GT(tested.size(), 0u);
}

TEST(CudaRegistry, RefusesEveryActivationButReLUByName) {
  const auto device = make_cuda_device();
  int refused = 0;
  for (const ConvAlgo* algo : cuda_registry().for_device(DeviceKind::cuda)) {
    ConvProblem p = parse_problem("mb2ic32ih12oc32oh12kh3ph1").problem;
    if (algo->refuse(p, *device)) continue;
    p.epilogue.activation = ActivationKind::relu;
    EXPECT_FALSE(algo->refuse(p, *device)) << algo->info().id;
    for (const ActivationKind kind : all_activations) {
      if (kind == ActivationKind::relu) continue;
      p.epilogue.activation = kind;
      const auto refusal = algo->refuse(p, *device);
      ASSERT_TRUE(refusal) << algo->info().id << " " << to_string(kind);
      EXPECT_EQ(refusal->field, Field::epilogue) << refusal->reason();
      EXPECT_EQ(refusal->has, to_string(kind));
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace convlab
