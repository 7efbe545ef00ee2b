// Trains a net on a loader's images, epoch by epoch:
//
//   Trainer trainer(net, loader, {.epochs = 10, .rule = SgdDesc{.rate = 0.1, .momentum = 0.9}});
//   trainer.test_with(inference_net, test_loader);
//   trainer.run();
//
// Callbacks tell how it goes and may stop it. With a checkpoint it goes on later where it stopped,
// to the same numbers as if it had not: to the same bits by the checkpoint's plan, if that is
// deterministic.
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
  Scores train;                        // while it was trained
  std::optional<Scores> test;          // afterwards, if there is something to test with
  bool best = false;                   // no epoch before had a higher share of test images right
};

struct TrainOptions {
  std::int64_t epochs = 10;
  UpdateRule rule = SgdDesc{.rate = 0.1, .momentum = 0.9};  // at the schedule's highest rate
  Schedule schedule = Schedule();  // so written, GCC 12 sees that it is initialised
  // Written after each epoch, when so much time has passed, and when a callback stops training.
  // Empty: none.
  std::string checkpoint{};
  double checkpoint_every_s = 600;
  // What the net, its dropout and the loader were seeded with, and where the images are from: kept
  // in checkpoints, which cannot go on with others. `notes` are kept beside them.
  std::uint64_t seed = 1;
  std::string data{};
  std::map<std::string, std::string> notes{};
  // Training stops after the step or epoch for which one returns false.
  std::function<bool(const StepReport&)> on_step{};
  std::function<bool(const EpochReport&)> on_epoch{};
};

class Trainer {
 public:
  // The net is in training mode with cross entropy for its loss; the loader makes batches of its
  // size and type. Both outlive the trainer. Throws InputError for options that make no sense.
  Trainer(Net&, DataLoader&, TrainOptions);

  // After each epoch this net, in inference mode, takes the trained one's parameters and classifies
  // these images. Asked after each batch, `go_on` may stop training.
  void test_with(Net& inference, DataLoader&, std::function<bool()> go_on = {});

  // Throws InputError for a checkpoint of another net, type, batch, seed, data or optimizer.
  void resume(const Checkpoint&);

  // True when all epochs are done, false when it was stopped. Throws Diverged, naming step and
  // layer, when the loss or a weight becomes NaN or infinite; the checkpoint is then as it was.
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
  double saved_s_ = 0;          // when
  std::vector<std::byte> output_;
};

}  // namespace convlab::nets
