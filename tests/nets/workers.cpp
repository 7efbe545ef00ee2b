#include "tests/nets/workers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <random>
#include <stdexcept>
#include <thread>

namespace convlab::nets {
namespace {

// The worker's part of values that lie image by image.
template <class T>
std::vector<T> share(const std::vector<T>& all, std::size_t worker, std::size_t workers) {
  const std::size_t count = all.size() / workers;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(worker * count);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

WorkersResult train(const WorkersSetting& setting, std::size_t worker, std::size_t workers,
                    std::int64_t batch, ThreadSums& sums) {
  const auto device = setting.device();
  const Graph graph = setting.graph(batch / std::int64_t(workers));
  const auto all_reduce = [&](std::span<double> values) { sums.add(worker, values); };
  NetOptions options{.input_gradient = true, .poison = true};
  if (setting.synchronised && workers > 1) options.all_reduce_sums = all_reduce;
  NetLab lab(graph,
             uniform_plan(graph, Mode::training, setting.dtype, setting.algo, setting.layout,
                          *device, 0, *setting.registry),
             *device, options, 1, *setting.registry);

  const Shape &x = graph.nodes().front().shape, &y = graph.nodes().back().shape;
  lab.set_input(share(random_values(batch * x.c * x.pixels(), 5), worker, workers));
  std::mt19937_64 random(6);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(batch));
  for (std::int32_t& label : labels) label = std::int32_t(random() % std::uint64_t(y.c));
  lab.net().set_labels(share(labels, worker, workers));

  WorkersResult result;
  for (int step = 0; step < 2; ++step) {
    result.loss = lab.forward();
    result.output = lab.output();
    lab.net().backward();
    for (const Parameter& p : lab.net().parameters()) {
      if (p.gradient == nullptr) continue;
      Values gradient = lab.read(p.gradient, p.count);
      all_reduce(gradient);
      for (double& g : gradient) g /= double(workers);
      lab.write(p.gradient, gradient);
    }
    result.gradients = lab.gradients();
    lab.net().update(SgdDesc{.rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
  }
  for (const Parameter& p : lab.net().parameters())
    result.parameters[p.name] = lab.read(p.value, p.count);
  return result;
}

}  // namespace

Graph smooth(const Graph& net) {
  Graph result(net.name());
  for (const Node& node : net.nodes()) {
    Layer layer = node.layer;
    if (auto* activation = std::get_if<Activation>(&layer))
      if (activation->kind == Activation::Kind::relu) activation->kind = Activation::Kind::tanh;
    result.add(node.name, layer, node.inputs);
  }
  return result;
}

void ThreadSums::add(std::size_t worker, std::span<double> values) {
  given_[worker].assign(values.begin(), values.end());
  everyone_.arrive_and_wait();
  std::fill(values.begin(), values.end(), 0.0);
  for (const Values& given : given_) {
    if (given.size() != values.size()) throw std::logic_error("workers add different arrays");
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += given[i];
  }
  everyone_.arrive_and_wait();  // what was given stays until all have read it
}

WorkersResult train_on_workers(const WorkersSetting& setting, std::size_t workers,
                               std::int64_t batch) {
  ThreadSums sums(workers);
  std::vector<WorkersResult> results(workers);
  std::vector<std::exception_ptr> errors(workers);
  std::vector<std::thread> threads;
  for (std::size_t worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      try {
        results[worker] = train(setting, worker, workers, batch, sums);
      } catch (...) {
        errors[worker] = std::current_exception();
        sums.leave();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);

  // Each worker's loss is the mean over its share, so its input's gradient is that many times
  // larger.
  WorkersResult all = results[0];
  for (std::size_t worker = 1; worker < workers; ++worker) {
    const WorkersResult& part = results[worker];
    all.loss += part.loss;
    const auto append = [](Values& to, const Values& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.output, part.output);
    append(all.gradients["input"], part.gradients.at("input"));
    if (setting.synchronised) {
      EXPECT_EQ(part.parameters, all.parameters) << "of worker " << worker;
    }
  }
  all.loss /= double(workers);
  for (double& g : all.gradients["input"]) g /= double(workers);
  return all;
}

void expect_same(const WorkersResult& got, const WorkersResult& expected, double tolerance) {
  EXPECT_NEAR(got.loss, expected.loss, tolerance * std::abs(expected.loss));
  EXPECT_LE(relative_error(got.output, expected.output), tolerance);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, values] : expected.gradients)
    EXPECT_LE(relative_error(got.gradients.at(name), values), tolerance) << "gradient of " << name;
  ASSERT_EQ(got.parameters.size(), expected.parameters.size());
  for (const auto& [name, values] : expected.parameters)
    EXPECT_LE(relative_error(got.parameters.at(name), values), tolerance) << name;
}

}  // namespace convlab::nets
