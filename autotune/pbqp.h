// Partitioned Boolean quadratic programming: one alternative for each node, so that the sum of the
// chosen alternatives' costs and of the chosen pairs' costs over all edges is least.
#pragma once

#include <cstddef>
#include <vector>

namespace convlab {

struct PbqpEdge {
  std::size_t u = 0, v = 0;
  std::vector<double> cost;  // row-major: alternatives of u x alternatives of v; infinity forbids
};

struct PbqpProblem {
  std::vector<std::vector<double>> nodes;  // cost of each alternative; at least one a node
  std::vector<PbqpEdge> edges;             // several between two nodes add up
};

struct PbqpSolution {
  std::vector<std::size_t> chosen;  // one alternative a node
  double cost = 0;
  bool optimal = true;  // false: a heuristic reduction was needed
};

// Nodes of degree 0, 1 and 2 are reduced exactly (Scholz & Eckstein 2002, "Register allocation for
// irregular architectures"), which suffices for chains, trees and series-parallel graphs. What
// remains is searched by branch and bound, or, beyond a bounded effort, reduced by the locally best
// alternative. Throws InputError when every choice is forbidden or a cost is NaN.
PbqpSolution solve(const PbqpProblem&);

}  // namespace convlab
