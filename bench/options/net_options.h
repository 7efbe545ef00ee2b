// The flags of the verbs that run a net, and what they select.
#pragma once

#include "autotune/tuner.h"
#include "bench/options/options.h"
#include "nets/data/transform.h"
#include "nets/plan/choose.h"

namespace convlab {

struct NetArguments {
  CommonOptions common;  // one target, at most one batch
  TuneOptions tune;      // limits on the choice: limits, algos, exclude
  bool forward_only = false;
  bool training_only = false;   // takes no plan for inference
  std::string plan_file;        // empty: choose
  std::int64_t iterations = 0;  // 0: by time
};

// NET, and every flag but those below and those of output.
void add_net_arguments(CLI::App&, NetArguments&);
void add_iterations(CLI::App&, NetArguments&);  // --iterations
// --mean, --deviation: each replaces the transform's own value, with one number for all channels or
// one each. Invalid values are refused where the transform is used.
void add_normalisation(CLI::App&, nets::PixelStatistics&);
// `where` precedes the names of the two flags in messages.
void normalise(nets::Transform&, const nets::PixelStatistics&, const std::string& where = "--");
// Throws InputError for a net that takes clips where `data`, the value of --data or the like, has
// images: those of `synthetic` become clips.
void require_frames(const nets::Graph&, const std::string& data);
// --plan FILE; refuses flags that choose alongside it.
void add_plan_file(CLI::App&, NetArguments&);

// Throws InputError for no target, and for one that is a problem.
void require_net(const NetArguments&, const std::string& verb);

struct PlannedNet {
  nets::Graph graph;
  nets::NetPlan plan;
  std::string advice{};  // for stderr, once nothing is refused any more; empty: none
};
// Follows the arguments: the file's plan, or one chosen from the store and, for anything the store
// lacks, from predictions. In the latter case the advice is the command that fills the store.
// Throws InputError for a missing target, for a net that does not exist or does not fit in memory,
// and for a plan made for another net, batch, type, mode, machine or number of threads.
PlannedNet planned_net(const NetArguments&, const std::string& verb, const nets::NetAlgos&,
                       Device&);

// The options planned_net chooses by, for callers that make other choices too.
nets::ChooseOptions choose_options(const NetArguments&, const Device&);
nets::Chosen choose_by_store(const nets::Graph&, const NetArguments&, const nets::ChooseOptions&,
                             const nets::NetAlgos&, Device&);

}  // namespace convlab
