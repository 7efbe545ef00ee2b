#include "autotune/measure/clocks.h"

#include <gtest/gtest.h>

namespace convlab {
namespace {

TEST(Clocks, AreReadFromNvidiaSmisLine) {
  const auto clocks = parse_clocks("1755, 1980, 2619, 41, 310.25, 0x0000000000000024\n");
  ASSERT_TRUE(clocks);
  EXPECT_EQ(to_text(*clocks), "1755 of 1980 MHz, memory 2619 MHz, 41 C, 310 W");
  EXPECT_EQ(throttle_text(clocks->reasons), "power cap, heat");
  EXPECT_EQ(parse_clocks("210, 1980, 2619, [N/A], [N/A], 0x1")->watts, 0);
  for (const char* line : {"", "No devices were found\n", "1, 2, 3",
                           "Field \"clocks_event_reasons.active\" is not a valid field to query.",
                           "[N/A], [N/A], [N/A], [N/A], [N/A], [N/A]"})
    EXPECT_FALSE(parse_clocks(line)) << line;
}

TEST(Clocks, AnIdleCardIsNotThrottled) {
  EXPECT_EQ(throttle_text(0), "");
  EXPECT_EQ(throttle_text(0x1), "");
  EXPECT_EQ(throttle_text(0x40), "heat (hardware)");
}

TEST(Clocks, OfTheCpuAreNotAsked) {
  ClockWatch watch{DeviceInfo{}};
  watch.look();
  EXPECT_TRUE(watch.fields().empty());
}

}  // namespace
}  // namespace convlab
