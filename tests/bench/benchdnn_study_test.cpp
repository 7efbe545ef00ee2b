// bench/studies/study.py benchdnn on lists and a program of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/bench/study_test.h"

namespace convlab {
namespace {

// The program passes, fails or refuses a problem by a part of its text, and is killed on one.
class BenchdnnStudyTest : public StudyTest {
 protected:
  void SetUp() override {
    StudyTest::SetUp();
    plots_.clear();
    std::filesystem::create_directories(lists_ / "conv");
    std::filesystem::create_directories(lists_ / "deconv");
    write_script(program_, fmt::format(R"(echo "$@" >>'{}'
case "$*" in *ic4*) echo 'convlab: oc 7 is not a multiple of g 2' >&2; exit 2;; *ic5*) kill -9 $$;; esac
echo '{{"provenance": {{"cpu": "some", "date": "today"}}, "rows": ['
code=0 comma=
for word in "$@"; do
  case $word in
    *ic*) result=PASSED; case $word in *ic3*) result=FAILED code=1;; esac
      echo "$comma {{\"layer\": \"$word\", \"pass\": \"fwd\", \"algo\": \"direct\","
      echo "\"config\": \"\", \"layouts\": \"nchw\", \"result\": \"$result\", \"reason\": \"\","
      echo "\"rel_error\": 2, \"repeat\": \"convlab check $word\"}}"
      comma=,;;
  esac
done
echo ']}}'
exit $code
)",
                                       calls_));
  }
  std::ptrdiff_t calls() const {
    const std::string called = read_file(calls_);
    return std::count(called.begin(), called.end(), '\n');
  }
  std::filesystem::path lists_ = directory_ / "lists";
  std::string program_ = directory_ / "convlab", calls_ = directory_ / "calls";
  Words arguments() const {
    return {"benchdnn", "--log", log(), "--convlab", program_, "--lists", lists_};
  }
};

// 1'152 FLOPs a filter of the first; the limit lets the second pass and not the third, which is
// larger by its depth, its batch being 1 here.
TEST_F(BenchdnnStudyTest, TakesEachProblemBelowTheLimitOnce) {
  write_file(lists_ / "conv/shapes",
             "# a comment: ic1ih1oc1kh1\n--reset --mb=2\n"
             "mb2ic1ih8oc1kh3ph1n\"one\" mb7_ic1ih8oc1kh3ph1_n\"the same\"\n"
             "--dir=FWD_B --attr-post-ops=     ic1iw100oc2kw3pw1nrow\n"
             "mb1ic1id8oc1kd3pd1n\"cube\"\n"
             "  add:f32:per_oc+dw:k3s1p1, \\\n");
  write_file(lists_ / "deconv/shapes", "mb1ic1ih8oc1kh3\n");
  write_file(lists_ / "conv/deeper", "mb1ic1ih8oc1kh3ph1dh0\n");
  const Ran ran = run(arguments() + Words{"--flops", "2000"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  expect(ran.out,
         "6 problems in the lists, 5 of them different at batch 1; 1 take more than "
         "2e+03 FLOPs, 4 were taken. So far 4 were checked and 0 refused.");
  expect(ran.out, "| 1-D | 1 | 1 | 1 | 0 | 0 |");
  expect(ran.out, "| 2-D | 2 | 2 | 2 | 0 | 0 |");
  expect(ran.out, "| 3-D | 0 | 0 | 0 | 0 | 0 |");
  expect(ran.out, "| 2-D transposed | 1 | 1 | 1 | 0 | 0 |");
  EXPECT_EQ(calls(), 1);
  expect(read_file(calls_), "deconv:mb1ic1ih8oc1kh3");
  EXPECT_EQ(run(arguments() + Words{"--flops", "2000"}).out, ran.out);
  EXPECT_EQ(calls(), 1);
}

// A process that ends before its time costs each of its problems a process.
TEST_F(BenchdnnStudyTest, NamesFailuresRefusalsAndCrashes) {
  write_file(lists_ / "conv/shapes", "ic2ih8oc1kh3\nic3ih8oc1kh3\ng2ic4ih8oc7kh3\nic5ih8oc1kh3\n");
  const Ran ran = run(arguments());
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_EQ(calls(), 5);
  expect(ran.out, "So far 2 were checked and 1 refused.");
  expect(ran.out, "| 2-D | 4 | 2 | 1 | 1 | 0 |");
  expect(ran.out, "| 1 | oc N is not a multiple of g N | g2mb1ic4ih8oc7kh3 |");
  expect(ran.out, "- direct  nchw: 2: `convlab check mb1ic3ih8oc1kh3`");
  expect(ran.out, "Crashes:\n\n- mb1ic5ih8oc1kh3: exit -9: no message");
  EXPECT_TRUE(ran.err.ends_with("study.py: failed: 1 failures; 1 crashes\n")) << ran.err;
  run(arguments());
  EXPECT_EQ(calls(), 5);
}

TEST_F(BenchdnnStudyTest, BadUsageIsOneLine) {
  const Ran none = run({"benchdnn", "--log", log()});
  EXPECT_EQ(none.exit_code, 2);
  expect(none.err, "study.py: benchdnn: --lists is missing");
  const Ran empty = run(arguments());
  EXPECT_EQ(empty.exit_code, 2);
  expect(empty.err, "no problems in folders named conv or deconv");
  const Ran many = run(arguments() + Words{"--flops", "0"});
  EXPECT_EQ(many.exit_code, 2);
  expect(many.err, "expected a number above 0");
}

}  // namespace
}  // namespace convlab
