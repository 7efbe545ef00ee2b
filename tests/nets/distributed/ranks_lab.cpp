#include "tests/nets/distributed/ranks_lab.h"

#include <exception>
#include <mutex>
#include <thread>

#include "nets/tensor.h"

namespace convlab::nets {
namespace {

DataLoader share_of(const Dataset& images, bool train, int rank, int ranks, DType dtype,
                    Device& device) {
  Transform transform;
  transform.channels = 1;
  transform.height = transform.width = 8;
  transform.random_flip = train;
  transform.mean = transform.deviation = {0.5};
  return DataLoader(images, transform,
                    {.batch = RankLab::batch,
                     .rank = rank,
                     .ranks = ranks,
                     .shuffle = train,
                     .drop_last = train,
                     .dtype = dtype},
                    device);
}

}  // namespace

void on_ranks(int size, const std::function<void(Communicator&)>& run, double patience_s) {
  const std::vector<std::unique_ptr<Communicator>> ranks = in_process_communicators(size);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (const auto& rank : ranks)
    threads.emplace_back([&] {
      rank->patience.limit_s = patience_s;
      try {
        run(*rank);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        rank->abandon(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

namespace {

Graph net_of(std::int64_t batch, bool normalised) {
  Graph net(normalised ? "normalised" : "plain");
  const auto conv = [&](Tensor x, const std::string& number, std::int64_t filters) {
    x = x.conv("conv" + number, {.filters = filters, .kernel = 3, .pad = 1, .bias = !normalised});
    return (normalised ? x.batch_norm("bn" + number) : x).relu("relu" + number);
  };
  const Tensor x = conv(input(net, {batch, 1, 8, 8}), "1", 6).max_pool("pool", 2, 2);
  conv(x, "2", 5).dropout("drop", 0.3).linear("fc", 4);
  return net;
}

}  // namespace

Graph plain_net(std::int64_t batch) { return net_of(batch, false); }
Graph normalised_net(std::int64_t batch) { return net_of(batch, true); }

RankLab::RankLab(int rank, int ranks, DType dtype, std::unique_ptr<Device> on,
                 Graph (*graph)(std::int64_t batch), AllReduceSums all_reduce_sums)
    : device(std::move(on)),
      images(40),
      test_images(20, 2),
      net(graph(batch / ranks),
          uniform_plan(graph(batch / ranks), Mode::training, dtype, "im2col", Layout::nchw,
                       *device),
          cpu_algos(), *device,
          {.first_image = rank * batch / ranks, .all_reduce_sums = std::move(all_reduce_sums)}),
      test_net(graph(batch / ranks),
               uniform_plan(graph(batch / ranks), Mode::inference, dtype, "im2col", Layout::nchw,
                            *device),
               cpu_algos(), *device, {.loss = Loss::none}),
      loader(share_of(images, true, rank, ranks, dtype, *device)),
      test_loader(share_of(test_images, false, rank, ranks, dtype, *device)) {
  net.initialise(1);
}

Values RankLab::read(const std::byte* from, std::int64_t count) {
  std::vector<std::byte> host(std::size_t(count * size_of(net.plan().dtype)));
  net.read(from, host);
  Values values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(net.plan().dtype == DType::f64
                         ? reinterpret_cast<const double*>(host.data())[i]
                         : double(reinterpret_cast<const float*>(host.data())[i]));
  return values;
}

std::vector<Values> RankLab::weights() {
  std::vector<Values> all;
  for (const Parameter& p : net.parameters()) all.push_back(read(p.value, p.count));
  return all;
}

std::vector<Values> RankLab::gradients() {
  std::vector<Values> all;
  for (const Parameter& p : net.parameters()) all.push_back(read(p.gradient, p.count));
  return all;
}

void RankLab::step(GradientExchange* exchange) {
  const Batch* batch = loader.next();
  if (batch == nullptr) {
    loader.start(1);
    batch = loader.next();
  }
  net.set_input(batch->input);
  net.set_labels(batch->labels);
  net.forward();
  net.backward();
  if (exchange != nullptr) exchange->finish();
  net.update(SgdDesc{.rate = 0.05, .momentum = 0.9});
}

}  // namespace convlab::nets
