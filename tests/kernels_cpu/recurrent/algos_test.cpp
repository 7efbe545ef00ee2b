// Every recurrent algorithm of the CPU against the reference: problems x cells x passes x types x
// configs x ISAs. New algorithms are picked up from the registry.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "tests/kernels_cpu/isas.h"
#include "tests/problems.h"
#include "tests/recurrent/recurrent_case.h"

namespace convlab {
namespace {

const RecurrentRegistry& registry() {
  static const RecurrentRegistry algos = [] {
    RecurrentRegistry r;
    append_cpu_recurrent_algos(r);
    return r;
  }();
  return algos;
}

// Sizes, each with a difficulty of its own; the cell is put before them.
const std::vector<const char*>& sizes() {
  static const std::vector<const char*> texts{
      "l1t1mb1sic1slc1dhc1dic1",         // one of everything
      "l1t5mb2sic16slc16dhc16dic16",     // whole vectors
      "l1t4mb3sic7slc5dhc7dic7",         // less than a vector
      "l1t3mb1sic130slc70dhc130dic130",  // more than a wide panel
      "l1t3mb17sic33slc9dhc33dic33",     // more rows than a tile
      "l2t4mb2sic19slc19dhc19dic19",     // two layers alike
      "l3t3mb2sic10slc6dhc10dic10:bi",   // three layers, both directions
      "l1t6mb5sic40slc3dhc40dic40:bi",   // one layer, both directions
      "l1t2mb300sic8slc4dhc8dic8",       // inputs in several chunks of steps
      "l1t2mb2sic8slc1100dhc8dic8",      // depth in several chunks
  };
  return texts;
}

RecurrentProblem problem_of(RecurrentCell cell, const std::string& sizes, DType dtype) {
  RecurrentProblem p = parse_recurrent_problem(std::string(to_string(cell)) + ":" + sizes).problem;
  p.dtype = dtype;
  return p;
}

double max_error(DType dtype) { return dtype == DType::f64 ? 1e-13 : 3e-6; }

std::string describe(const RecurrentAlgo& algo, const RecurrentProblem& p, const Config& config,
                     const Device& device) {
  return algo.info().id + " " + to_text(p) + " " + std::string(to_string(p.pass)) + " " +
         std::string(to_string(p.dtype)) + " config '" + config.text() + "' isa " +
         device.info().isa + (p.recompute ? " recompute" : "") + (p.training ? " training" : "");
}

// Every algorithm and config in each pass; returns how many ran of each algorithm.
std::map<std::string, int> check_all(const RecurrentProblem& p, bool states, Device& device) {
  std::map<std::string, int> ran;
  RecurrentCase reference(p, 11, states);
  for (const RecurrentAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    if (!algo->refuse(reference.with_pass(Pass::forward), device) &&
        algo->own_format(reference.with_pass(Pass::forward), device)) {
      const PassResult result = reference.check_own_format(*algo, device);
      EXPECT_LE(result.error, max_error(p.dtype))
          << result.worst << ' ' << describe(*algo, p, {}, device);
      EXPECT_TRUE(result.intact) << describe(*algo, p, {}, device);
      ++ran[algo->info().id];
      continue;
    }
    for (const Pass pass : all_passes)
      for (const bool training : {true, false}) {
        if (pass != Pass::forward && !training) continue;
        const RecurrentProblem of_pass = reference.with_pass(pass, training);
        if (algo->refuse(of_pass, device)) continue;
        for (const Config& config : algo->configs(of_pass, device)) {
          const PassResult result = reference.check(*algo, of_pass, config, device);
          EXPECT_LE(result.error, max_error(p.dtype))
              << result.worst << ' ' << describe(*algo, of_pass, config, device);
          EXPECT_TRUE(result.intact) << describe(*algo, of_pass, config, device);
          ++ran[algo->info().id];
        }
      }
  }
  return ran;
}

class EveryRecurrentAlgo : public testing::TestWithParam<RecurrentCell> {};

TEST_P(EveryRecurrentAlgo, AgreesWithTheReference) {
  for (const std::string& isa : isas()) {
    const auto device = make_cpu_device({2, isa});
    for (const char* text : sizes())
      for (const DType dtype : {DType::f32, DType::f64}) {
        const auto ran = check_all(problem_of(GetParam(), text, dtype), true, *device);
        EXPECT_EQ(ran.at("stepwise"), 4) << text;
        EXPECT_EQ(ran.at("batched_input"), 7) << text;
        EXPECT_EQ(ran.at("persistent"), 3) << text;
      }
  }
}

TEST_P(EveryRecurrentAlgo, RecomputesWhatIsNotSaved) {
  const auto device = make_cpu_device({2, ""});
  for (const char* text : sizes())
    for (const DType dtype : {DType::f32, DType::f64}) {
      RecurrentProblem p = problem_of(GetParam(), text, dtype);
      p.recompute = true;
      EXPECT_EQ(check_all(p, true, *device).size(), 3u);
    }
}

TEST_P(EveryRecurrentAlgo, TakesAbsentStatesAsZero) {
  const auto device = make_cpu_device({2, ""});
  for (const char* text :
       {"l1t4mb3sic7slc5dhc7dic7", "l2t4mb2sic19slc19dhc19dic19", "l1t6mb5sic40slc3dhc40dic40:bi"})
    check_all(problem_of(GetParam(), text, DType::f32), false, *device);
}

TEST_P(EveryRecurrentAlgo, LeavesOutDxIfNobodyNeedsIt) {
  const auto device = make_cpu_device({2, ""});
  for (const char* text : sizes()) {
    RecurrentCase reference(problem_of(GetParam(), text, DType::f32), 14);
    const RecurrentProblem p = reference.with_pass(Pass::backward_data);
    for (const RecurrentAlgo* algo : registry().for_device(DeviceKind::cpu)) {
      if (algo->refuse(p, *device)) continue;
      const bool own_format = algo->own_format(p, *device).has_value();
      for (const Config& config : algo->configs(p, *device)) {
        const PassResult result = own_format ? reference.check_own_format(*algo, *device, false)
                                             : reference.check(*algo, p, config, *device, false);
        EXPECT_LE(result.error, max_error(p.dtype))
            << result.worst << ' ' << describe(*algo, p, config, *device);
        EXPECT_TRUE(result.intact) << describe(*algo, p, config, *device);
      }
    }
  }
}

// Panels have one order of summation, whatever the threads: persistent's results are those of
// batched_input to the bit. OpenBLAS has not.
TEST_P(EveryRecurrentAlgo, GivesTheSameBitsWithAnyThreads) {
  for (const char* text : {"l2t3mb2sic70slc70dhc70dic70", "l1t3mb9sic130slc20dhc130dic130:bi",
                           "l1t4mb40sic40slc7dhc40dic40"})
    for (const DType dtype : {DType::f32, DType::f64}) {
      const RecurrentProblem p = problem_of(GetParam(), text, dtype);
      RecurrentCase reference(p, 12);
      for (const Pass pass : all_passes) {
        const RecurrentProblem of_pass = reference.with_pass(pass);
        std::vector<double> expected;
        for (const int threads : {1, 2, 3, 8}) {
          const auto device = make_cpu_device({threads, ""});
          for (const char* id : {"batched_input", "persistent"}) {
            const RecurrentAlgo& algo = registry().get(DeviceKind::cpu, id);
            if (algo.refuse(of_pass, *device)) continue;
            const Config config = algo.configs(of_pass, *device).front();
            const auto output = reference.check(algo, of_pass, config, *device).output;
            if (expected.empty()) expected = output;
            EXPECT_TRUE(output == expected)
                << threads << " threads, " << describe(algo, of_pass, config, *device);
          }
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Cells, EveryRecurrentAlgo, testing::ValuesIn(all_cells),
                         [](const auto& cell) { return std::string(to_string(cell.param)); });

// A plan is made for a number of threads, and runs with those it gets.
TEST(Recurrent, RunsInsideAParallelRegion) {
  const auto device = make_cpu_device({2, ""});
  RecurrentCase reference(problem_of(RecurrentCell::lstm, "l1t4mb3sic70slc5dhc70dic70", DType::f32),
                          13);
  const RecurrentProblem p = reference.with_pass(Pass::forward);
  std::vector<double> errors(2, 1);
#pragma omp parallel for num_threads(2)
  for (int i = 0; i < 2; ++i) {
    RecurrentCase own = reference;
    errors[std::size_t(i)] =
        own.check(registry().get(DeviceKind::cpu, "persistent"), p, {}, *device).error;
  }
  for (const double error : errors) EXPECT_LE(error, max_error(DType::f32));
}

TEST(Recurrent, PersistentLeavesTheFilterToBatchedInput) {
  const auto device = make_cpu_device({2, ""});
  RecurrentProblem p = problem_of(RecurrentCell::gru, "l1t4mb3sic7slc5dhc7dic7", DType::f32);
  p.pass = Pass::backward_filter;
  const auto refusal = registry().get(DeviceKind::cpu, "persistent").refuse(p, *device);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason(),
            "needs fwd or bwd_d, has bwd_w, which does not read the recurrent weights: use "
            "batched_input");
}

TEST(Recurrent, UnknownConfigsAreRefused) {
  const auto device = make_cpu_device({2, ""});
  const RecurrentProblem p = problem_of(RecurrentCell::gru, "l1t4mb3sic7slc5dhc7dic7", DType::f32);
  for (const RecurrentAlgo* algo : registry().for_device(DeviceKind::cpu)) {
    if (algo->refuse(p, *device)) continue;
    EXPECT_THROW((void)algo->plan(p, Config{{"nonsense", 1}}, *device), InputError);
    for (const Config& config : algo->configs(p, *device))
      EXPECT_NO_THROW((void)algo->plan(p, config, *device));
  }
  const auto message = [&](Config config) -> std::string {
    try {
      (void)registry().get(DeviceKind::cpu, "batched_input").plan(p, config, *device);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({{"weights", "folded"}}),
            "unknown weights 'folded': expected one of transposed, as_given");
  EXPECT_NE(message({{"transpose", 1}}), "");
}

}  // namespace
}  // namespace convlab
