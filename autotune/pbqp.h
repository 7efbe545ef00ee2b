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
  bool optimal = true;       // false: the search was cut short
  std::size_t searched = 0;  // nodes that the exact reductions left to the search
};

// Nodes of degree 0, 1 and 2 are reduced exactly (Scholz & Eckstein 2002, "Register allocation for
// irregular architectures"), which suffices for chains, trees and series-parallel graphs, in time
// linear in the nodes. What remains is searched by branch and bound, the locally best alternative
// first; beyond a bounded effort the best that was found by then is taken. Throws InputError when
// every choice is forbidden, when a cost is NaN or minus infinity, or sizes do not fit.
PbqpSolution solve(const PbqpProblem&);

}  // namespace convlab
