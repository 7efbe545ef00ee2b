#include "conv/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>

#include "conv/error.h"
#include "conv/types/math_type.h"

namespace convlab {
namespace {

TEST(Config, RoundTripsThroughText) {
  for (const char* text : {"", "tile=4", "tile=4,rows=14", "schedule=own,tile=4", "math=tf32x3",
                           "z=-1,a=9223372036854775807"})
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

TEST(Config, NamesOneOfSeveralChoices) {
  enum class Schedule { own, shared };
  constexpr std::array<std::string_view, 2> names{"own", "shared"};
  const Config config = Config::parse("tile=4,schedule=shared");
  EXPECT_EQ(config, (Config{{"tile", 4}, {"schedule", "shared"}}));
  EXPECT_EQ(config.choice("schedule"), "shared");
  EXPECT_EQ(config.choice<Schedule>("schedule", names), Schedule::shared);
  EXPECT_THROW(config.get("schedule"), InputError);
  EXPECT_THROW(config.choice("tile"), InputError);
  EXPECT_THROW(config.choice("block"), InputError);
  try {
    Config::parse("schedule=shard").choice<Schedule>("schedule", names);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "unknown schedule 'shard': expected one of own, shared");
  }
}

TEST(Config, RefusesMalformedText) {
  for (const char* text : {"tile", "tile=", "=4", "tile=4,", ",tile=4", "tile=4x", "tile=x-y",
                           "tile=X", "tile=4,tile=5", "tile=99999999999999999999"})
    EXPECT_THROW(Config::parse(text), InputError) << text;
}

TEST(Config, RefusesASpellingThatItWouldNotPrint) {
  for (const auto& [text, printed] : {std::pair("tile=02", "tile=2"), std::pair("z=-0", "z=0"),
                                      std::pair("a=1,tile=-007", "a=1,tile=-7")})
    try {
      Config::parse(text);
      ADD_FAILURE() << text;
    } catch (const InputError& e) {
      EXPECT_EQ(e.what(), fmt::format("malformed config '{}': expected '{}'", text, printed));
    }
}

TEST(Config, TakesOnlyNamesThatItsTextCanHold) {
  Config config;
  for (const char* name : {"", "a=b", "a,b"}) EXPECT_THROW(config.set(name, 1), InputError) << name;
  for (const char* value : {"", "4x", "a=b", "a,b", "A"})
    EXPECT_THROW(config.set("schedule", value), InputError) << value;
}

TEST(Config, RefusesNamesThatItsReaderDoesNotKnow) {
  const auto reason = [](const Config& config, std::initializer_list<std::string_view> names) {
    try {
      config.require_only(names);
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const Config config{{"tile", 4}, {"stores", "nontemporal"}};
  EXPECT_EQ(reason({}, {}), "");
  EXPECT_EQ(reason({}, {"tile"}), "");
  EXPECT_EQ(reason(config, {"stores", "schedule", "tile"}), "");
  EXPECT_EQ(reason(config, {"tile", "schedule"}),
            "config 'tile=4,stores=nontemporal': unknown name 'stores': expected one of tile, "
            "schedule");
  EXPECT_EQ(reason(config, {}),
            "config 'tile=4,stores=nontemporal': unknown name 'tile': expected none");
}

// A math type is a named value of f32's configs; other types have no choice.
TEST(MathType, IsANamedValueOfF32Configs) {
  EXPECT_EQ(with_math({{"rank", 2}}, DType::f32, MathType::tf32).text(), "rank=2,math=tf32");
  EXPECT_EQ(with_math({{"rank", 2}}, DType::f16, MathType::f32).text(), "rank=2");
  EXPECT_EQ(math_type(Config{{"rank", 2}}), MathType::f32);
  for (const MathType math :
       {MathType::f32, MathType::tf32, MathType::tf32x3, MathType::bf16x3, MathType::bf16x6}) {
    const Config config = Config::parse(with_math({}, DType::f32, math).text());
    EXPECT_EQ(math_type(config), math);
    EXPECT_EQ(math_type(config, DType::f32, math_type_names), math);
  }
  EXPECT_EQ(math_type({}, DType::f64, math_type_names), MathType::f32);
  EXPECT_THROW(math_type({}, DType::f32, math_type_names), InputError);
  EXPECT_THROW(math_type({{"math", 1}}, DType::f32, math_type_names), InputError);
  EXPECT_THROW(math_type({{"math", "f32"}}, DType::f64, math_type_names), InputError);
  try {
    math_type({{"math", "tf32x3"}}, DType::f32, std::array<std::string_view, 2>{"f32", "tf32"});
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "unknown math 'tf32x3': expected one of f32, tf32");
  }
}

}  // namespace
}  // namespace convlab
