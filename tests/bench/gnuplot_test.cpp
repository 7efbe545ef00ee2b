#include "bench/reports/gnuplot.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "conv/error.h"

namespace convlab {
namespace {

TEST(Gnuplot, DrawsWhatTheScriptSays) {
  const std::optional<std::string> svg =
      gnuplot("set terminal svg noenhanced\nset title " + gnuplot_quoted("it's a title") +
              "\n$data << EOD\n1 2\n2 3\nEOD\nplot $data with lines\n");
  if (!svg) GTEST_SKIP() << no_gnuplot;
  EXPECT_NE(svg->find("<svg"), std::string::npos);
  EXPECT_NE(svg->find("it's a title"), std::string::npos) << *svg;
}

TEST(Gnuplot, AFailingScriptSaysWhy) {
  try {
    if (!gnuplot("set terminal dumb\nplot nothing_of_that_name\n")) GTEST_SKIP() << no_gnuplot;
    FAIL() << "an undefined variable was drawn";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("undefined variable"), std::string::npos)
        << error.what();
  }
}

TEST(Gnuplot, WithoutItThereIsNoChart) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const std::optional<std::string> none = gnuplot("set terminal dumb\nplot 1\n");
  setenv("PATH", path.c_str(), 1);
  EXPECT_FALSE(none);
}

}  // namespace
}  // namespace convlab
