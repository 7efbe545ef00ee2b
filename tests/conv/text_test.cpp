// Text from outside: UTF-8 validation and safe printing on a terminal.
#include "conv/text/text.h"

#include <gtest/gtest.h>

#include "conv/error.h"
#include "conv/text/names.h"
#include "conv/text/text_file.h"

namespace convlab {
namespace {

TEST(Names, SuggestsWhatIsNear) {
  const std::vector<std::string> flags{"--batch", "--algos", "--workspace-max"};
  EXPECT_EQ(did_you_mean("--bacth", flags), "did you mean --batch?");
  // Two characters swapped are one edit, and these are two.
  EXPECT_EQ(did_you_mean("--bacth", {"--math", "--batch"}), "did you mean --batch?");
  EXPECT_EQ(did_you_mean("--work-space_Max", flags), "did you mean --workspace-max?");
  for (const char* const far : {"--nosuch", "--foo", "--algorithms", "-n", ""})
    EXPECT_EQ(did_you_mean(far, flags), "expected one of --batch --algos --workspace-max") << far;
}

TEST(Text, KnowsUtf8) {
  for (const char* good : {"", "cat", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\xb1", "a\nb"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad :
       {"caf\xe9", "\x80", "\xc3", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf",
        "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xc3(b"})
    EXPECT_FALSE(is_utf8(bad) || is_plain(bad)) << printable(bad);
}

TEST(Text, PrintsNothingThatATerminalObeys) {
  EXPECT_EQ(printable("caf\xc3\xa9 \xf0\x9f\x90\xb1"), "caf\xc3\xa9 \xf0\x9f\x90\xb1");
  EXPECT_EQ(printable("\x1b[2Jx"), "\\x1b[2Jx");
  EXPECT_EQ(printable("a\nb\tc\x7f"), "a\\x0ab\\x09c\\x7f");
  EXPECT_EQ(printable_lines("a\nb\tc\n"), "a\nb\\x09c\n");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // CSI, in UTF-8
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");  // line separator
  EXPECT_EQ(printable("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  for (const char* text : {"\x1b", "\n", "\xc2\x9b", "\xe2\x80\xa8"}) {
    EXPECT_TRUE(is_utf8(text));
    EXPECT_FALSE(is_plain(text));
    EXPECT_TRUE(is_plain(printable(text)));
  }
}

TEST(TextFile, WhatHasNoEndIsRefusedByName) {
  try {
    read_text_file("/dev/zero", "a list");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "cannot read '/dev/zero' (longer than 512 MiB): expected a list");
  }
}

}  // namespace
}  // namespace convlab
