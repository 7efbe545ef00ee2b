#include "autotune/race/worker.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conv/error.h"
#include "kernels_cpu/cpu.h"
#include "tests/autotune/test_algos.h"

namespace convlab {
namespace {

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    options_.problem = parse_problem("mb1ic4ih5oc4oh5kh1ph0").problem;
    options_.max_error = 1e-5;
  }
  WorkerRunner& runner() {
    if (!runner_)
      runner_ = std::make_unique<WorkerRunner>(options_, make_cpu_device()->info(), timeout_s_);
    return *runner_;
  }
  static Candidate candidate(const std::string& algo) {
    Candidate c;
    c.algo = algo;
    return c;
  }
  Candidate prepared(const std::string& algo) {
    Candidate c = candidate(algo);
    runner().prepare(c);
    return c;
  }
  // The worker's reported failure: "failed: reason".
  std::string loss(const std::string& algo) {
    try {
      prepared(algo);
    } catch (const CandidateLost& lost) {
      return std::string(to_string(lost.status)) + ": " + lost.what();
    }
    return "not lost";
  }

  RunnerOptions options_;
  double timeout_s_ = 60;
  std::unique_ptr<WorkerRunner> runner_;
};

TEST_F(WorkerTest, PreparesAndSamples) {
  const Candidate c = prepared("plain");
  EXPECT_EQ(c.status, Status::ok) << c.reason;
  EXPECT_LT(c.rel_error, 1e-6);
  EXPECT_EQ(c.workspace_bytes, 64);
  EXPECT_TRUE(c.deterministic);
  EXPECT_GT(runner().sample(c, Timed::run, 3).seconds, 0);
  runner().release(c);
}

TEST(WorkerPatience, IsLongerWhereADriverCompilesKernels) {
  DeviceInfo card;
  EXPECT_EQ(patience_s(20, card), 20);
  card.compiles_kernels = true;
  EXPECT_GT(patience_s(20, card), 60);
}

TEST_F(WorkerTest, PassesOnWhatAPlanNotes) {
  EXPECT_EQ(prepared("chooser").reason, "took the plain way");
  EXPECT_EQ(prepared("plain").reason, "");
}

TEST_F(WorkerTest, SaysHowACandidateEndedTheProcess) {
  EXPECT_EQ(loss("segfault").substr(0, 8), "failed: ");  // sanitizers turn it into an exit
  EXPECT_EQ(loss("abort"), "failed: crashed: signal 6 (Aborted)");
  EXPECT_EQ(loss("thrower"), "failed: no luck today");
  EXPECT_EQ(loss("greedy"), "refused: 1 TB is not there");
  EXPECT_EQ(prepared("plain").status, Status::ok);
}

TEST_F(WorkerTest, TellsWhatTheMachineDidFromWhatTheCandidateDid) {
  EXPECT_EQ(loss("killed"),
            "refused: its process was killed: signal 9 (Killed), as when memory runs out");
  EXPECT_EQ(loss("limited"),
            "refused: its process was killed: signal 24 (CPU time limit exceeded)");
  EXPECT_EQ(loss("exit"), "refused: its process ended with exit status 3");
  EXPECT_EQ(loss("starved"), "refused: its process ended with exit status 1");
  EXPECT_EQ(loss("threadless").substr(0, 15), "refused: thread");
  EXPECT_EQ(prepared("plain").status, Status::ok);
}

// Fails before any candidate has run.
TEST_F(WorkerTest, AWorkerThatCannotMakeReadyIsNobodysFault) {
  DeviceInfo device = make_cpu_device()->info();
  const auto prepare = [&](int index) {
    device.index = index;
    runner_ = std::make_unique<WorkerRunner>(options_, device, timeout_s_);
    prepared("plain");
  };
  EXPECT_THROW(prepare(device_that_exits), EnvironmentError);
  EXPECT_THROW(prepare(device_that_is_killed), OutOfMemory);
  EXPECT_THROW(prepare(device_that_is_lost), EnvironmentError);
}

// The clock runs on while this process is stopped, but the worker has not hung.
TEST(LineChannel, DoesNotCountTheTimeInWhichThisProcessWasStopped) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) {
    ::usleep(50'000);
    ::kill(parent, SIGSTOP);
    ::usleep(600'000);
    ::kill(parent, SIGCONT);
    ::_exit(0);
  }
  // Called before each wait. The line comes after the stop, however late the child stopped us.
  int waits = 0;
  const auto send_at_the_second = [&] {
    if (++waits == 2) {
      ::waitpid(child, nullptr, 0);
      LineChannel(ends[1]).send("here");
    }
    return false;
  };
  std::string line;
  EXPECT_EQ(LineChannel(ends[0]).receive(line, 0.5, send_at_the_second), Heard::line);
  EXPECT_EQ(line, "here");
  EXPECT_EQ(LineChannel(ends[0]).receive(line, 0.05), Heard::timeout);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(WorkerTest, TellsWrongFromInaccurate) {
  const Candidate liar = prepared("liar"), sloppy = prepared("sloppy");
  EXPECT_EQ(liar.status, Status::failed);
  EXPECT_NE(liar.reason.find("wrong result"), std::string::npos) << liar.reason;
  EXPECT_EQ(sloppy.status, Status::inaccurate);
  EXPECT_NEAR(sloppy.rel_error, 1e-3, 1e-5);
}

TEST_F(WorkerTest, KillsOneThatHangs) {
  timeout_s_ = 2;
  EXPECT_EQ(loss("hang"), "timeout: no answer within 2 s");
  Candidate plain = candidate("plain");
  plain.ms = 60;  // and so may take a minute longer
  runner().prepare(plain);
  EXPECT_EQ(plain.status, Status::ok) << plain.reason;
}

TEST_F(WorkerTest, OthersGoOnInANewWorkerAfterACrash) {
  const Candidate plain = prepared("plain"), late = prepared("late_segfault");
  EXPECT_EQ(late.status, Status::ok);
  EXPECT_GT(runner().sample(plain, Timed::run, 1).seconds, 0);
  EXPECT_THROW(
      {
        for (int i = 0; i < 4; ++i) runner().sample(late, Timed::run, 1);
      },
      CandidateLost);
  EXPECT_GT(runner().sample(plain, Timed::run, 1).seconds, 0);
}

TEST_F(WorkerTest, ALostDeviceCostsItsProcessOnly) {
  const Candidate plain = prepared("plain");
  EXPECT_EQ(loss("loser"), "failed: the device is gone");
  EXPECT_GT(runner().sample(plain, Timed::run, 1).seconds, 0);
}

TEST_F(WorkerTest, AWorkerIsHandedOnUnlessSomethingFailedInIt) {
  std::unique_ptr<ChildProcess> spare;
  const auto make = [&] {
    return std::make_unique<WorkerRunner>(options_, make_cpu_device()->info(), timeout_s_,
                                          std::function<bool()>(), &spare);
  };
  runner_ = make();
  prepared("plain");
  runner_.reset();
  const ChildProcess* const first = spare.get();
  ASSERT_NE(first, nullptr);

  options_.problem =
      parse_problem("mb1ic4ih5oc6oh5kh1ph0").problem;  // another problem, same worker
  runner_ = make();
  EXPECT_EQ(prepared("plain").status, Status::ok);
  EXPECT_EQ(spare, nullptr);
  runner_.reset();
  EXPECT_EQ(spare.get(), first);

  runner_ = make();
  EXPECT_EQ(prepared("liar").status, Status::failed);
  runner_.reset();
  EXPECT_EQ(spare, nullptr);
}

TEST_F(WorkerTest, RefusesWhatNeedsTooMuchWorkspace) {
  options_.workspace_max = 63;
  const Candidate c = prepared("plain");
  EXPECT_EQ(c.status, Status::refused);
  EXPECT_EQ(c.reason, "needs 64 bytes of workspace, the limit is 63");
}

TEST_F(WorkerTest, StopsWaitingWhenTold) {
  runner_ = std::make_unique<WorkerRunner>(options_, make_cpu_device()->info(), timeout_s_,
                                           [] { return true; });
  EXPECT_EQ(loss("hang"), "dropped: stopped");
}

TEST_F(WorkerTest, ReportsAProblemItCannotOpenAsItsOwn) {
  ConvProblem impossible = *options_.problem.conv();
  impossible.groups = 3;
  options_.problem = impossible;
  EXPECT_THROW(prepared("plain"), InputError);
}

TEST_F(WorkerTest, MeasuresColdToo) {
  options_.cache = CacheMode::cold;
  EXPECT_GT(runner().sample(prepared("plain"), Timed::run, 2).seconds, 0);
}

}  // namespace
}  // namespace convlab
