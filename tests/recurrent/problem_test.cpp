#include "recurrent/problem.h"

#include <gtest/gtest.h>

#include "conv/error.h"
#include "recurrent/problem_text.h"

namespace convlab {
namespace {

std::string error_of(std::string_view text) {
  try {
    (void)parse_recurrent_problem(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

RecurrentProblem sized(RecurrentCell cell, std::int64_t layers, std::int64_t t, std::int64_t n,
                       std::int64_t i, std::int64_t h, bool bidirectional) {
  RecurrentProblem p;
  p.cell = cell, p.layers = layers, p.t = t, p.n = n, p.i = i, p.h = h;
  p.bidirectional = bidirectional;
  return p;
}

TEST(RecurrentText, ReadsEveryField) {
  const auto named =
      parse_recurrent_problem(R"(lstm:l2t32mb16sic512slc256dhc512dic512:bin"encoder*3")");
  EXPECT_EQ(named.problem, sized(RecurrentCell::lstm, 2, 32, 16, 256, 512, true));
  EXPECT_EQ(named.name, "encoder");
  EXPECT_EQ(named.count, 3);
}

TEST(RecurrentText, CompletesAsBenchdnnDoes) {
  for (const char* text : {"gru:sic8", "gru:dhc8", "gru:slc8", "gru:_dic8_", " gru:l1t1mb2sic8 "})
    EXPECT_EQ(parse_recurrent_problem(text).problem,
              sized(RecurrentCell::gru, 1, 1, 2, 8, 8, false))
        << text;
  EXPECT_EQ(parse_recurrent_problem("rnn_relu:slc3dhc5").problem,
            sized(RecurrentCell::rnn_relu, 1, 1, 2, 3, 5, false));
}

TEST(RecurrentText, PrintsWhatItReads) {
  for (const char* text :
       {"rnn:l1t32mb16sic512slc512dhc512dic512", "rnn_relu:l1t1mb1sic1slc2dhc1dic1",
        "gru:l3t7mb2sic5slc4dhc5dic5:bi", R"(lstm:l1t1mb2sic5slc4dhc5dic5:bin"a b*7")",
        R"(lstm:l1t1mb2sic5slc4dhc5dic5n"a*7*1")"})
    EXPECT_EQ(to_text(parse_recurrent_problem(text)), text);
}

TEST(RecurrentText, RefusalsSayWhereAndWhy) {
  EXPECT_EQ(error_of("lstn:dhc8"),
            "malformed problem 'lstn:dhc8' at character 1: expected rnn: rnn_relu: gru: or lstm: "
            "and the sizes, as in lstm:l1t32mb16sic512slc512dhc512dic512");
  EXPECT_EQ(error_of("gru"),
            "malformed problem 'gru' at character 1: expected rnn: rnn_relu: "
            "gru: or lstm: and the sizes, as in "
            "lstm:l1t32mb16sic512slc512dhc512dic512");
  EXPECT_EQ(error_of("gru:dhc8dhc9"),
            "malformed problem 'gru:dhc8dhc9' at character 9: dhc is given twice");
  EXPECT_EQ(error_of("gru:t0dhc9"),
            "malformed problem 'gru:t0dhc9' at character 6: t takes a "
            "whole number of at least 1");
  EXPECT_EQ(error_of("gru:ic9"),
            "malformed problem 'gru:ic9' at character 5: expected a size (l "
            "t mb sic slc dhc dic), :bi, or n and a name");
  EXPECT_EQ(error_of("gru:t3"),
            "malformed problem 'gru:t3' at character 7: dhc, the number of "
            "hidden units, is missing");
  EXPECT_EQ(error_of("gru:t3n2dhc8"),
            "malformed problem 'gru:t3n2dhc8' at character 13: dhc, the number of hidden units, is "
            "missing: n begins the layer's name, which ends the text; the batch is mb");
  EXPECT_TRUE(error_of("gru:t3nencoder").ends_with("is missing"));
  EXPECT_EQ(error_of("gru:dhc8dic9"),
            "malformed problem 'gru:dhc8dic9' at character 9: dic is 9 and dhc is 8: states here "
            "have as many channels as there are hidden units");
  EXPECT_EQ(error_of("gru:dhc8:b"),
            "malformed problem 'gru:dhc8:b' at character 9: expected :bi, "
            "for both directions, or the end");
  EXPECT_EQ(error_of("gru:dhc8nx:bi"),
            "malformed problem 'gru:dhc8nx:bi' at character 9: expected :bi before n and a name, "
            "or the name in quotes");
  EXPECT_EQ(parse_recurrent_problem("gru:dhc8n\"x:bi\"").name, "x:bi");
  EXPECT_EQ(error_of("gru:dhc8:bix"),
            "malformed problem 'gru:dhc8:bix' at character 12: expected "
            "n and a name, or the end");
  EXPECT_EQ(error_of("gru:dhc2000000000"),
            "malformed problem 'gru:dhc2000000000' at character 5: the array of weights would take "
            "2^62 bytes or more");
}

TEST(RecurrentProblems, AreTheirCells) {
  for (const RecurrentCell cell : all_cells) EXPECT_EQ(parse_cell(to_string(cell)), cell);
  EXPECT_THROW((void)parse_cell("elman"), InputError);
  EXPECT_TRUE(is_recurrent_text(" rnn_relu:dhc8"));
  EXPECT_FALSE(is_recurrent_text("rnnx:dhc8"));
  EXPECT_FALSE(is_recurrent_text("rnn:28-128-10"));  // a net
  EXPECT_FALSE(is_recurrent_text("mb1ic64ih56oc64oh56kh3ph1"));
  for (const char* text : {"lstm", " LSTM:t8dhc8", "lbr_gru:t8", "vanilla_rnn", "rnn:28-128-10"})
    EXPECT_TRUE(begins_with_cell(text)) << text;
  for (const char* text : {"", "mb1ic8ih8oc8kh3n\"lstm\"", "resnet18", "gr", "x1lstm"})
    EXPECT_FALSE(begins_with_cell(text)) << text;
}

TEST(RecurrentProblems, AreValidatedBeyondTheirText) {
  RecurrentProblem p = parse_recurrent_problem("gru:dhc8").problem;
  EXPECT_NO_THROW(validate(p));
  p.dtype = DType::bf16;
  EXPECT_THROW(validate(p), InputError);
  p.dtype = DType::f64;
  p.pass = Pass::backward_data;
  EXPECT_NO_THROW(validate(p));
  p.training = true;
  EXPECT_THROW(validate(p), InputError);
  p.training = false;
  p.t = 0;
  EXPECT_THROW(validate(p), InputError);
}

// PyTorch's nn.LSTM(4, 5, 2, bidirectional=True) has this many parameters.
TEST(RecurrentProblems, HaveArraysOneAfterTheOther) {
  const RecurrentProblem p = sized(RecurrentCell::lstm, 2, 3, 2, 4, 5, true);
  EXPECT_EQ(p.weights_elements(), 2 * (20 * 4 + 20 * 5 + 40) + 2 * (20 * 10 + 20 * 5 + 40));
  EXPECT_EQ(p.weights_offset(1, 1), 2 * 220 + 340);
  EXPECT_EQ(p.w_hh_offset(1, 1) - p.weights_offset(1, 1), 200);
  EXPECT_EQ(p.b_hh_offset(1, 1) + 20, p.weights_elements());
  EXPECT_EQ(p.activations_elements(), 4 * 3 * 2 * 5 * 5 + 3 * 2 * 10);
  EXPECT_EQ(p.dgates_elements(), 4 * 3 * 2 * 20);
  EXPECT_EQ(p.recurrent_dgates_offset(1, 0), p.dgates_offset(1, 0));
  RecurrentProblem recomputing = p;
  recomputing.recompute = true;
  EXPECT_EQ(recomputing.activations_elements(), 3 * 2 * 10);
  const RecurrentProblem gru = sized(RecurrentCell::gru, 1, 3, 2, 4, 5, false);
  EXPECT_EQ(gru.recurrent_dgates_offset(0, 0), 3 * 2 * 15);
  EXPECT_EQ(gru.dgates_elements(), 2 * 3 * 2 * 15);
  EXPECT_DOUBLE_EQ(gru.flops(), 2.0 * 3 * 2 * 15 * 9);
}

TEST(RecurrentProblems, CountNoGradientOfTheInputThatNobodyNeeds) {
  RecurrentProblem p = sized(RecurrentCell::lstm, 2, 3, 2, 4, 5, true);
  const double all = p.flops();
  p.input_gradient = false;
  EXPECT_EQ(p.flops(), all);  // forward reads x
  p.pass = Pass::backward_filter;
  EXPECT_EQ(p.flops(), all);
  p.pass = Pass::backward_data;
  EXPECT_DOUBLE_EQ(p.flops(), all - 2.0 * 3 * 2 * 2 * 20 * 4);
}

}  // namespace
}  // namespace convlab
