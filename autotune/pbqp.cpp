#include "autotune/pbqp.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "conv/error.h"

namespace convlab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Row-major: own alternatives x the neighbour's.
using Matrix = std::vector<double>;

struct Node {
  std::vector<double> cost;             // of each alternative; empty: reduced
  std::map<std::size_t, Matrix> links;  // by neighbour; each edge is stored at both of its ends
};
using Nodes = std::vector<Node>;

Matrix transposed(const Matrix& m, std::size_t rows) {
  const std::size_t columns = m.size() / rows;
  Matrix t(m.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) t[j * rows + i] = m[i * columns + j];
  return t;
}

void add_to(Matrix& sum, const Matrix& more) {
  if (sum.empty()) sum.resize(more.size(), 0.0);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

void connect(Nodes& nodes, std::size_t u, std::size_t v, const Matrix& cost) {
  add_to(nodes[u].links[v], cost);
  add_to(nodes[v].links[u], transposed(cost, nodes[u].cost.size()));
}

// A reduced node as it was. Once its neighbours are decided, its best alternative follows.
struct Reduced {
  std::size_t id;
  Node node;

  void decide(std::vector<std::size_t>& chosen) const {
    double best = infinity;
    for (std::size_t i = 0; i < node.cost.size(); ++i) {
      double cost = node.cost[i];
      for (const auto& [other, matrix] : node.links)
        cost += matrix[i * (matrix.size() / node.cost.size()) + chosen[other]];
      if (cost < best) {
        best = cost;
        chosen[id] = i;
      }
    }
  }
};

// Removes nodes of degree 2 or less and adds their least cost to their neighbours' costs. The cost
// of an isolated node (degree 0) is added to `constant`.
std::vector<Reduced> reduce(Nodes& nodes, double& constant) {
  std::vector<Reduced> order;
  std::vector<std::size_t> open;
  const auto is_small = [&](std::size_t id) {
    return !nodes[id].cost.empty() && nodes[id].links.size() <= 2;
  };
  for (std::size_t id = nodes.size(); id-- > 0;)
    if (is_small(id)) open.push_back(id);
  while (!open.empty()) {
    const std::size_t id = open.back();
    open.pop_back();
    if (!is_small(id)) continue;
    order.push_back({id, std::move(nodes[id])});
    nodes[id] = {};
    const Node& x = order.back().node;
    const std::size_t alternatives = x.cost.size();
    for (const auto& [other, matrix] : x.links) nodes[other].links.erase(id);

    if (x.links.empty()) {
      constant += *std::min_element(x.cost.begin(), x.cost.end());
    } else if (x.links.size() == 1) {
      const auto& [y, matrix] = *x.links.begin();
      const std::size_t columns = nodes[y].cost.size();
      for (std::size_t j = 0; j < columns; ++j) {
        double best = infinity;
        for (std::size_t i = 0; i < alternatives; ++i)
          best = std::min(best, x.cost[i] + matrix[i * columns + j]);
        nodes[y].cost[j] += best;
      }
    } else {
      const auto& [y, to_y] = *x.links.begin();
      const auto& [z, to_z] = *x.links.rbegin();
      const std::size_t rows = nodes[y].cost.size(), columns = nodes[z].cost.size();
      Matrix best(rows * columns, infinity);
      for (std::size_t i = 0; i < alternatives; ++i)
        for (std::size_t j = 0; j < rows; ++j)
          for (std::size_t k = 0; k < columns; ++k)
            best[j * columns + k] = std::min(
                best[j * columns + k], x.cost[i] + to_y[i * rows + j] + to_z[i * columns + k]);
      connect(nodes, y, z, best);
    }
    for (const auto& [other, matrix] : x.links)
      if (is_small(other)) open.push_back(other);
  }
  return order;
}

class Search {
 public:
  // The best solution below `bound` for the remaining nodes; nullopt if there is none.
  struct Found {
    std::vector<std::size_t> chosen;
    double cost = infinity;
  };
  std::optional<Found> run(Nodes nodes, double bound) {
    double constant = 0;
    const std::vector<Reduced> order = reduce(nodes, constant);
    if (constant == infinity) return {};
    std::optional<Found> best = branch(nodes, bound - constant);
    if (!best) return best;
    best->cost += constant;
    for (auto reduced = order.rbegin(); reduced != order.rend(); ++reduced)
      reduced->decide(best->chosen);
    return best;
  }

  bool cut() const { return cut_; }
  std::size_t searched() const { return *searched_; }

 private:
  // Effort counts the edges of all subproblems, and is limited only once a solution exists: well
  // under a second.
  static constexpr std::size_t most_effort = 2'000'000;

  // Branches on the node with the most neighbours.
  std::optional<Found> branch(const Nodes& nodes, double bound) {
    std::size_t x = nodes.size(), there = 0;
    double lower = 0;  // a lower bound of all solutions
    for (std::size_t id = 0; id < nodes.size(); ++id) {
      if (nodes[id].cost.empty()) continue;
      ++there;
      if (x == nodes.size() || nodes[id].links.size() > nodes[x].links.size()) x = id;
      lower += *std::min_element(nodes[id].cost.begin(), nodes[id].cost.end());
      effort_ += nodes[id].links.size();
      for (const auto& [other, matrix] : nodes[id].links)
        if (id < other) lower += *std::min_element(matrix.begin(), matrix.end());
    }
    if (!searched_) searched_ = there;
    if (lower >= bound) return {};
    if (there == 0) {
      reached_ = true;
      return Found{std::vector<std::size_t>(nodes.size(), 0), 0};
    }

    std::optional<Found> best;
    for (const auto& [estimate, alternative] : by_promise(nodes, x)) {
      if (estimate == infinity) break;
      if (reached_ && effort_ > most_effort) {
        cut_ = true;
        break;
      }
      const double own = nodes[x].cost[alternative];
      std::optional<Found> found = run(fixed(nodes, x, alternative), bound - own);
      if (!found) continue;
      found->cost += own;
      found->chosen[x] = alternative;
      bound = found->cost;
      best = std::move(found);
    }
    return best;
  }

  // The cost of each alternative of x plus each neighbour's best response alone.
  static std::vector<std::pair<double, std::size_t>> by_promise(const Nodes& nodes, std::size_t x) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < nodes[x].cost.size(); ++i) {
      double estimate = nodes[x].cost[i];
      for (const auto& [other, matrix] : nodes[x].links) {
        const std::vector<double>& theirs = nodes[other].cost;
        double best = infinity;
        for (std::size_t j = 0; j < theirs.size(); ++j)
          best = std::min(best, matrix[i * theirs.size() + j] + theirs[j]);
        estimate += best;
      }
      order.emplace_back(estimate, i);
    }
    std::sort(order.begin(), order.end());
    return order;
  }

  static Nodes fixed(Nodes nodes, std::size_t x, std::size_t alternative) {
    for (const auto& [other, matrix] : nodes[x].links) {
      Node& y = nodes[other];
      for (std::size_t j = 0; j < y.cost.size(); ++j)
        y.cost[j] += matrix[alternative * y.cost.size() + j];
      y.links.erase(x);
    }
    nodes[x] = {};
    return nodes;
  }

  std::size_t effort_ = 0;
  std::optional<std::size_t> searched_;
  bool reached_ = false;  // some solution was found
  bool cut_ = false;
};

void require_numbers(const std::vector<double>& costs, const std::string& of) {
  for (double cost : costs)
    if (!(cost > -infinity))
      throw InputError(fmt::format("{} costs {}: expected a number or infinity", of, cost));
}

Nodes nodes_of(const PbqpProblem& problem) {
  Nodes nodes;
  for (const std::vector<double>& cost : problem.nodes) {
    const std::string name = fmt::format("node {}", nodes.size());
    if (cost.empty()) throw InputError(name + " has no alternative: expected at least one");
    require_numbers(cost, name);
    nodes.push_back({cost, {}});
  }
  for (const PbqpEdge& edge : problem.edges) {
    const std::string name = fmt::format("the edge between nodes {} and {}", edge.u, edge.v);
    if (std::max(edge.u, edge.v) >= nodes.size() || edge.u == edge.v)
      throw InputError(fmt::format("{}: expected two of {} nodes", name, nodes.size()));
    if (edge.cost.size() != nodes[edge.u].cost.size() * nodes[edge.v].cost.size())
      throw InputError(fmt::format("{} has {} costs: expected {} x {}", name, edge.cost.size(),
                                   nodes[edge.u].cost.size(), nodes[edge.v].cost.size()));
    require_numbers(edge.cost, name);
    connect(nodes, edge.u, edge.v, edge.cost);
  }
  return nodes;
}

double cost_of(const PbqpProblem& problem, const std::vector<std::size_t>& chosen) {
  double cost = 0;
  for (std::size_t id = 0; id < chosen.size(); ++id) cost += problem.nodes[id][chosen[id]];
  for (const PbqpEdge& edge : problem.edges)
    cost += edge.cost[chosen[edge.u] * problem.nodes[edge.v].size() + chosen[edge.v]];
  return cost;
}

}  // namespace

PbqpSolution solve(const PbqpProblem& problem) {
  Search search;
  std::optional<Search::Found> found = search.run(nodes_of(problem), infinity);
  if (!found) throw InputError("every choice is forbidden by some infinite cost");
  PbqpSolution solution;
  solution.chosen = std::move(found->chosen);
  solution.cost = cost_of(problem, solution.chosen);
  solution.optimal = !search.cut();
  solution.searched = search.searched();
  return solution;
}

}  // namespace convlab
