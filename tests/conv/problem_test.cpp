#include "conv/problem.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "conv/error.h"
#include "conv/problem_text.h"
#include "conv/transposed.h"

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
      // Depth: a cube's heights and widths, a square's widths. The text gives all three or one.
      {"mb1ic8id9oc4kd3pd1", "mb1ic8id9oc4od9kd3pd1"},
      {"mb1ic8id9oc4kd3sd2pd1dd1", "mb1ic8id9oc4od4kd3sd2pd1dd1"},
      {"mb1ic8id9ih9oc4kd3kh3od9oh9", "mb1ic8id9oc4od9kd3pd1"},
      {"mb1ic64id32ih56oc192od32oh56kd3kh3pd1ph1",
       "mb1ic64id32ih56iw56oc192od32oh56ow56kd3kh3kw3pd1ph1pw1"},
      {"mb1ic8id9ih7iw5oc4kd1kh3kw3sh2dd1ph1",
       "mb1ic8id9ih7iw5oc4od9oh4ow3kd1kh3kw3sd1sh2sw2pd0ph1pw1dd1dh0dw0"},
      // Padding in front only, as a causal convolution has it.
      {"mb1ic8id9ih7oc4od9kd3kh1pd2ph0", "mb1ic8id9ih7iw7oc4od9oh7ow7kd3kh1kw1pd2ph0pw0"},
      {"mb1ic8iw9oc4ow9kw3pw2", "mb1ic8ih1iw9oc4oh1ow9kh1kw3ph0pw2"},
      // No depth after all.
      {"mb1ic8id1ih9oc4kd1kh3ph1", "mb1ic8ih9oc4oh9kh3ph1"},
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
       "expected a field (g mb ic id ih iw oc od oh ow kd kh kw sd sh sw pd ph pw dd dh dw) or n "
       "and a name"},
      {"ic3ih8oc4kh3 ph1", 13, "expected a field"},
      {"ic3ih8oc4kh3ph1.5", 16, "expected a field"},
      {"ic3ih8oc4kh3ph1x", 16, "expected a field"},
      {"IC3ih8oc4kh3", 1, "expected a field"},
      // Depth.
      {"ic3id8ih8oc4kh3", 16, "kd is missing"},
      {"ic3ih8oc4od8kh3kd3", 19, "id is missing"},
      {"ic3ih8oc4kh3sd1", 16, "id is missing"},
      {"ic3id8kd3kh3oc4", 16, "ih is missing"},
      {"ic3id8kd3ih8oc4", 16, "kh is missing"},
      {"ic3id8iw8oc4kd3kw3", 19, "ih is missing"},
      {"ic3id8id9oc4kd3", 7, "id is given twice"},
      {"ic3id0oc4kd3", 6, "id takes a whole number of at least 1"},
      {"ic3id8oc4kd3dd-1", 15, "dd takes a whole number of at least 0"},
      {"ic3id2ih8oc4kd3kh3", 4,
       "od would be below 1: a filter that spans 3 does not fit into id 2 with padding 0"},
      {"ic3id8ih8oc4kd3kh3od5pd0", 19,
       "od 5 is too small for id 8, padding 0, a filter that spans 3 and stride 1: it is at least "
       "6"},
      {"ic3id8ih8oc4kd3kh3od3", 19, "od 3 leaves part of id 8 unread: pd can only be derived"},
      {"ic3id8ih8oc4kd2kh2sd2sh2od16", 25, "od 16 takes padding of 12, more than the filter's 2"},
      {"ic100000id100000ih100000iw100000oc1kd1kh1", 1, "tensor x takes 2^62 bytes or more"},
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
      {"ic3id9oc6kd3sd2pd8888888888888888", 7, "tensor y takes 2^62 bytes or more"},
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
  if (random.one_in(4)) {
    p.d = p.h, p.t = p.r, p.z = p.p;
    p.stride_d = p.stride_h, p.pad_d = p.pad_h, p.dilation_d = p.dilation_h;
  } else if (random.one_in(2)) {
    direction(p.d, p.t, p.z, p.stride_d, p.pad_d, p.dilation_d);
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

// ---- Transposed convolutions ----

NamedProblem parse_transposed(std::string_view text) {
  std::vector<std::string> warnings;
  return parse_transposed_problem(text, warnings);
}

TEST(ParseTransposed, IsTheConvolutionWithInputAndOutputExchanged) {
  const struct {
    const char *text, *convolution;
  } cases[] = {
      {"deconv:mb1ic64ih28oc32oh56kh2sh2ph0", "mb1ic32ih56oc64oh28kh2sh2ph0"},
      {" deconv:mb1_ic64ih28_oc32kh2sh2", "mb1ic32ih56oc64oh28kh2sh2ph0"},  // the least oh
      {"deconv:mb1ic8ih14oc4oh28kh4sh2", "mb1ic4ih28oc8oh14kh4sh2ph1"},     // ph derived
      {"deconv:mb1ic8ih14oc4kh4sh2ph1", "mb1ic4ih28oc8oh14kh4sh2ph1"},
      {"deconv:mb1ic8ih14oc4oh28kh3sh2ph1", "mb1ic4ih28oc8oh14kh3sh2ph1"},  // output padding 1
      {"deconv:mb1ic8ih5oc4kh3dh1", "mb1ic4ih9oc8oh5kh3ph0dh1"},
      {"deconv:g2mb3ic8ih5iw7oc4kh1", "g2mb3ic4ih5iw7oc8oh5ow7kh1kw1ph0pw0"},
      {"deconv:mb1ic8ih5iw7oc4oh10ow14kh2sh2ph0", "mb1ic4ih10iw14oc8oh5ow7kh2kw2sh2sw2ph0pw0"},
      {"deconv:mb1ic8iw5oc4kw2sw2", "mb1ic4ih1iw10oc8oh1ow5kh1kw2sh1sw2ph0pw0"},  // 1-D
      {"deconv:mb1ic8ih5oc4kh2sh2ow9", "mb1ic4ih10iw9oc8oh5ow5kh2kw2sh2sw2ph0pw0"},
      {"deconv:mb1ic8id5oc4kd2sd2", "mb1ic4id10oc8od5kd2sd2pd0"},  // a cube
      {"deconv:mb1ic64id8ih28oc32od17kd3kh2sd2sh2pd0",
       "mb1ic32id17ih56iw56oc64od8oh28ow28kd3kh2kw2sd2sh2sw2pd0ph0pw0"},
  };
  for (const auto& c : cases) {
    const NamedProblem parsed = parse_transposed(c.text);
    EXPECT_EQ(to_text(parsed.problem), c.convolution) << c.text;
    EXPECT_EQ(parse_problem(c.convolution), parsed) << c.text;
  }
  const NamedProblem named = parse_transposed("deconv:ic8ih5oc4kh2n\"up*3\"");
  EXPECT_EQ(named.name, "up");
  EXPECT_EQ(named.count, 3);
  std::vector<std::string> warnings;
  parse_transposed_problem("deconv:ic8ih5oc4kh2", warnings);
  EXPECT_EQ(warnings,
            std::vector<std::string>{"deconv:ic8ih5oc4kh2: no mb: a batch of 2, as in benchdnn"});
}

TEST(ParseTransposed, RoundTripsRandomProblems) {
  Random random(4);
  bool output_padding = false, depth = false;
  for (int i = 0; i < 5000; ++i) {
    const ConvProblem p = random_problem(random);
    const std::string text = to_transposed_text(p);
    ASSERT_TRUE(is_transposed_text(text));
    ASSERT_EQ(parse_transposed(text).problem, p) << text;
    output_padding |= p.pad_bottom() < p.pad_h;
    depth |= p.has_depth();
  }
  EXPECT_TRUE(output_padding && depth);
  EXPECT_FALSE(is_transposed_text("mb1ic64ih28oc32kh2"));
  EXPECT_FALSE(is_transposed_text("deconv"));
}

TEST(ParseTransposed, PointsAtTheOffendingCharacter) {
  const Refused cases[] = {
      {"mb1ic8ih5oc4kh2", 1, "expected deconv:"},
      {"deconv:", 8, "oc is missing; a problem looks like deconv:mb1ic64ih28oc32kh2sh2"},
      {"deconv:oc4ih5kh2", 17, "ic is missing"},
      {"deconv:ic8oc4oh5kh2", 20, "ih is missing"},
      {"deconv:ic8oc4od5kd2", 20, "id is missing"},
      {"deconv:ic8id5oc4od12kd2sd2pd0", 17, "od 12 is too large for id 5"},
      {"deconv:ic8ih5oc4oh10", 21, "kh is missing"},
      {"deconv:resnet18", 8, "expected a field (g mb ic id"},
      {"deconv:deconv:ic8ih5oc4kh2", 8, "expected a field"},
      {"deconv:ic8ih0oc4kh2", 13, "ih takes a whole number of at least 1"},
      {"deconv:g3ic8ih5oc6kh2", 10, "ic 8 is not a multiple of g 3"},
      {"deconv:g3ic6ih5oc4kh2", 16, "oc 4 is not a multiple of g 3"},
      {"deconv:ic8ih2oc4kh2ph2", 11,
       "oh would be below 1: padding of 2 leaves nothing of the 3 that ih 2 gives"},
      {"deconv:ic8ih5oc4oh12kh2sh2ph0", 17,
       "oh 12 is too large for ih 5, padding 0, a filter that spans 2 and stride 2: it is at most "
       "11"},
      {"deconv:ic8ih5oc4oh20kh2sh2", 17,
       "oh 20 is more than the 10 of ih 5: ph can only be derived from a smaller oh"},
      {"deconv:ic8ih56oc4oh28kh2sh2", 18,
       "oh 28 takes padding of 42, more than the filter's 2: a convolution's text has no deconv:"},
      {"deconv:ic1ih1152921504606846976oc1kh1sh1152921504606846976", 59,
       "oh is 4611686018427387904: it takes 1 to 2^60"},
      {"deconv:ic1000000ih1000000iw1000000oc1kh1", 8, "tensor x takes 2^62 bytes or more"},
  };
  for (const Refused& c : cases) {
    const std::string expected = "malformed problem '" + std::string(c.text) + "' at character " +
                                 std::to_string(c.character) + ": " + c.message;
    try {
      parse_transposed(c.text);
      ADD_FAILURE() << c.text << " is accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
    }
  }
}

TEST(ParseTransposed, EachPassIsOneOfTheConvolutions) {
  EXPECT_EQ(transposed(Pass::forward), Pass::backward_data);
  EXPECT_EQ(transposed(Pass::backward_data), Pass::forward);
  EXPECT_EQ(transposed(Pass::backward_filter), Pass::backward_filter);
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
            "convolution's text has deconv: before it");
  EXPECT_EQ(refusal([](P& p) { p.pad_w = 20, p.q = 47; }), "accepted");
  EXPECT_EQ(refusal([](P& p) {
              p.pass = Pass::backward_data, p.epilogue.activation = ActivationKind::relu;
            }),
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
  EXPECT_EQ(error(),
            path_ +
                ":6: malformed problem 'ic4ih8oc4kh1#not a comment' at character 13: "
                "expected a field (g mb ic id ih iw oc od oh ow kd kh kw sd sh sw pd ph pw dd dh "
                "dw) or n "
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
