// Recurrent layers in the tuner, as convolutions are: the testbed, the worker, the store, a run.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "autotune/candidates.h"
#include "autotune/race/checker.h"
#include "autotune/race/worker.h"
#include "autotune/store/row.h"
#include "autotune/testbed/recurrent_testbed.h"
#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "tests/autotune/store_lab.h"
#include "tests/autotune/test_algos.h"
#include "tests/autotune/tuner_lab.h"

namespace convlab {
namespace {

using Evaluate = ReferenceCase::Evaluate;

Problem problem_of(std::string_view text, Pass pass = Pass::forward, bool training = false) {
  Problem problem = parse_layer(text).problem;
  problem.set_pass(pass, training);
  return problem;
}

const Algos& cpu_algos() {
  static const Algos algos = [] {
    Algos a;
    append_cpu_recurrent_algos(a.recurrent);
    append_test_algos(a.recurrent);
    return a;
  }();
  return algos;
}

CheckResult check(const Problem& problem, const std::string& id, double max_error = 1e-5,
                  Evaluate evaluate = Evaluate::whole) {
  const auto device = make_cpu_device({2, ""});
  const auto stream = device->make_stream();
  const AlgoRef algo = cpu_algos().get(problem, DeviceKind::cpu, id);
  const auto testbed = make_testbed(problem, 3, evaluate, *device, *stream);
  Candidate c = new_candidate(algo, problem, CacheMode::hot, device->info());
  c.config = algo.configs(problem, *device).front();
  return testbed->plan(algo, c)->check(max_error);
}

TEST(RecurrentTestbed, EveryAlgorithmPassesInEveryPass) {
  const auto device = make_cpu_device({2, ""});
  std::map<std::string, int> passed;
  for (const char* text : {"rnn:t3mb2slc5dhc7", "rnn_relu:t3mb2slc5dhc7", "gru:l2t4mb3dhc6",
                           "lstm:t3mb40slc4dhc9:bi", "lstm:l2t3mb2dhc8"})
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Pass pass : all_passes)
        for (const bool training : {true, false})
          for (const Evaluate evaluate : {Evaluate::whole, Evaluate::sample}) {
            if (!training && pass != Pass::forward) continue;
            Problem problem = problem_of(text, pass, training);
            problem.set_dtype(dtype);
            for (const RecurrentAlgo* algo : cpu_algos().recurrent.for_device(DeviceKind::cpu)) {
              const std::string& id = algo->info().id;
              if (id == "crashing" || id == "last_row" || id == "forgetful" || id == "overrunning")
                continue;
              if (AlgoRef(*algo).refuse(problem, *device)) continue;
              const CheckResult result =
                  check(problem, id, dtype == DType::f64 ? 1e-13 : 3e-6, evaluate);
              EXPECT_EQ(result.status, Status::ok)
                  << id << ' ' << text << ' ' << to_string(pass) << ' ' << result.reason;
              ++passed[id];
            }
          }
  for (const char* id : {"stepwise", "batched_input", "persistent", "own_format"})
    EXPECT_GT(passed[id], 0) << id;
}

TEST(RecurrentTestbed, FindsWhatIsWrong) {
  const Problem problem = problem_of("rnn:t3mb5dhc16");
  EXPECT_EQ(check(problem, "last_row").status, Status::failed);
  EXPECT_EQ(check(problem, "forgetful").reason, "element 0 of hn is NaN or was not written");
#if !defined(__SANITIZE_ADDRESS__)  // AddressSanitizer stops the program at the write itself
  EXPECT_EQ(check(problem, "overrunning").reason, "wrote past the end of y");
#endif
  EXPECT_EQ(check(problem, "plain_rnn", 1e-12).status, Status::inaccurate);
}

// A batch of 4096 whose reference is of a few rows: every row is judged.
TEST(RecurrentTestbed, JudgesEveryRowOfALargeBatch) {
  const Problem problem = problem_of("rnn:t4mb4096dhc64");
  const std::int64_t rows = distinct_rows(*problem.recurrent(), Evaluate::sample);
  EXPECT_LT(rows, 1000);
  EXPECT_EQ(rows % 2, 1);
  EXPECT_EQ(check(problem, "plain_rnn", 1e-5, Evaluate::sample).status, Status::ok);
  EXPECT_EQ(check(problem, "last_row", 1e-5, Evaluate::sample).status, Status::failed);
  const Problem filter = problem_of("gru:t4mb1000dhc64", Pass::backward_filter);
  EXPECT_LT(distinct_rows(*filter.recurrent(), Evaluate::sample), 1000);
  EXPECT_EQ(check(filter, "batched_input", 1e-5, Evaluate::sample).status, Status::ok);
}

TEST(RecurrentTestbed, AFormatOfItsOwnIsRefusedWhereItsTimeComparesWithNone) {
  const auto device = make_cpu_device({1, ""});
  const AlgoRef algo = cpu_algos().recurrent.get(DeviceKind::cpu, "own_format");
  const char* const text = "gru:t3mb2dhc8";
  const auto filter = algo.refuse(problem_of(text, Pass::backward_filter), *device);
  ASSERT_TRUE(filter);
  EXPECT_NE(filter->reason().find("computes 100% of bwd_w's products in another pass"),
            std::string::npos);
  EXPECT_EQ(algo.note(problem_of(text), {}, *device), "");
  EXPECT_EQ(algo.note(problem_of(text, Pass::forward, true), {}, *device),
            "its passes run together or not at all");
  EXPECT_NE(algo.note(problem_of(text, Pass::backward_data), {}, *device).find("bwd_w's products"),
            std::string::npos);
}

TEST(RecurrentChecker, ChecksBothKindsInTurn) {
  Algos algos;
  append_test_algos(algos);
  const auto device = make_cpu_device({1, ""});
  Checker checker(algos, *device, 1);
  Candidate recurrent, conv;
  recurrent.algo = "plain_rnn";
  conv.algo = "plain";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(checker.check(problem_of("lstm:t2dhc8"), recurrent, 1e-5).status, Status::ok);
    EXPECT_EQ(checker.check(problem_of("mb1ic4ih5oc4oh5kh3ph1"), conv, 1e-5).status, Status::ok);
  }
}

TEST(RecurrentWorker, RunsThemInItsProcess) {
  RunnerOptions options;
  options.problem = problem_of("gru:t3mb2dhc16", Pass::backward_data);
  options.max_error = 1e-5;
  WorkerRunner runner(options, make_cpu_device()->info(), 60);
  Candidate c;
  c.algo = "own_format";
  runner.prepare(c);
  EXPECT_EQ(c.status, Status::ok) << c.reason;
  EXPECT_FALSE(c.has_layouts);
  EXPECT_NE(c.reason.find("bwd_w's products"), std::string::npos) << c.reason;
  EXPECT_GT(runner.sample(c, Timed::run, 2).seconds, 0);
  Candidate crashing;
  crashing.algo = "crashing";
  EXPECT_THROW(runner.prepare(crashing), CandidateLost);
}

TEST_F(StoreTest, RecurrentRowsHaveTheirOwnKeys) {
  Store store(file());
  const AlgoInfo algo{.id = "persistent", .summary = "", .libraries = {}};
  const Problem inference = problem_of("lstm:t8mb4dhc32:bi"),
                training = problem_of("lstm:t8mb4dhc32:bi", Pass::forward, true);
  RecurrentProblem again = *training.recurrent();
  again.recompute = true;
  Candidate c = candidate(algo);
  c.has_layouts = false;
  store.record(training, device_, algo, c);
  const auto found = [&](const Problem& p) {
    return store.lookup(p, CacheMode::hot, device_, algo).candidates.size();
  };
  EXPECT_EQ(found(training), 1u);
  EXPECT_EQ(found(inference), 0u);
  EXPECT_EQ(found(again), 0u);
  store.record(again, device_, algo, c);
  store.record(problem_, device_, algo, candidate(algo));  // a convolution beside them

  Store copy(directory_ / "copy.db");
  EXPECT_EQ(copy.merge(import_json(export_json(store.rows()))).added, 3);
  EXPECT_TRUE(copy.verify().empty());
  const auto rows = copy.rows();
  EXPECT_EQ(rows[0].problem, training);
  EXPECT_FALSE(rows[0].candidate.has_layouts);
  EXPECT_EQ(rows[1].problem, Problem(again));
  EXPECT_EQ(rows[2].problem, Problem(problem_));
  EXPECT_TRUE(rows[2].candidate.has_layouts);

  RawRow raw = to_raw(rows[0]);
  raw.x_layout = raw.y_layout = "nchw";
  EXPECT_THROW(from_raw(raw), InputError);
  raw = to_raw(rows[0]);
  raw.epilogue = "bias";
  EXPECT_THROW(from_raw(raw), InputError);
}

TEST_F(TunerTest, RecurrentLayersAreTunedBesideConvolutions) {
  for (const Pass pass : all_passes) add("gru:t3mb2dhc8", pass);
  add(small);
  const std::vector<std::string> algos{"plain_rnn", "slow_rnn", "forgetful", "own_format", "plain"};
  const TuneTable table = run(algos, &store_);
  ASSERT_EQ(table.layers.size(), 4u);
  // Its passes run together, in half the time of the others; not backward_filter, which it copies.
  EXPECT_EQ(chosen(table.layers[0]), "own_format");
  EXPECT_EQ(chosen(table.layers[2]), "plain_rnn");
  EXPECT_EQ(row(table.layers[2], "own_format").status, Status::refused);
  EXPECT_EQ(row(table.layers[0], "forgetful").status, Status::failed);
  EXPECT_EQ(row(table.layers[0], "slow_rnn").status, Status::dropped);
  const Candidate& c = table.layers[2].candidates[*table.layers[2].chosen];
  EXPECT_NEAR(c.eff_gflops, table.layers[2].layer.problem.flops() / c.ms / 1e6, 1e-9);
  for (const Candidate& of_conv : table.layers[3].candidates) EXPECT_NE(of_conv.algo, "plain_rnn");

  const TuneTable again = run(algos, &store_);
  EXPECT_GT(log_.resumed_rows, 0u);
  EXPECT_EQ(chosen(again.layers[2]), "plain_rnn");
}

TEST_F(TunerTest, NamesOfTheOtherKindAreUnknown) {
  add("rnn:t3mb2dhc8");
  EXPECT_EQ(chosen(run({"plain_rnn"}).layers[0]), "plain_rnn");
  EXPECT_THROW(run({"plain"}), InputError);
  add(small);
  EXPECT_NO_THROW(run({"plain", "plain_rnn"}));
}

}  // namespace
}  // namespace convlab
