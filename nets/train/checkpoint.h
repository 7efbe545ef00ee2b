// All that training goes on from, in one safetensors file: parameters and running statistics under
// their own names, so that it is a file of weights as well; the optimizer's state under
// "optimizer/0/NAME" and "optimizer/1/NAME"; and in the metadata where training is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "nets/net.h"
#include "nets/train/schedule.h"
#include "nets/train/scores.h"
#include "nets/weights/arrays.h"

namespace convlab::nets {

struct TrainingState {
  // What stays as it is. The order and the augmentation of images follow from seed and epoch.
  std::string net;
  std::int64_t batch = 0;
  DType dtype = DType::f32;
  std::string data;
  std::int64_t steps = 0;  // an epoch
  std::uint64_t seed = 0;
  // How the net ran, and the one that tested it: other algorithms round otherwise.
  NetPlan plan{};
  std::optional<NetPlan> test_plan{};
  // What may be changed when training goes on, but for the kind of rule.
  UpdateRule rule;
  Schedule schedule;
  std::int64_t epochs = 0;
  // How far it has come.
  std::int64_t epoch = 0, step = 0;  // that come next
  NetCounters counters;
  Scores scores;    // of this epoch's steps
  double best = 0;  // share of held-out images classified rightly, at the best epoch's end
  std::map<std::string, std::string> notes{};  // more metadata
};

// Throws InputError for a name that does not end in .safetensors, and as write_arrays does, before
// which the file is as it was; Diverged (trainer.h) when a parameter is not finite.
void write_checkpoint(const std::string& file, Net&, const TrainingState&);

struct Checkpoint {
  std::string file;
  TrainingState state;
  std::shared_ptr<const ArrayReader> arrays;  // open
};

// Throws InputError, one line, for a file that is no checkpoint or was damaged.
Checkpoint read_checkpoint(const std::string& file);
// Throws InputError unless training that starts so can go on from there: with a checkpoint of
// another net, type, batch, data, seed, number of steps or kind of rule.
void require_fits(const Checkpoint&, const TrainingState& start);
// Parameters, optimizer state and counters, of a checkpoint that fits. Throws InputError when its
// arrays are others than the net's and the rule's, or not finite.
void restore(const Checkpoint&, const UpdateRule&, Net&);

}  // namespace convlab::nets
