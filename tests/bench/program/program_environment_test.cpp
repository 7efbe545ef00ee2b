// The command line and its environment: threads, memory, home directory, build.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "tests/bench/program/program_lab.h"

namespace convlab {
namespace {

// In a read-only checkout, and from a directory that no longer exists.
TEST_F(ProgramTest, TheStartScriptRunsWhatIsBuiltWhereItCannotWrite) {
  const std::filesystem::path cmake = std::filesystem::path(CONVLAB_SETUP).parent_path(),
                              checkout = directory_ / "checkout";
  std::filesystem::create_directories(checkout / "cmake");
  for (const char* name : {"setup.sh", "debian-packages.txt"})
    std::filesystem::copy(cmake / name, checkout / "cmake");
  std::filesystem::copy(cmake.parent_path() / "convlab", checkout);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  const std::string start = std::string(geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 "
                                                         "--clear-groups "
                                                       : "") +
                            (checkout / "convlab").string() + " list";
  const auto run_script = [&](const std::string& before) {
    std::filesystem::permissions(checkout, std::filesystem::perms(0555));
    const Ran ran = Program(directory_, {"-c", before + start}, {}, "/bin/bash").wait();
    std::filesystem::permissions(checkout, std::filesystem::perms(0755));
    return ran;
  };
  const Ran nothing = run_script("");
  EXPECT_EQ(nothing.exit_code, 3);
  EXPECT_TRUE(nothing.err.starts_with("convlab: cannot write ")) << nothing.err;
  EXPECT_EQ(lines(nothing.err), 1) << nothing.err;
  std::filesystem::create_directories(checkout / "build" / "bench");
  write_file(checkout / "build" / "bench" / "convlab", "#!/bin/sh\necho \"built, $1\"\n");
  std::filesystem::permissions(checkout / "build", std::filesystem::perms(0555));
  std::filesystem::permissions(checkout / "build" / "bench" / "convlab",
                               std::filesystem::perms(0755));
  const std::string gone = directory_ / "gone";
  for (const std::string& before :
       {std::string(), "mkdir " + gone + "; cd " + gone + "; rmdir " + gone + "; "}) {
    const Ran ran = run_script(before);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(ran.out, "built, list\n");
  }
  std::filesystem::permissions(checkout / "build", std::filesystem::perms(0755));
}

TEST_F(ProgramTest, ABuildShowsHowFarItIs) {
  const std::string log = directory_ / "log";
  const auto stage = [&](const std::string& command) {
    const std::string err = directory_ / "stage.err";
    const int status = std::system(("bash -c 'source " CONVLAB_SETUP "; log=" + log + "; " +
                                    "stage building " + command + "' 2>" + err)
                                       .c_str());
    return std::pair(WEXITSTATUS(status), read_file(err));
  };
  write_file(directory_ / "build.sh",
             "for i in $(seq 200); do echo \"[$i/200] step $i\"; done; exit $1");
  const std::string script = "bash " + (directory_ / "build.sh").string();
  const auto [fine, said] = stage(script + " 0");
  EXPECT_EQ(fine, 0);
  EXPECT_TRUE(said.starts_with("convlab: building; log: " + log + "\nconvlab: 20 of 200\n"))
      << said;
  EXPECT_TRUE(said.ends_with("convlab: 200 of 200\n")) << said;
  EXPECT_EQ(lines(said), 11) << said;
  EXPECT_TRUE(contains(read_file(log), "[123/200] step 123\n"));
  const auto [failed, told] = stage(script + " 7");
  EXPECT_EQ(failed, 1);
  EXPECT_TRUE(contains(told, "failed after")) << told;
  EXPECT_TRUE(told.ends_with("[200/200] step 200\n")) << told;
}

// A program for sm_80 and sm_90 with PTX of the latter, by a cuobjdump that says so.
TEST_F(ProgramTest, APackageWithoutKernelsForACardIsFound) {
  const std::filesystem::path tool = directory_ / "cuobjdump";
  write_file(tool,
             "#!/bin/sh\n"
             "case $1 in --list-elf) echo 'ELF file 1: a.sm_80.cubin'; echo 'ELF file 2: "
             "a.sm_90.cubin' ;; *) echo 'PTX file 1: a.sm_90.ptx' ;; esac\n");
  std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  const auto check = [&](const std::string& architectures) {
    return Program(directory_,
                   {"cmake", "-DPROGRAMS=a", "-DARCHITECTURES=" + architectures,
                    "-DCUOBJDUMP=" + tool.string(), "-P",
                    std::filesystem::path(CONVLAB_SETUP).replace_filename("check_images.cmake")},
                   {}, "/usr/bin/env")
        .wait();
  };
  EXPECT_EQ(check("80-real;90").exit_code, 0) << check("80-real;90").err;
  EXPECT_EQ(check("native").exit_code, 0);
  for (const auto& [architectures, says] :
       {std::pair("80-real;86-real;90", "has no kernels for sm_86"),
        {"80-real;100-virtual", "has no PTX of sm_100"}}) {
    const Ran ran = check(architectures);
    EXPECT_NE(ran.exit_code, 0) << architectures;
    EXPECT_TRUE(contains(ran.err, says)) << ran.err;
  }
}

TEST_F(ProgramTest, FewerThreadsThanAskedForAreObeyedOrRefused) {
  const Words check{"check", tiny, "--pass", "fwd"};
  for (const char* limit : {"OMP_THREAD_LIMIT=1", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_DYNAMIC=true"}) {
    const std::string text = limit;
    const std::map<std::string, std::string> environment{
        {text.substr(0, text.find('=')), text.substr(text.find('=') + 1)}};
    const Ran obeyed = run(check, environment);
    EXPECT_EQ(obeyed.exit_code, 0) << limit << obeyed.out << obeyed.err;
    const Ran asked = run(check + Words{"--threads", "3"}, environment);
    if (text.starts_with("OMP_DYNAMIC")) {
      EXPECT_EQ(asked.exit_code, 0) << asked.out << asked.err;
    } else {
      EXPECT_EQ(asked.exit_code, 3) << limit << asked.out << asked.err;
      EXPECT_EQ(lines(asked.err), 1) << asked.err;
      EXPECT_TRUE(contains(asked.err, "OpenMP gives 1: OMP_")) << asked.err;
    }
  }
}

TEST_F(ProgramTest, TrainingIsTheSameWithFewerThreads) {
  // Without a plan each run chooses layouts and algorithms by the ceilings that it measures.
  const std::string plan = directory_ / "plan.json";
  const Ran planned = run(
      {"plan", "lenet", "--batch", "16", "--threads", "1", "--format", "json", "--output", plan});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  // Up to the training's top-1: how to test is chosen by each run, and the last columns are times.
  const auto losses = [&](const std::vector<std::string>& threads,
                          const std::map<std::string, std::string>& environment) {
    const std::filesystem::path log = directory_ / "losses.csv";
    std::filesystem::remove(log);
    std::vector<std::string> arguments{"train", "lenet",  "--data", "synthetic:64", "--epochs",
                                       "1",     "--plan", plan,     "--log",        log.string()};
    arguments.insert(arguments.end(), threads.begin(), threads.end());
    const Ran ran = run(arguments, environment);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::ifstream file(log);
    std::string header, line;
    std::getline(file, header);
    std::getline(file, line);
    EXPECT_TRUE(header.starts_with("epoch,rate,loss,top1,")) << header;
    std::size_t end = 0;
    for (int column = 0; column < 4; ++column) end = line.find(',', end) + 1;
    return line.substr(0, end);
  };
  const std::string one = losses({"--threads", "1"}, {});
  EXPECT_TRUE(contains(one, "1,")) << one;
  EXPECT_EQ(losses({}, {{"OMP_THREAD_LIMIT", "1"}}), one);
}

TEST_F(ProgramTest, StacksTooSmallForThreadsAreRefused) {
  const Ran ran = run({"check", tiny, "--pass", "fwd", "--threads", "2", "--algos", "direct"},
                      {{"OMP_STACKSIZE", "16k"}});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_EQ(lines(ran.err), 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "OMP_STACKSIZE=2M")) << ran.err;
}

TEST_F(ProgramTest, ProcessorsThatAreNotThereAreRefused) {
  if (CONVLAB_SANITIZED)
    GTEST_SKIP() << "LLVM's OpenMP, under its sanitizers, ignores such processors";
  const std::string none = std::to_string(sysconf(_SC_NPROCESSORS_CONF));
  const Ran ran = run({"list", tiny, "--threads", "2"}, {{"GOMP_CPU_AFFINITY", none}});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_EQ(lines(ran.err), 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "GOMP_CPU_AFFINITY")) << ran.err;
}

// OpenBLAS retries for ever when it gets no memory, even before main.
TEST_F(ProgramTest, MemoryLimitsEndInOneLine) {
  if (CONVLAB_SANITIZED) GTEST_SKIP() << "a sanitizer takes terabytes of addresses";
  for (const int megabytes : {1200, 1400, 1600, 1800, 2000}) {
    const Ran ran =
        Program(directory_,
                {"-c", "ulimit -v " + std::to_string(megabytes << 10) + "; exec \"$0\" \"$@\"",
                 CONVLAB_PROGRAM, "check", tiny, "--threads", "2"},
                {}, "/bin/sh")
            .wait();
    EXPECT_TRUE(ran.exit_code == 0 || ran.exit_code == 3) << megabytes << ran.exit_code << ran.err;
    if (ran.exit_code == 3) {
      EXPECT_EQ(lines(ran.err), 1) << megabytes << ran.err;
    }
  }
}

TEST_F(ProgramTest, WithoutAHomeOnlyVerbsThatNeedAStoreRefuse) {
  const std::map<std::string, std::string> homeless{
      {"HOME", ""}, {"XDG_CACHE_HOME", ""}, {"CONVLAB_DB", ""}};
  for (const Words& verb : {Words{"doctor"}, Words{"plan", "lenet"},
                            Words{"time", "lenet", "--forward-only", "--iterations", "1"}}) {
    const Ran ran = run(verb, homeless);
    EXPECT_FALSE(contains(ran.err, "no place for the tuning store")) << ran.err;
    EXPECT_LE(ran.exit_code, 1) << verb.front() << ran.err;
  }
  const Ran tuned = run({"tune", tiny, "--pass", "fwd", "--threads", "1"}, homeless);
  EXPECT_EQ(tuned.exit_code, 3) << tuned.err;
  EXPECT_EQ(lines(tuned.err), 1) << tuned.err;
}

}  // namespace
}  // namespace convlab
