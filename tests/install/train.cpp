// A program that trains, as somebody would write it who uses convlab as a library: the loop by
// hand, then the same by a Trainer. Built inside the project, from an installed package, and as a
// subdirectory of another project.
#include <cstdio>

#include "kernels_cpu/cpu.h"
#include "nets/choose.h"
#include "nets/train/trainer.h"
#include "nets/zoo.h"

int main(int argc, char** argv) {
  using namespace convlab;
  const auto device = make_cpu_device();
  AlgoRegistry algos;
  append_cpu_algos(algos);
  const auto data = open_dataset(argc > 1 ? argv[1] : "synthetic:640", Split::train);
  const Graph graph = make_net("lenet", 32, std::int64_t(data->classes().size()));
  const NetPlan plan = choose_plan(graph, {}, algos, *device, nullptr).plan;

  Net net(graph, plan, algos, *device);
  net.initialise(1);
  const Transform transform = usual_transform(*data, 1, 28, 28, Split::train);
  DataLoader loader(*data, transform, {.batch = 32, .shuffle = true, .drop_last = true}, *device);
  for (int epoch = 0; epoch < 3; ++epoch) {
    loader.start(epoch);
    while (const Batch* batch = loader.next()) {
      net.set_input(batch->input);
      net.set_labels(batch->labels);
      net.forward();
      net.backward();
      net.update(SgdDesc{.rate = 0.02, .momentum = 0.9});
    }
    std::printf("epoch %d: loss %.3f\n", epoch + 1, net.loss());
  }

  Trainer trainer(net, loader, {.epochs = 2, .rule = AdamDesc{}, .on_epoch = [](const auto& r) {
                                  std::printf("accuracy %.1f%%\n", 100 * r.train.top1_rate());
                                  return true;
                                }});
  return trainer.run() ? 0 : 1;
}
