#include "autotune/pbqp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "conv/error.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double cost_of(const PbqpProblem& problem, const std::vector<std::size_t>& chosen) {
  double cost = 0;
  for (std::size_t id = 0; id < chosen.size(); ++id) cost += problem.nodes[id].at(chosen[id]);
  for (const PbqpEdge& edge : problem.edges)
    cost += edge.cost.at(chosen[edge.u] * problem.nodes[edge.v].size() + chosen[edge.v]);
  return cost;
}

// Tries every choice.
double least_cost(const PbqpProblem& problem) {
  std::vector<std::size_t> chosen(problem.nodes.size(), 0);
  double least = infinity;
  for (;;) {
    least = std::min(least, cost_of(problem, chosen));
    std::size_t id = 0;
    while (id < chosen.size() && ++chosen[id] == problem.nodes[id].size()) chosen[id++] = 0;
    if (id == chosen.size()) return least;
  }
}

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  std::size_t below(std::size_t n) { return generator_() % n; }
  // Forbidden once in `forbidden` draws; 0: never.
  double cost(std::size_t forbidden) {
    if (forbidden > 0 && below(forbidden) == 0) return infinity;
    return double(below(2000)) / 16 - 20;  // some negative; sums are exact
  }
  void add_node(PbqpProblem& problem, std::size_t forbidden) {
    problem.nodes.emplace_back(1 + below(4));
    for (double& c : problem.nodes.back()) c = cost(forbidden);
  }
  void add_edge(PbqpProblem& problem, std::size_t u, std::size_t v, std::size_t forbidden) {
    problem.edges.push_back({u, v, {}});
    problem.edges.back().cost.resize(problem.nodes[u].size() * problem.nodes[v].size());
    for (double& c : problem.edges.back().cost) c = cost(forbidden);
  }

 private:
  std::mt19937 generator_;
};

void expect_least(const PbqpProblem& problem) {
  const double least = least_cost(problem);
  if (least == infinity) {
    EXPECT_THROW(solve(problem), InputError);
    return;
  }
  const PbqpSolution solution = solve(problem);
  EXPECT_TRUE(solution.optimal);
  ASSERT_EQ(solution.chosen.size(), problem.nodes.size());
  EXPECT_EQ(solution.cost, least);
  EXPECT_EQ(cost_of(problem, solution.chosen), least);
}

class RandomGraphs : public testing::TestWithParam<std::size_t> {};  // parameter: `forbidden`

TEST_P(RandomGraphs, ChainsAreReduced) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Random random(seed);
    PbqpProblem problem;
    for (std::size_t i = 0; i < 8; ++i) {
      random.add_node(problem, GetParam());
      if (i > 0) random.add_edge(problem, i - seed % 2, i - 1 + seed % 2, GetParam());
    }
    expect_least(problem);
    if (GetParam() == 0) {
      EXPECT_EQ(solve(problem).searched, 0u);
    }
  }
}

TEST_P(RandomGraphs, TreesAreReduced) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Random random(seed);
    PbqpProblem problem;
    for (std::size_t i = 0; i < 8; ++i) {
      random.add_node(problem, GetParam());
      if (i > 0) random.add_edge(problem, i, random.below(i), GetParam());
    }
    expect_least(problem);
    if (GetParam() == 0) {
      EXPECT_EQ(solve(problem).searched, 0u);
    }
  }
}

// Grown by splitting edges and by doubling them.
TEST_P(RandomGraphs, SeriesParallelOnesAreReduced) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Random random(seed);
    std::vector<std::pair<std::size_t, std::size_t>> edges{{0, 1}};
    std::size_t nodes = 2;
    while (nodes < 8) {
      const std::size_t at = random.below(edges.size());
      edges.push_back(edges[at]);
      if (random.below(2) == 0) continue;
      edges.back().second = nodes;
      edges[at].first = nodes++;
    }
    PbqpProblem problem;
    for (std::size_t i = 0; i < nodes; ++i) random.add_node(problem, GetParam());
    for (const auto& [u, v] : edges) random.add_edge(problem, u, v, GetParam());
    expect_least(problem);
    if (GetParam() == 0) {
      EXPECT_EQ(solve(problem).searched, 0u);
    }
  }
}

TEST_P(RandomGraphs, DenseOnesAreSearched) {
  std::size_t searched = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    Random random(seed);
    PbqpProblem problem;
    for (std::size_t i = 0; i < 7; ++i) random.add_node(problem, GetParam());
    for (std::size_t u = 0; u < 7; ++u)
      for (std::size_t v = u + 1; v < 7; ++v)
        if (random.below(4) > 0) random.add_edge(problem, u, v, GetParam());
    expect_least(problem);
    if (GetParam() == 0) searched += solve(problem).searched;
  }
  if (GetParam() == 0) {
    EXPECT_GT(searched, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Forbidden, RandomGraphs, testing::Values(0, 20, 4));

TEST(Pbqp, EveryNodeByItself) {
  const PbqpSolution solution = solve({{{3, 1, 2}, {5}, {infinity, 7}}, {}});
  EXPECT_EQ(solution.chosen, (std::vector<std::size_t>{1, 0, 1}));
  EXPECT_EQ(solution.cost, 13);
}

TEST(Pbqp, NoNodes) { EXPECT_EQ(solve({}).cost, 0); }

TEST(Pbqp, SeveralEdgesBetweenTwoNodesAddUp) {
  const PbqpProblem problem{{{0, 0}, {0, 0}}, {{0, 1, {0, 3, 3, 1}}, {1, 0, {9, 3, 3, 1}}}};
  const PbqpSolution solution = solve(problem);
  EXPECT_EQ(solution.chosen, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(solution.cost, 2);
}

// A choice that is locally best but forbids every later one.
TEST(Pbqp, BacksOutOfADeadEnd) {
  PbqpProblem problem;
  for (int i = 0; i < 4; ++i) problem.nodes.push_back({0, 100});
  const std::vector<double> not_both{infinity, 0, 0, 0};
  for (std::size_t u = 0; u < 4; ++u)
    for (std::size_t v = u + 1; v < 4; ++v) problem.edges.push_back({u, v, not_both});
  const PbqpSolution solution = solve(problem);
  EXPECT_EQ(solution.cost, 300);
  EXPECT_EQ(solution.searched, 4u);
}

TEST(Pbqp, LongChains) {
  Random random(1);
  PbqpProblem problem;
  for (std::size_t i = 0; i < 20'000; ++i) {
    random.add_node(problem, 0);
    if (i > 0) random.add_edge(problem, i - 1, i, 0);
  }
  const PbqpSolution solution = solve(problem);
  EXPECT_TRUE(solution.optimal);
  EXPECT_EQ(solution.searched, 0u);
  // The forward recursion gives the same cost.
  std::vector<double> least = problem.nodes[0];
  for (std::size_t i = 1; i < problem.nodes.size(); ++i) {
    std::vector<double> next = problem.nodes[i];
    for (std::size_t b = 0; b < next.size(); ++b) {
      double best = infinity;
      for (std::size_t a = 0; a < least.size(); ++a)
        best = std::min(best, least[a] + problem.edges[i - 1].cost[a * next.size() + b]);
      next[b] += best;
    }
    least = next;
  }
  EXPECT_EQ(solution.cost, *std::min_element(least.begin(), least.end()));
}

// Too big to search completely: the solver still returns an answer, no worse than each node's own
// best choice.
TEST(Pbqp, DenseBeyondTheEffort) {
  Random random(2);
  PbqpProblem problem;
  for (std::size_t i = 0; i < 40; ++i) problem.nodes.push_back(std::vector<double>(4, 0.0));
  for (std::size_t u = 0; u < 40; ++u)
    for (std::size_t v = 0; v < u; ++v) random.add_edge(problem, u, v, 0);
  const PbqpSolution solution = solve(problem);
  EXPECT_FALSE(solution.optimal);
  EXPECT_EQ(solution.searched, 40u);
  EXPECT_EQ(solution.cost, cost_of(problem, solution.chosen));
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::size_t> chosen(problem.nodes.size());
    for (std::size_t& c : chosen) c = random.below(4);
    EXPECT_LT(solution.cost, cost_of(problem, chosen));
  }
}

void expect_error(const PbqpProblem& problem, const std::string& message) {
  try {
    solve(problem);
    FAIL() << "expected: " << message;
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), message.c_str());
  }
}

TEST(Pbqp, SaysWhatIsWrong) {
  expect_error({{{1}, {}}, {}}, "node 1 has no alternative: expected at least one");
  expect_error({{{1, std::nan("")}}, {}}, "node 0 costs nan: expected a number or infinity");
  expect_error({{{-infinity}}, {}}, "node 0 costs -inf: expected a number or infinity");
  expect_error({{{1}, {1}}, {{0, 1, {std::nan("")}}}},
               "the edge between nodes 0 and 1 costs nan: expected a number or infinity");
  expect_error({{{1}, {1, 2}}, {{0, 1, {1}}}},
               "the edge between nodes 0 and 1 has 1 costs: expected 1 x 2");
  expect_error({{{1}, {1}}, {{0, 2, {1}}}},
               "the edge between nodes 0 and 2: expected two of 2 nodes");
  expect_error({{{1}, {1}}, {{1, 1, {1}}}},
               "the edge between nodes 1 and 1: expected two of 2 nodes");
  expect_error({{{infinity, infinity}}, {}}, "every choice is forbidden by some infinite cost");
}

}  // namespace
}  // namespace convlab
