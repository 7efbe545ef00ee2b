// Trains a net on a loader's images, epoch by epoch:
//
//   Trainer trainer(net, loader, {.epochs = 10, .rule = SgdDesc{.rate = 0.1, .momentum = 0.9}});
//   trainer.test_with(inference_net, test_loader);
//   trainer.run();
//
// Callbacks report progress and may stop training. With a checkpoint it resumes where it stopped
// and gives the same numbers as an uninterrupted run: the same bits with the checkpoint's plan, if
// that is deterministic.
//
// With a communicator, several ranks train one net, each with its own Net and a loader that makes
// its share of each batch (LoaderOptions::rank). Gradients are averaged in each step. Batch norm
// uses a rank's own images, unless NetOptions::all_reduce_sums is Communicator::sum; rank 0's
// running statistics are kept. Give each rank's net the place of its share, rank * batch / ranks,
// as NetOptions::first_image. All ranks report the same numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conv/error.h"
#include "nets/data/loader.h"
#include "nets/distributed/exchange.h"
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

// A rank's part in an epoch.
struct RankTime {
  double busy_s = 0;        // with its batches, forward, backward and updates
  double waited_for_s = 0;  // by all others, while it alone had no gradients to exchange yet
};

struct EpochReport {
  std::int64_t epoch = 0, epochs = 0;  // from 0
  double rate = 0;                     // of its last step
  Scores train;                        // during training
  std::optional<Scores> test;          // after it, if there is a test set
  bool best = false;                   // no earlier epoch had a higher share of test images right
  // With several ranks: theirs, and this rank's exchange of gradients, of which training waited for
  // the exposed part.
  std::vector<RankTime> ranks{};
  double communicated_s = 0, exposed_s = 0;
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
  // Null: there are no other ranks. Outlives the trainer. Only rank 0 writes checkpoints.
  Communicator* communicator = nullptr;
  ExchangeOptions exchange{};
  // Training stops after the step or epoch for which one of these returns false; with several
  // ranks, on all after the next step at the latest.
  std::function<bool(const StepReport&)> on_step{};
  std::function<bool(const EpochReport&)> on_epoch{};
};

class Trainer {
 public:
  // The net is in training mode with cross entropy as its loss; the loader makes batches of its
  // size and type. Both outlive the trainer. Collective. Throws InputError for invalid options, and
  // on all ranks if options differ between them.
  Trainer(Net&, DataLoader&, TrainOptions);

  // After each epoch this net, in inference mode, copies the trained one's parameters and
  // classifies these images, each rank its share. `go_on`, called after each batch, may stop
  // training.
  void test_with(Net& inference, DataLoader&, std::function<bool()> go_on = {});

  // Throws InputError for a checkpoint of another net, type, batch, seed, data or optimizer.
  void resume(const Checkpoint&);

  // True when all epochs are done, false when it was stopped. Throws Diverged, naming step and
  // layer, when the loss or a weight becomes NaN or infinite; the checkpoint then stays unchanged.
  // Collective: throws RankLost when another rank gave up, InputError when ranks resumed at
  // different steps, and Error when weights differ between ranks after an epoch.
  bool run();

  // Classifies the test images as after an epoch, without training. Collective. nullopt when
  // `go_on` stopped it.
  std::optional<Scores> test();

  const TrainingState& state() const { return state_; }
  const GradientExchange* exchange() const { return exchange_.get(); }  // null with one rank

 private:
  // What the ranks tell one another in each step.
  struct Share {
    double loss = 0;
    double busy_s = 0;  // until its gradients were ready
    Scores scores;
    std::int64_t go_on = 1;  // after the step before
  };

  int ranks() const { return communicator_ ? communicator_->size() : 1; }
  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  bool all_go_on(bool mine);
  bool train();
  bool train_epoch();
  void take_step(const Batch&);
  Scores add_shares(const Share& mine);
  bool finish_epoch();
  void report_ranks(EpochReport&);
  void save();
  std::string where_it_diverged(double loss);

  Net& net_;
  DataLoader& loader_;
  TrainOptions options_;
  Communicator* communicator_;                  // null: one rank
  std::unique_ptr<GradientExchange> exchange_;  // with several ranks
  Net* test_net_ = nullptr;
  DataLoader* test_loader_ = nullptr;
  std::function<bool()> go_on_;
  TrainingState state_;
  double rate_ = 0, loss_ = 0;  // of the last step
  double saved_s_ = 0;          // time of the last checkpoint
  bool go_on_here_ = true, go_on_everywhere_ = true;
  bool all_fail_ = false;  // if this rank fails now, all others fail likewise
  double step_begin_s_ = 0;
  std::vector<RankTime> times_;                              // of the epoch
  double communicated_before_s_ = 0, exposed_before_s_ = 0;  // in earlier epochs
  std::vector<std::byte> output_;
};

}  // namespace convlab::nets
