#include "bench/text.h"

#include <gtest/gtest.h>

#include "tests/bench/program/run_program.h"

namespace convlab {
namespace {

TEST(Text, AShellTakesAWordAsItWas) {
  EXPECT_EQ(shell_word("resnet18"), "resnet18");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word(""), "''");
  const TemporaryDirectory directory;
  for (const std::string word :
       {"it's", "$HOME `ls` \"\" \\ !", "two\nlines", "it's\ttwo\n\\lines\x1b[31m", "caf\xe9"}) {
    EXPECT_EQ(shell_word(word).find('\n'), std::string::npos) << word;
    const Ran ran =
        Program(directory, {"-c", "printf %s " + shell_word(word)}, {}, "/bin/bash").wait();
    EXPECT_EQ(ran.out, word) << shell_word(word);
  }
}

}  // namespace
}  // namespace convlab
