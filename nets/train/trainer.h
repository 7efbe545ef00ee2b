// Trains a net on a loader's images, epoch by epoch:
//
//   Trainer trainer(net, loader, {.epochs = 10, .rule = SgdDesc{.rate = 0.1, .momentum = 0.9}});
//   trainer.test_with(inference_net, test_loader);
//   trainer.run();
//
// Callbacks report progress and may stop training. With a checkpoint it resumes where it stopped
// and gives the same numbers as an uninterrupted run: the same bits with the checkpoint's plan, if
// that is deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "conv/error.h"
#include "nets/data/loader.h"
#include "nets/net.h"
#include "nets/train/checkpoint.h"
#include "nets/train/schedule.h"
#include "nets/train/scores.h"

namespace convlab::nets {

// The loss, or a weight, became infinite or NaN.
class Diverged : public Error {
 public:
  using Error::Error;
};

struct StepReport {
  std::int64_t epoch = 0, epochs = 0;  // this step's, from 0
  std::int64_t step = 0, steps = 0;    // of the epoch, from 0
  double rate = 0;
  double loss = 0;  // of this step's batch
  Scores scores;    // of the epoch so far
};

struct EpochReport {
  std::int64_t epoch = 0, epochs = 0;  // from 0
  double rate = 0;                     // of its last step
  Scores train;                        // during training
  std::optional<Scores> test;          // after it, if there is a test set
  bool best = false;                   // no earlier epoch had a higher share of test images right
};

struct TrainOptions {
  std::int64_t epochs = 10;
  UpdateRule rule = SgdDesc{.rate = 0.1, .momentum = 0.9};  // at the schedule's highest rate
  Schedule schedule = Schedule();  // written so, GCC 12 sees that it is initialised
  // Written after each epoch, when this much time has passed, and when a callback stops training.
  // Empty: none.
  std::string checkpoint{};
  double checkpoint_every_s = 600;
  // The seed of the net, its dropout and the loader, and the source of the images. Checkpoints
  // store them, and cannot resume with others. `notes` are stored beside them.
  std::uint64_t seed = 1;
  std::string data{};
  std::map<std::string, std::string> notes{};
  // Training stops after the step or epoch for which one of these returns false.
  std::function<bool(const StepReport&)> on_step{};
  std::function<bool(const EpochReport&)> on_epoch{};
};

class Trainer {
 public:
  // The net is in training mode with cross entropy as its loss; the loader makes batches of its
  // size and type. Both outlive the trainer. Throws InputError for invalid options.
  Trainer(Net&, DataLoader&, TrainOptions);

  // After each epoch this net, in inference mode, copies the trained one's parameters and
  // classifies these images. `go_on`, called after each batch, may stop training.
  void test_with(Net& inference, DataLoader&, std::function<bool()> go_on = {});

  // Throws InputError for a checkpoint of another net, type, batch, seed, data or optimizer.
  void resume(const Checkpoint&);

  // True when all epochs are done, false when it was stopped. Throws Diverged, naming step and
  // layer, when the loss or a weight becomes NaN or infinite; the checkpoint then stays unchanged.
  bool run();

  const TrainingState& state() const { return state_; }

 private:
  bool train_epoch();
  void take_step(const Batch&);
  bool finish_epoch();
  void save();
  std::string where_it_diverged(double loss);

  Net& net_;
  DataLoader& loader_;
  TrainOptions options_;
  Net* test_net_ = nullptr;
  DataLoader* test_loader_ = nullptr;
  std::function<bool()> go_on_;
  TrainingState state_;
  double rate_ = 0, loss_ = 0;  // of the last step
  double saved_s_ = 0;          // time of the last checkpoint
  std::vector<std::byte> output_;
};

}  // namespace convlab::nets
