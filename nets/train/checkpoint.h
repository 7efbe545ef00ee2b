// The complete training state in one safetensors file: parameters and running statistics under
// their own names, so that it is also a weights file; the optimizer's state under
// "optimizer/0/NAME" and "optimizer/1/NAME"; and the training position in the metadata.
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
  // Fixed for the whole training. The order and the augmentation of images follow from seed and
  // epoch.
  std::string net;
  std::int64_t batch = 0;
  DType dtype = DType::f32;
  std::string data;
  std::int64_t steps = 0;  // per epoch
  std::uint64_t seed = 0;
  // The plans of the trained net and of the one that tested it: other algorithms round differently.
  NetPlan plan{};
  std::optional<NetPlan> test_plan{};
  // May change when training resumes, except for the kind of rule.
  UpdateRule rule;
  Schedule schedule;
  std::int64_t epochs = 0;
  // The position.
  std::int64_t epoch = 0, step = 0;  // the next ones
  NetCounters counters;
  Scores scores;    // of this epoch's steps
  double best = 0;  // share of held-out images classified correctly, at the best epoch's end
  std::map<std::string, std::string> notes{};  // more metadata
};

// Throws InputError for a name that does not end in .safetensors and as write_arrays does; the file
// is then unchanged. Throws Diverged (trainer.h) when a parameter is not finite.
void write_checkpoint(const std::string& file, Net&, const TrainingState&);

struct Checkpoint {
  std::string file;
  TrainingState state;
  std::shared_ptr<const ArrayReader> arrays;  // open
};

// Throws InputError, one line, for a file that is not a checkpoint or is damaged.
Checkpoint read_checkpoint(const std::string& file);
// Throws InputError unless training with this start can resume from the checkpoint: net, type,
// batch, data, seed, number of steps and kind of rule must match.
void require_fits(const Checkpoint&, const TrainingState& start);
// Restores parameters, optimizer state and counters from a checkpoint that fits. Throws InputError
// when its arrays differ from the net's and the rule's, or are not finite.
void restore(const Checkpoint&, const UpdateRule&, Net&);

}  // namespace convlab::nets
