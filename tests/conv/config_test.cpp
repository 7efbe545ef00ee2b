#include "conv/config.h"

#include <gtest/gtest.h>

#include "conv/error.h"

namespace convlab {
namespace {

TEST(Config, RoundTripsThroughText) {
  for (const char* text : {"", "tile=4", "tile=4,rows=14", "z=-1,a=9223372036854775807"})
    EXPECT_EQ(Config::parse(text).text(), text);
}

TEST(Config, KeepsOrderAndReplacesInPlace) {
  Config config{{"tile", 4}, {"rows", 14}};
  config.set("tile", 6);
  EXPECT_EQ(config.text(), "tile=6,rows=14");
  EXPECT_EQ(config.get("tile"), 6);
  EXPECT_FALSE(config.has("block"));
  EXPECT_THROW(config.get("block"), InputError);
}

TEST(Config, RefusesMalformedText) {
  for (const char* text : {"tile", "tile=", "=4", "tile=4,", ",tile=4", "tile=4x", "tile=4,tile=5",
                           "tile=99999999999999999999"})
    EXPECT_THROW(Config::parse(text), InputError) << text;
}

TEST(Config, TakesOnlyNamesThatItsTextCanHold) {
  Config config;
  for (const char* name : {"", "a=b", "a,b"}) EXPECT_THROW(config.set(name, 1), InputError) << name;
}

}  // namespace
}  // namespace convlab
