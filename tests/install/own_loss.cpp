// Training by a loss that convlab does not have, as somebody would write it who uses convlab as a
// library: Huber's, of a perceptron that learns a function with outliers. Exits with 1 when it has
// not learnt.
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "kernels_cpu/cpu.h"
#include "nets/net.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"

// The mean of the loss; dy becomes its gradient.
double huber(const std::vector<float>& y, const std::vector<float>& target,
             std::vector<float>& dy) {
  double loss = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const float d = y[i] - target[i], inside = std::fmin(std::fabs(d), 1.0f);
    loss += inside * (std::fabs(d) - inside / 2) / float(y.size());
    dy[i] = std::copysign(inside, d) / float(y.size());
  }
  return loss;
}

int main() {
  using namespace convlab;
  using namespace convlab::nets;
  constexpr std::int64_t points = 64;
  std::vector<float> x(points), target(points), y(points), dy(points);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = float(i) / 32 - 1;
    target[i] = std::sin(3 * x[i]) + (i % 16 == 5 ? 100.0f : 0.0f);
  }

  const auto device = make_cpu_device();
  AlgoRegistry algos;
  append_cpu_algos(algos);
  Graph graph("curve");
  input(graph, {points, 1, 1, 1}).linear("a", 32).tanh("tanh").linear("b", 1);
  const NetPlan plan = choose_plan(graph, {}, algos, *device, nullptr).plan;

  Net net(graph, plan, algos, *device, {.loss = Loss::none});
  net.initialise(1);
  net.set_input(std::as_bytes(std::span(x)));
  double loss = 0;
  for (int step = 0; step < 1000; ++step) {
    net.forward();
    net.read_output(std::as_writable_bytes(std::span(y)));
    loss = huber(y, target, dy);
    net.backward(std::as_bytes(std::span(dy)));
    net.update(AdamDesc{.rate = 0.01});
  }
  double worst = 0;  // where there are no outliers
  for (std::size_t i = 0; i < y.size(); ++i)
    if (i % 16 != 5) worst = std::fmax(worst, std::fabs(y[i] - std::sin(3 * x[i])));
  std::printf("loss %.3f, off by %.3f at most\n", loss, worst);
  return worst < 0.2 ? 0 : 1;
}
