// Every recurrent algorithm of CUDA against the reference: problems x cells x passes x types x
// configs. On a card where there is one, else executed on the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "conv/error.h"
#include "kernels_cuda/cuda.h"
#include "tests/recurrent/recurrent_case.h"

namespace convlab {
namespace {

const RecurrentRegistry& registry() {
  static const RecurrentRegistry algos = [] {
    RecurrentRegistry r;
    append_cuda_recurrent_algos(r);
    return r;
  }();
  return algos;
}

RecurrentProblem problem_of(RecurrentCell cell, const std::string& sizes, DType dtype) {
  RecurrentProblem p =
      parse_recurrent_problem(fmt::format("{}:{}", to_string(cell), sizes)).problem;
  p.dtype = dtype;
  return p;
}

double max_error(DType dtype) { return dtype == DType::f64 ? 1e-13 : 3e-6; }

// Each with a difficulty of its own.
const std::vector<const char*> sizes{
    "l1t1mb1sic1slc1dhc1dic1",        // one of everything
    "l1t4mb3sic7slc5dhc7dic7",        // less than a tile
    "l1t3mb1sic66slc70dhc66dic66",    // several tiles of columns
    "l1t3mb35sic33slc9dhc33dic33",    // several tiles of rows
    "l2t4mb2sic19slc19dhc19dic19",    // two layers alike
    "l3t3mb2sic10slc6dhc10dic10:bi",  // three layers, both directions
    "l1t5mb5sic40slc3dhc40dic40:bi",  // one layer, both directions
    "l1t2mb2sic8slc300dhc8dic8",      // many inputs
};

// Parameter: the cell.
class RecurrentOnCuda : public testing::TestWithParam<RecurrentCell> {
 protected:
  void SetUp() override {
    if (const std::string obstacle = cuda_obstacle(); !obstacle.empty()) GTEST_SKIP() << obstacle;
    // Executed on the CPU: multiprocessors enough for persistent's blocks.
    ::setenv("CONVLAB_CARD", "multiprocessors=32", 1);
    device_ = make_cuda_device();
  }

  // Returns how many configs of each algorithm were right.
  std::map<std::string, int> check_all(const RecurrentProblem& p, bool states = true) {
    std::map<std::string, int> right;
    RecurrentCase reference(p, 11, states);
    for (const RecurrentAlgo* algo : registry().for_device(DeviceKind::cuda)) {
      if (!algo->refuse(reference.with_pass(Pass::forward), *device_) &&
          algo->own_format(reference.with_pass(Pass::forward), *device_)) {
        const PassResult result = reference.check_own_format(*algo, *device_);
        EXPECT_LE(result.error, 10 * max_error(p.dtype)) << result.worst << ' ' << to_text(p);
        ++right[algo->info().id];
        continue;
      }
      for (const Pass pass : all_passes)
        for (const bool training : {true, false}) {
          if (pass != Pass::forward && !training) continue;
          const RecurrentProblem of_pass = reference.with_pass(pass, training);
          if (algo->refuse(of_pass, *device_)) continue;
          for (const Config& config : algo->configs(of_pass, *device_))
            right[algo->info().id] += is_right(reference, *algo, of_pass, config);
        }
    }
    return right;
  }

  bool is_right(RecurrentCase& reference, const RecurrentAlgo& algo, const RecurrentProblem& p,
                const Config& config, bool dx = true) {
    const PassResult result = reference.check(algo, p, config, *device_, dx);
    const std::string text = fmt::format(
        "{} {} {} {} '{}'{}{}", algo.info().id, to_text(p), to_string(p.pass), to_string(p.dtype),
        config.text(), p.training ? " training" : "", p.recompute ? " recompute" : "");
    EXPECT_LE(result.error, max_error(p.dtype)) << result.worst << ' ' << text;
    EXPECT_TRUE(result.intact) << text;
    return result.error <= max_error(p.dtype) && result.intact;
  }

  std::unique_ptr<Device> device_;
};

TEST_P(RecurrentOnCuda, AgreesWithTheReference) {
  for (const char* text : sizes)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto right = check_all(problem_of(GetParam(), text, dtype));
      EXPECT_EQ(right.at("stepwise"), 8) << text;
      EXPECT_EQ(right.at("batched_input"), 14) << text;
      EXPECT_GE(right.at("persistent"), 6) << text;
    }
}

// More of the weights than registers hold, in the largest blocks.
TEST_P(RecurrentOnCuda, PersistentWeightsInSharedMemory) {
  const RecurrentAlgo& algo = registry().get(DeviceKind::cuda, "persistent");
  for (const char* text : {"l1t2mb1sic300slc3dhc300dic300", "l1t2mb6sic300slc3dhc300dic300"}) {
    RecurrentCase reference(problem_of(GetParam(), text, DType::f64), 12);
    for (const Pass pass : {Pass::forward, Pass::backward_data}) {
      const RecurrentProblem p = reference.with_pass(pass);
      ASSERT_FALSE(algo.refuse(p, *device_));
      EXPECT_TRUE(is_right(reference, algo, p, algo.configs(p, *device_).back()));
    }
  }
}

TEST_P(RecurrentOnCuda, RecomputesWhatIsNotSaved) {
  for (const char* text : {"l1t4mb3sic7slc5dhc7dic7", "l3t3mb2sic10slc6dhc10dic10:bi"})
    for (const DType dtype : {DType::f32, DType::f64}) {
      RecurrentProblem p = problem_of(GetParam(), text, dtype);
      p.recompute = true;
      EXPECT_EQ(check_all(p).at("stepwise"), 8);
    }
}

TEST_P(RecurrentOnCuda, TakesAbsentStatesAsZero) {
  for (const char* text : {"l1t4mb3sic7slc5dhc7dic7", "l3t3mb2sic10slc6dhc10dic10:bi"})
    EXPECT_EQ(check_all(problem_of(GetParam(), text, DType::f32), false).at("stepwise"), 8);
}

TEST_P(RecurrentOnCuda, LeavesOutDxIfNobodyNeedsIt) {
  for (const char* text : {"l1t4mb3sic7slc5dhc7dic7", "l3t3mb2sic10slc6dhc10dic10:bi"}) {
    RecurrentCase reference(problem_of(GetParam(), text, DType::f32), 14);
    const RecurrentProblem p = reference.with_pass(Pass::backward_data);
    for (const RecurrentAlgo* algo : registry().for_device(DeviceKind::cuda)) {
      if (algo->refuse(p, *device_)) continue;
      if (algo->own_format(p, *device_)) {
        const PassResult result = reference.check_own_format(*algo, *device_, false);
        EXPECT_LE(result.error, 10 * max_error(p.dtype)) << result.worst << ' ' << to_text(p);
        continue;
      }
      for (const Config& config : algo->configs(p, *device_))
        EXPECT_TRUE(is_right(reference, *algo, p, config, false));
    }
  }
}

TEST_P(RecurrentOnCuda, RefusesUnknownConfigs) {
  const RecurrentProblem p = problem_of(GetParam(), "l1t4mb3sic7slc5dhc7dic7", DType::f32);
  for (const RecurrentAlgo* algo : registry().for_device(DeviceKind::cuda)) {
    if (algo->refuse(p, *device_)) continue;
    EXPECT_THROW((void)algo->plan(p, Config{{"nonsense", 1}}, *device_), InputError);
    EXPECT_THROW((void)algo->plan(p, Config{{"product", "blas"}}, *device_), InputError);
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrentOnCuda, testing::ValuesIn(all_cells),
                         [](const auto& cell) { return std::string(to_string(cell.param)); });

}  // namespace
}  // namespace convlab
