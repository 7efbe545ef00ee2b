#include "conv/problem.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "conv/error.h"
#include "conv/problem_text.h"

namespace convlab {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse_problem(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Pass, NamesRoundTrip) {
  for (Pass pass : all_passes) EXPECT_EQ(parse_pass(to_string(pass)), pass);
  EXPECT_THROW(parse_pass("forward"), InputError);
  EXPECT_THROW(parse_pass(""), InputError);
}

// ---- Valid texts ----

struct Accepted {
  const char* text;
  const char* canonical;
};

TEST(ParseProblem, FollowsTheRulesOfTheTextForm) {
  const Accepted cases[] = {
      {"mb16ic64ih56oc64oh56kh3ph1n\"layer1.0.conv1*4\"",
       "mb16ic64ih56oc64oh56kh3ph1n\"layer1.0.conv1*4\""},
      // Fields in any order, underscores anywhere between them, surrounding blanks.
      {" \tph1_kh3__oh56oc64_ih56ic64mb16\r\n", "mb16ic64ih56oc64oh56kh3ph1"},
      // mb defaults to 2. oh follows from ph, and ph from oh; without both there is no padding.
      {"ic8ih9oc4kh3ph1", "mb2ic8ih9oc4oh9kh3ph1"},
      {"ic8ih9oc4oh9kh3", "mb2ic8ih9oc4oh9kh3ph1"},
      {"ic8ih9oc4kh3", "mb2ic8ih9oc4oh7kh3ph0"},
      {"ic3ih224oc64oh112kh7sh2", "mb2ic3ih224oc64oh112kh7sh2ph2"},
      // With an explicit ph beside oh, the rest of the padding is at the bottom.
      {"ic3ih224oc64oh112kh7sh2ph3", "mb2ic3ih224oc64oh112kh7sh2ph3"},
      {"ic3ih224oc64oh113kh7sh2ph2", "mb2ic3ih224oc64oh113kh7sh2ph2"},
      // dh counts the gaps.
      {"ic8ih9oc4kh3dh0", "mb2ic8ih9oc4oh7kh3ph0"},
      {"ic8ih9oc4kh3dh1ph2", "mb2ic8ih9oc4oh9kh3ph2dh1"},
      {"g1ic8ih9oc4kh3", "mb2ic8ih9oc4oh7kh3ph0"},
      {"g4mb1ic8ih9oc4kh3", "g4mb1ic8ih9oc4oh7kh3ph0"},
      // Widths; each omitted one equals its height.
      {"mb1ic8ih9iw9oc4oh7ow7kh3kw3sh1sw1ph0pw0dh0dw0", "mb1ic8ih9oc4oh7kh3ph0"},
      {"mb1ic8ih9iw7oc4kh3ph1", "mb1ic8ih9iw7oc4oh9ow7kh3kw3ph1pw1"},
      {"mb1ic8ih9oc4kh3kw1ph1pw0", "mb1ic8ih9iw9oc4oh9ow9kh3kw1ph1pw0"},
      {"mb1ic8ih9oc4kh3sh2sw1ph1", "mb1ic8ih9iw9oc4oh5ow9kh3kw3sh2sw1ph1pw1"},
      {"mb1ic8ih9oc4kh3ph2pw1dh1dw0", "mb1ic8ih9iw9oc4oh9ow9kh3kw3ph2pw1dh1dw0"},
      {"mb1ic8ih9oc4kh3oh9ow7", "mb1ic8ih9iw9oc4oh9ow7kh3kw3ph1pw0"},
      // A square problem with asymmetric padding is asymmetric in both directions.
      {"mb1ic3ih224iw224oc64oh113kh7sh2ph2", "mb1ic3ih224oc64oh113kh7sh2ph2"},
      // Width alone: one row.
      {"mb1ic8iw9oc4kw3pw1", "mb1ic8ih1iw9oc4oh1ow9kh1kw3ph0pw1"},
      // A filter larger than its image, with padding; padding around a 1x1 filter.
      {"mb1ic1ih1oc1kh3ph1", "mb1ic1ih1oc1oh1kh3ph1"},
      {"mb1ic1ih4oc1kh1ph1", "mb1ic1ih4oc1oh6kh1ph1"},
      // Names: quotes may be missing, anything but a quote may be inside, the count is optional.
      {"mb1ic1ih4oc1kh1nconv1", "mb1ic1ih4oc1oh4kh1ph0n\"conv1\""},
      {"mb1ic1ih4oc1kh1nconv_1 b*12", "mb1ic1ih4oc1oh4kh1ph0n\"conv_1 b*12\""},
      {"mb1ic1ih4oc1kh1n\" a*b*1\"", "mb1ic1ih4oc1oh4kh1ph0n\" a*b\""},
      {"mb1ic1ih4oc1kh1n\"a*3*1\"", "mb1ic1ih4oc1oh4kh1ph0n\"a*3*1\""},
      {"mb1ic1ih4oc1kh1n\"a*\"", "mb1ic1ih4oc1oh4kh1ph0n\"a*\""},
      {"mb1ic1ih4oc1kh1n*7", "mb1ic1ih4oc1oh4kh1ph0n\"*7\""},
      {"mb1ic1ih4oc1kh1n", "mb1ic1ih4oc1oh4kh1ph0"},
      {"mb1ic1ih4oc1kh1n\"\"", "mb1ic1ih4oc1oh4kh1ph0"},
  };
  for (const Accepted& c : cases) {
    ASSERT_EQ(error_of(c.text), "accepted") << c.text;
    const NamedProblem parsed = parse_problem(c.text);
    EXPECT_EQ(to_text(parsed), c.canonical) << c.text;
    EXPECT_EQ(parse_problem(to_text(parsed)), parsed) << c.text;
  }
}

TEST(ParseProblem, FillsEveryField) {
  const NamedProblem parsed =
      parse_problem("g2mb3ic4ih20iw30oc6oh9ow14kh5kw4sh2sw3ph1pw6dh0dw2n\"a name*5\"");
  ConvProblem p;
  p.groups = 2, p.n = 3, p.c = 4, p.h = 20, p.w = 30, p.k = 6, p.p = 9, p.q = 14;
  p.r = 5, p.s = 4, p.stride_h = 2, p.stride_w = 3, p.pad_h = 1, p.pad_w = 6;
  p.dilation_h = 1, p.dilation_w = 3;
  EXPECT_EQ(parsed, (NamedProblem{p, "a name", 5}));
  EXPECT_EQ(p.pad_bottom(), 0);
  EXPECT_EQ(p.pad_right(), 13);
  EXPECT_FALSE(p.symmetric_padding());
}

// ---- Invalid texts ----

struct Refused {
  const char* text;
  std::size_t character;  // counted from 1
  const char* message;
};

TEST(ParseProblem, PointsAtTheOffendingCharacter) {
  const Refused cases[] = {
      {"", 1, "ic is missing; a problem looks like mb1ic64ih56oc64kh3ph1"},
      {"resnet18", 1,
       "expected a field (g mb ic ih iw oc oh ow kh kw sh sw ph pw dh dw) or n and a name"},
      {"ic3ih8oc4kh3 ph1", 13, "expected a field"},
      {"ic3ih8oc4kh3ph1.5", 16, "expected a field"},
      {"ic3ih8oc4kh3ph1x", 16, "expected a field"},
      {"IC3ih8oc4kh3", 1, "expected a field"},
      {"ic3id8ih8oc4kh3", 4, "depth field id: convolutions here have two spatial dimensions"},
      {"ic3ih8oc4od8kh3", 10, "depth field od"},
      {"ic3ih8oc4kh3kd1", 13, "depth field kd"},
      {"ic3ih8oc4kh3sd1", 13, "depth field sd"},
      {"ic3ih8oc4kh3pd0", 13, "depth field pd"},
      {"ic3ih8oc4kh3dd0", 13, "depth field dd"},
      {"ic3ih8ih9oc4kh3", 7, "ih is given twice"},
      {"ic", 3, "ic takes a whole number of at least 1"},
      {"mb0ic3ih8oc4kh3", 3, "mb takes a whole number of at least 1"},
      {"mb-1ic3ih8oc4kh3", 3, "mb takes a whole number of at least 1"},
      {"g0ic3ih8oc4kh3", 2, "g takes a whole number of at least 1"},
      {"ic3ih0oc4kh3", 6, "ih takes a whole number of at least 1"},
      {"ic3ih8oc4oh0kh3", 12, "oh takes a whole number of at least 1"},
      {"ic3ih8oc4kh3sh0", 15, "sh takes a whole number of at least 1"},
      {"ic3ih8oc4kh3ph-1", 15, "ph takes a whole number of at least 0"},
      {"ic3ih8oc4kh3dhx", 15, "dh takes a whole number of at least 0"},
      {"ic3ih_8oc4kh3", 6, "ih takes a whole number of at least 1"},
      {"ic99999999999999999999ih8oc4kh3", 3, "ic is more than 2^60"},
      {"ic1152921504606846977ih8oc4kh3", 3, "ic is more than 2^60"},
      {"ih8oc4kh3", 10, "ic is missing"},
      {"ic3ih8kh3", 10, "oc is missing"},
      {"ic3oc4", 7, "ih is missing"},
      {"ic3oc4n2ih8kh3", 15,
       "ih is missing; a problem looks like mb1ic64ih56oc64kh3ph1: n begins the layer's name"},
      {"ic3oc4kh3", 10, "ih is missing"},
      {"ic3oc4ih8", 10, "kh is missing"},
      {"ic3oc4iw8kw3ph1", 16, "ih is missing"},
      {"ic3oc4iw8", 10, "kw is missing"},
      // Fields that contradict each other.
      {"g3ic4ih8oc6kh3", 3, "ic 4 is not a multiple of g 3"},
      {"g3ic6ih8oc4kh3", 9, "oc 4 is not a multiple of g 3"},
      {"ic3ih5oc4kh7", 4,
       "oh would be below 1: a filter that spans 7 does not fit into ih 5 with padding 0"},
      {"ic3ih5oc4kh3dh2", 4, "oh would be below 1: a filter that spans 7"},
      {"ic3ih5iw2oc4kh3", 7, "ow would be below 1: a filter that spans 3 does not fit into iw 2"},
      {"ic3ih8oc4kh3oh5ph0", 13,
       "oh 5 is too small for ih 8, padding 0, a filter that spans 3 and stride 1: it is at least "
       "6"},
      {"ic3ih8oc4kh3ow5pw0", 13, "ow 5 is too small for iw 8"},
      {"ic3ih9oc4kh3oh3ph0sh2", 13,
       "oh 3 is too small for ih 9, padding 0, a filter that spans 3 and stride 2: it is at least "
       "4"},
      {"ic16ih224oc8oh448kh2sh2", 13,
       "oh 448 takes padding of 336, more than the filter's 2: a tran"},
      {"ic16ih224oc8oh448kh2sh2ph0", 13, "oh 448 takes padding of 672, more than the filter's 2"},
      {"ic3ih8oc4kh3oh3", 13, "oh 3 leaves part of ih 8 unread: ph can only be derived from a "},
      // Sizes beyond 64 bits, each named.
      {"ic1000000ih1000000iw1000000oc1kh1", 1, "tensor x takes 2^62 bytes or more"},
      {"ic1ih1000000oc1000000kh1mb1000000", 13, "tensor y takes 2^62 bytes or more"},
      {"ic1000000000ih1oc1000000000kh1mb1kw2pw1", 28, "tensor w takes 2^62 bytes or more"},
      {"ic1ih1oc1kh1152921504606846976dh1152921504606846975", 4, "oh would be below 1"},
      {"ic1ih1oc1kh1oh1152921504606846976sh1152921504606846976ph0", 13,
       "positions overflow 64 bits"},
      // Names.
      {"ic3ih8oc4kh3n\"ab", 14, "the name's quote is not closed at the end of the text"},
      {"ic3ih8oc4kh3n\"", 14, "the name's quote is not closed"},
      {"ic3ih8oc4kh3n\"ab\"*4", 14, "the name's quote is not closed"},
      {"ic3ih8oc4kh3na\"b", 15, "a name holds no quotes"},
      {"ic3ih8oc4kh3n\"a*0\"", 17, "the count after '*' takes a whole number of at least 1"},
      {"ic3ih8oc4kh3na*99999999999999999999", 16, "the count after '*' is more than 2^60"},
  };
  for (const Refused& c : cases) {
    const std::string text = c.text;
    const std::string expected = "malformed problem '" + text + "' at character " +
                                 std::to_string(c.character) + ": " + c.message;
    EXPECT_EQ(error_of(text).substr(0, expected.size()), expected);
  }
}

TEST(ParseProblem, QuotesOnlyWhatIsNearInALongText) {
  const std::string text = "ic3" + std::string(1000, '_') + "\x01" + std::string(1000, '_');
  const std::string expected = "malformed problem '..." + std::string(60, '_') + "?" +
                               std::string(29, '_') + "...' at character 1004: ";
  EXPECT_EQ(error_of(text).substr(0, expected.size()), expected);
}

// ---- Random problems and random damage ----

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(engine_() % std::uint64_t(most - least + 1));
  }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

// Any filter, stride and padding, with the far padding anywhere from -(stride - 1) to well beyond
// the filter.
ConvProblem random_problem(Random& random) {
  ConvProblem p;
  p.groups = random.one_in(3) ? random.between(1, 8) : 1;
  p.n = random.between(1, 70);
  p.c = p.groups * random.between(1, 70);
  p.k = p.groups * random.between(1, 70);
  auto direction = [&](auto& size, auto& filter, auto& out, auto& stride, auto& pad,
                       auto& dilation) {
    filter = random.between(1, 7);
    stride = random.between(1, 4);
    dilation = random.one_in(3) ? random.between(1, 3) : 1;
    pad = random.between(0, 5);
    const std::int64_t dilated = (filter - 1) * dilation + 1;
    do {
      size = random.between(1, 40);
      const std::int64_t far =
          random.between(0, std::min<std::int64_t>(8, std::max(size, pad + dilated)));
      out = (size + pad + far - dilated) / stride + 1;
    } while (size + pad < dilated || out < 1);
  };
  direction(p.h, p.r, p.p, p.stride_h, p.pad_h, p.dilation_h);
  if (random.one_in(3)) {
    p.w = p.h, p.s = p.r, p.q = p.p;
    p.stride_w = p.stride_h, p.pad_w = p.pad_h, p.dilation_w = p.dilation_h;
  } else {
    direction(p.w, p.s, p.q, p.stride_w, p.pad_w, p.dilation_w);
  }
  return p;
}

TEST(ParseProblem, RoundTripsRandomProblems) {
  Random random(1);
  const std::string alphabet = "abn_*019 ./#";
  bool negative_far_padding = false, wider_far_padding = false;
  for (int i = 0; i < 20000; ++i) {
    NamedProblem named{random_problem(random), "", random.one_in(2) ? random.between(1, 99) : 1};
    for (std::int64_t length = random.between(0, 8); length > 0; --length)
      named.name += alphabet[std::size_t(random.between(0, std::ssize(alphabet) - 1))];
    const std::string text = to_text(named);
    ASSERT_EQ(error_of(text), "accepted");
    ASSERT_EQ(parse_problem(text), named) << text;
    ASSERT_EQ(to_text(parse_problem(text)), text);
    ASSERT_NO_THROW(validate(named.problem)) << text;
    negative_far_padding |= named.problem.pad_bottom() < 0;
    wider_far_padding |= named.problem.pad_bottom() > named.problem.pad_h;
  }
  EXPECT_TRUE(negative_far_padding && wider_far_padding);
}

TEST(ParseProblem, TextTellsSizesApartAndNothingElse) {
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    ConvProblem p = random_problem(random);
    ConvProblem same = p;
    same.pass = Pass::backward_data, same.dtype = DType::f64, same.x_layout = Layout::nhwc;
    EXPECT_EQ(to_text(same), to_text(p));
    // Every size counts.
    for (std::int64_t ConvProblem::*size :
         {&ConvProblem::n, &ConvProblem::c, &ConvProblem::h, &ConvProblem::w, &ConvProblem::k,
          &ConvProblem::r, &ConvProblem::s, &ConvProblem::p, &ConvProblem::q,
          &ConvProblem::stride_h, &ConvProblem::stride_w, &ConvProblem::pad_h, &ConvProblem::pad_w,
          &ConvProblem::dilation_h, &ConvProblem::dilation_w, &ConvProblem::groups}) {
      ConvProblem other = p;
      ++(other.*size);
      ASSERT_NE(to_text(other), to_text(p));
    }
  }
}

TEST(ParseProblem, SurvivesRandomDamage) {
  Random random(3);
  const std::string alphabet = "0123456789gmbicoikhwspdn_*\"- \t\n#\xff";
  auto letter = [&] { return alphabet[std::size_t(random.between(0, std::ssize(alphabet) - 1))]; };
  int accepted = 0, refused = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string text = to_text(NamedProblem{random_problem(random), "conv1", random.between(1, 9)});
    for (std::int64_t damage = random.between(1, 4); damage > 0; --damage) {
      const auto at = std::size_t(random.between(0, std::ssize(text)));
      const auto length = std::size_t(random.between(1, 6));
      switch (random.between(0, 3)) {
        case 0:
          text.insert(at, 1, letter());
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          if (at < text.size()) text[at] = letter();
          break;
        case 3:
          text.insert(std::size_t(random.between(0, std::ssize(text))), text.substr(at, length));
          break;
      }
    }
    try {
      const NamedProblem parsed = parse_problem(text);
      ++accepted;
      ASSERT_NO_THROW(validate(parsed.problem)) << text;
      ASSERT_EQ(parse_problem(to_text(parsed)), parsed) << text;
    } catch (const InputError& error) {
      ++refused;
      ASSERT_EQ(std::string(error.what()).rfind("malformed problem '", 0), 0u);
    }
  }
  // The damage is neither harmless nor always fatal.
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}

// ---- validate ----

TEST(Validate, NamesTheFieldOfAnImpossibleProblem) {
  const ConvProblem good = parse_problem("mb2g2ic4ih9oc6kh3ph1").problem;
  ASSERT_NO_THROW(validate(good));
  auto refusal = [&](auto change) -> std::string {
    ConvProblem p = good;
    change(p);
    try {
      validate(p);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  using P = ConvProblem;
  EXPECT_EQ(refusal([](P& p) { p.n = 0; }), "impossible problem: mb is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.k = -6; }), "impossible problem: oc is -6: it takes 1 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.groups = 0; }), "impossible problem: g is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.p = 0; }), "impossible problem: oh is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.pad_w = -1; }),
            "impossible problem: pw is -1: it takes 0 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.stride_w = 0; }),
            "impossible problem: sw is 0: it takes 1 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.dilation_h = 0; }),
            "impossible problem: dh is -1: it takes 0 to 2^60");
  EXPECT_EQ(refusal([](P& p) { p.c = 5; }), "impossible problem: ic 5 is not a multiple of g 2");
  EXPECT_EQ(refusal([](P& p) { p.k = 5; }), "impossible problem: oc 5 is not a multiple of g 2");
  EXPECT_EQ(refusal([](P& p) { p.q = 7; }),
            "impossible problem: ow 7 is too small for iw 9, padding 1, a filter that spans 3 and "
            "stride 1: it is at least 8");
  EXPECT_EQ(refusal([](P& p) { p.q = 8; }), "accepted");
  EXPECT_EQ(refusal([](P& p) { p.q = 17; }), "accepted");
  EXPECT_EQ(refusal([](P& p) { p.q = 18; }),
            "impossible problem: ow 18 takes padding of 10, more than the filter's 3: a transposed "
            "layer is written as its mirror in pass bwd_d, ic and oc swapped, ih and oh too");
  EXPECT_EQ(refusal([](P& p) { p.pad_w = 20, p.q = 47; }), "accepted");
  EXPECT_EQ(refusal([](P& p) { p.pass = Pass::backward_data, p.epilogue.relu = true; }),
            "impossible problem: an epilogue belongs to pass fwd, not bwd_d");
  EXPECT_EQ(refusal([](P& p) { p.accumulate = p.epilogue.bias = true; }),
            "impossible problem: an epilogue and accumulating into the output exclude each other");
}

TEST(Validate, CountsBytesWithElementTypeAndPadding) {
  ConvProblem p;
  p.n = std::int64_t{1} << 59;
  ASSERT_NO_THROW(validate(p));  // 2^61 bytes of f32
  p.dtype = DType::f64;
  EXPECT_THROW(validate(p), InputError);  // 2^62
  p.dtype = DType::f16;
  ASSERT_NO_THROW(validate(p));
  p.y_layout = Layout::nchw16c;  // sixteen lanes for one channel
  EXPECT_THROW(validate(p), InputError);
}

TEST(ParseProblem, SaysThatMbIsMissing) {
  std::vector<std::string> warnings;
  parse_problem("mb1ic3ih8oc4kh3", warnings);
  EXPECT_EQ(warnings, std::vector<std::string>());
  EXPECT_EQ(parse_problem(" ic3ih8oc4kh3", warnings).problem.n, 2);
  EXPECT_EQ(warnings,
            std::vector<std::string>{"ic3ih8oc4kh3: no mb: a batch of 2, as in benchdnn"});
}

// ---- Files ----

class ProblemFile : public testing::Test {
 protected:
  ProblemFile()
      : path_((std::filesystem::temp_directory_path() /
               ("convlab_problem_test_" + std::to_string(std::random_device{}())))
                  .string()) {}
  ~ProblemFile() override { std::filesystem::remove_all(path_); }
  void write(std::string_view text) { std::ofstream(path_, std::ios::binary) << text; }
  std::string error() {
    try {
      read_problem_file(path_);
    } catch (const InputError& e) {
      return e.what();
    }
    return "accepted";
  }

  std::string path_;
};

TEST_F(ProblemFile, SkipsCommentsAndWarnsOfOptions) {
  write(
      "# a list\n\n--dir=FWD_B\nic3ih8oc4kh3n\"a # b*2\"  # behind a problem\r\n\t--mb=4\n"
      "   ic4ih8oc4kh1#not a comment\n");
  EXPECT_EQ(error(), path_ +
                         ":6: malformed problem 'ic4ih8oc4kh1#not a comment' at character 13: "
                         "expected a field (g mb ic ih iw oc oh ow kh kw sh sw ph pw dh dw) or n "
                         "and a name");
  write(
      "# a list\n\n--dir=FWD_B\nic3ih8oc4kh3n\"a # b*2\"  # behind a problem\r\n\t--mb=4\n"
      "   ic4ih8oc4kh1ne#1\t#comment");
  std::vector<std::string> warnings;
  const std::vector<NamedProblem> problems = read_problem_file(path_, &warnings);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].name, "a # b");
  EXPECT_EQ(problems[0].count, 2);
  EXPECT_EQ(problems[1].name, "e#1");
  EXPECT_EQ(warnings,
            (std::vector<std::string>{path_ + ":3: option skipped: --dir=FWD_B",
                                      path_ + ":5: option skipped: --mb=4",
                                      path_ + ": 2 of 2 problems have no mb: a batch of 2, "
                                              "as in benchdnn, without --batch"}));
  EXPECT_EQ(read_problem_file(path_), problems);
}

TEST_F(ProblemFile, TakesWhatBenchdnnAndEditorsWrite) {
  write("\xEF\xBB\xBF--dir=FWD_B --dt=f32\tmb1ic3ih8oc4kh3n\"a --b\" # c\r\n--reset # d");
  std::vector<std::string> warnings;
  const std::vector<NamedProblem> problems = read_problem_file(path_, &warnings);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0], parse_problem("mb1ic3ih8oc4kh3n\"a --b\""));
  EXPECT_EQ(warnings, (std::vector<std::string>{path_ + ":1: option skipped: --dir=FWD_B",
                                                path_ + ":1: option skipped: --dt=f32",
                                                path_ + ":2: option skipped: --reset"}));
}

TEST_F(ProblemFile, SaysWhatIsWrongWithTheFile) {
  EXPECT_EQ(error(), "cannot read '" + path_ +
                         "' (No such file or directory): expected a file with one problem a line");
  write("# nothing\n");
  EXPECT_EQ(error(), "problem file '" + path_ + "' holds no problem");
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(error(), "cannot read '" + path_ +
                         "' (Is a directory): expected a file with one problem a line");
}

}  // namespace
}  // namespace convlab
