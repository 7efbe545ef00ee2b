// A program that trains, as somebody would write it who uses convlab as a library: a net, a loop by
// hand, then a Trainer that goes on and tests on images held out. Built from an installed package,
// and as a subdirectory of another project; exits with 1 when the net has not learnt.
#include <cstdio>
#include <string>

#include "kernels_cpu/cpu.h"
#include "nets/plan/choose.h"
#include "nets/tensor.h"
#include "nets/train/trainer.h"

int main(int argc, char** argv) {
  using namespace convlab;
  using namespace convlab::nets;
  const std::string source = argc > 1 ? argv[1] : "synthetic:2000";
  const auto device = make_cpu_device();
  AlgoRegistry algos;
  append_cpu_algos(algos);
  const auto images = open_dataset(source, Split::train);

  Graph graph("small");
  Tensor x = input(graph, {32, 3, 32, 32});  // N C H W
  for (const std::int64_t k : {16, 32, 64}) {
    const std::string n = std::to_string(k);
    x = x.conv("conv" + n, {.filters = k, .kernel = 3, .pad = 1, .bias = false});
    x = x.batch_norm("bn" + n).relu("relu" + n).max_pool("pool" + n, 2, 2);
  }
  x.global_avg_pool("pool").linear("fc", std::int64_t(images->classes().size()));
  Net net(graph, choose_plan(graph, {}, algos, *device, nullptr).plan, algos, *device);
  net.initialise(1);

  const Transform augmented = usual_transform(*images, 3, 32, 32, Split::train);
  DataLoader loader(*images, augmented, {.batch = 32, .shuffle = true, .drop_last = true}, *device);
  const AdamDesc rule{.rate = 0.01};
  for (int epoch = 0; epoch < 4; ++epoch) {
    double loss = 0;
    loader.start(epoch);
    while (const Batch* batch = loader.next()) {
      net.set_input(batch->input);
      net.set_labels(batch->labels);
      net.forward();
      net.backward();
      net.update(rule);
      loss += net.loss();
    }
    std::printf("epoch %d: loss %.3f\n", epoch + 1, loss / double(loader.batches()));
  }

  const NetPlan plan = choose_plan(graph, {.mode = Mode::inference}, algos, *device, nullptr).plan;
  Net test_net(graph, plan, algos, *device, {.loss = Loss::none});
  const auto held_out = open_dataset(source, Split::test);
  const Transform plain = usual_transform(*held_out, 3, 32, 32, Split::test);
  DataLoader test_loader(*held_out, plain, {.batch = 32}, *device);

  double accuracy = 0;
  Trainer trainer(net, loader,
                  {.epochs = 6,
                   .rule = rule,
                   .schedule = parse_schedule("cosine"),
                   .on_epoch = [&](const auto& r) {
                     accuracy = r.test->top1_rate();
                     std::printf("accuracy %.1f%%\n", 100 * accuracy);
                     return true;
                   }});
  trainer.test_with(test_net, test_loader);
  trainer.run();
  return accuracy > 0.5 ? 0 : 1;
}
