#include "recurrent/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "conv/error.h"

namespace convlab {
namespace {

using Values = std::vector<double>;

RecurrentProblem with_pass(RecurrentProblem p, Pass pass) {
  p.pass = pass;
  p.training = pass == Pass::forward;
  return p;
}

// All passes of one training step.
struct Step {
  RecurrentOutput forward, data, filter;

  // `in` has what forward reads, and the gradients of its outputs.
  Step(const RecurrentProblem& p, RecurrentInput in) {
    forward = reference_of(with_pass(p, Pass::forward), in);
    in.y = forward.out;
    in.activations = forward.activations;
    data = reference_of(with_pass(p, Pass::backward_data), in);
    in.dgates = data.dgates;
    filter = reference_of(with_pass(p, Pass::backward_filter), in);
  }
};

void expect_near(const Values& values, const Values& expected, double margin,
                 const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], margin) << what << " at " << i;
}

using Arrays = std::map<std::string, Values>;

std::map<std::string, Arrays> pytorch_problems() {
  std::ifstream file(CONVLAB_PYTORCH_RECURRENT);
  std::map<std::string, Arrays> problems;
  std::string line, text;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "problem") {
      words >> text;
    } else {
      for (double v = 0; words >> v;) problems[text][name].push_back(v);
    }
  }
  return problems;
}

TEST(RecurrentReference, AgreesWithPyTorch) {
  const auto problems = pytorch_problems();
  ASSERT_EQ(problems.size(), 2 * all_cells.size());
  for (auto [text, of] : problems) {
    const RecurrentProblem p = parse_recurrent_problem(text).problem;
    const Step step(p, {.x = of["x"],
                        .weights = of["weights"],
                        .h0 = of["h0"],
                        .c0 = of["c0"],
                        .dy = of["dy"],
                        .dhn = of["dhn"],
                        .dcn = of["dcn"]});
    const double margin = 1e-13;
    expect_near(step.forward.out, of["y"], margin, text + " y");
    expect_near(step.forward.out_h, of["hn"], margin, text + " hn");
    expect_near(step.forward.out_c, of["cn"], margin, text + " cn");
    expect_near(step.data.out, of["dx"], 10 * margin, text + " dx");
    expect_near(step.data.out_h, of["dh0"], 10 * margin, text + " dh0");
    expect_near(step.data.out_c, of["dc0"], 10 * margin, text + " dc0");
    expect_near(step.filter.out, of["dweights"], 100 * margin, text + " dweights");
  }
}

struct Drawn {
  Values x, weights, h0, c0, dy, dhn, dcn;

  Drawn(const RecurrentProblem& p, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> draw;
    const auto fill = [&](Values& v, std::int64_t count) {
      v.resize(std::size_t(count));
      for (double& e : v) e = 0.7 * draw(random);
    };
    fill(x, p.x_elements());
    fill(weights, p.weights_elements());
    fill(dy, p.y_elements());
    for (Values* state : {&h0, &c0, &dhn, &dcn}) fill(*state, p.state_elements());
  }
  RecurrentInput input() const {
    return {.x = x, .weights = weights, .h0 = h0, .c0 = c0, .dy = dy, .dhn = dhn, .dcn = dcn};
  }
};

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// <y, dy> + <hn, dhn> + <cn, dcn>, whose gradients backward_data and backward_filter compute.
double objective(const RecurrentProblem& p, const Drawn& drawn) {
  const RecurrentOutput out = reference_of(with_pass(p, Pass::forward), drawn.input());
  return dot(out.out, drawn.dy) + dot(out.out_h, drawn.dhn) +
         (p.has_cell_state() ? dot(out.out_c, drawn.dcn) : 0.0);
}

void expect_gradient(const RecurrentProblem& p, Drawn drawn, Values Drawn::*of,
                     const Values& gradient, const std::string& what) {
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    double& value = (drawn.*of)[i];
    const double before = value;
    value = before + step;
    const double above = objective(p, drawn);
    value = before - step;
    const double below = objective(p, drawn);
    value = before;
    ASSERT_NEAR((above - below) / (2 * step), gradient[i], 1e-7)
        << to_text(p) << ' ' << what << " at " << i;
  }
}

TEST(RecurrentReference, GradientsAreThoseOfFiniteDifferences) {
  for (const RecurrentCell cell : all_cells)
    for (const std::int64_t layers : {1, 3})
      for (const bool bidirectional : {false, true}) {
        RecurrentProblem p;
        p.cell = cell, p.layers = layers, p.bidirectional = bidirectional;
        p.t = 3, p.n = 2, p.i = 2, p.h = 3;
        const Drawn drawn(p, 5);
        const Step step(p, drawn.input());
        expect_gradient(p, drawn, &Drawn::x, step.data.out, "dx");
        expect_gradient(p, drawn, &Drawn::h0, step.data.out_h, "dh0");
        expect_gradient(p, drawn, &Drawn::c0, step.data.out_c, "dc0");
        expect_gradient(p, drawn, &Drawn::weights, step.filter.out, "dweights");
      }
}

TEST(RecurrentReference, RecomputesWhatItDoesNotSave) {
  for (const RecurrentCell cell : all_cells) {
    RecurrentProblem p;
    p.cell = cell, p.layers = 2, p.bidirectional = true, p.t = 4, p.n = 2, p.i = 3, p.h = 2;
    const Drawn drawn(p, 6);
    const Step saving(p, drawn.input());
    p.recompute = true;
    const Step recomputing(p, drawn.input());
    EXPECT_EQ(recomputing.forward.activations.size(), std::size_t(p.y_elements()));
    EXPECT_EQ(recomputing.data.out, saving.data.out);
    EXPECT_EQ(recomputing.data.dgates, saving.data.dgates);
    EXPECT_EQ(recomputing.filter.out, saving.filter.out);
  }
}

TEST(RecurrentReference, AbsentStatesAreZero) {
  RecurrentProblem p;
  p.cell = RecurrentCell::lstm, p.t = 2, p.n = 2, p.i = 2, p.h = 2;
  Drawn drawn(p, 7);
  for (Values Drawn::*state : {&Drawn::h0, &Drawn::c0, &Drawn::dhn, &Drawn::dcn})
    (drawn.*state).assign(std::size_t(p.state_elements()), 0.0);
  const Step zeros(p, drawn.input());
  const Step absent(p, {.x = drawn.x, .weights = drawn.weights, .dy = drawn.dy});
  EXPECT_EQ(absent.forward.out, zeros.forward.out);
  EXPECT_EQ(absent.data.out, zeros.data.out);
  EXPECT_EQ(absent.filter.out, zeros.filter.out);
}

TEST(RecurrentReference, LeavesOutDxIfNobodyNeedsIt) {
  RecurrentProblem p;
  p.cell = RecurrentCell::gru, p.layers = 2, p.bidirectional = true;
  p.t = 3, p.n = 2, p.i = 2, p.h = 3;
  const Drawn drawn(p, 8);
  RecurrentInput in = drawn.input();
  const Step with(p, in);
  in.needs_dx = false;
  const Step without(p, in);
  EXPECT_TRUE(without.data.out.empty());
  EXPECT_EQ(without.data.out_h, with.data.out_h);
  EXPECT_EQ(without.data.dgates, with.data.dgates);
}

TEST(RecurrentReference, RefusesArraysOfTheWrongLength) {
  RecurrentProblem p;
  const Values one{1}, two{1, 2};
  try {
    (void)reference_of(p, {.x = two, .weights = one});
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "reference: x has 2 elements, expected 1");
  }
}

}  // namespace
}  // namespace convlab
