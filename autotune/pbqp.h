// Partitioned Boolean quadratic programming: choose one alternative for each node to minimise the
// sum of the alternatives' costs and of the pairs' costs over all edges.
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
  std::size_t searched = 0;  // nodes left to the search after the exact reductions
};

// Nodes of degree 0, 1 and 2 are reduced exactly (Scholz & Eckstein 2002, "Register allocation for
// irregular architectures"), in time linear in the nodes. This solves chains, trees and
// series-parallel graphs. Branch and bound searches the rest, the locally best alternative first;
// when its effort limit is reached it returns the best solution so far. Throws InputError when
// every choice is forbidden, when a cost is NaN or minus infinity, or when sizes do not fit.
PbqpSolution solve(const PbqpProblem&);

}  // namespace convlab
