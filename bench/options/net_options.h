// The flags of the verbs that run a net, and what they ask for.
#pragma once

#include "autotune/tuner.h"
#include "bench/options/options.h"
#include "nets/data/transform.h"
#include "nets/plan/choose.h"

namespace convlab {

struct NetArguments {
  CommonOptions common;  // one target, at most one batch
  TuneOptions tune;      // what may be chosen: limits, algos, exclude
  bool forward_only = false;
  std::string plan_file;        // empty: choose
  std::int64_t iterations = 0;  // 0: by time
};

// NET, and every flag but those below and those of output.
void add_net_arguments(CLI::App&, NetArguments&);
void add_iterations(CLI::App&, NetArguments&);  // --iterations
// --mean, --deviation: those that are given stand in place of a transform's own, one number for all
// channels or one each. What makes no sense is refused where the transform is used.
void add_normalisation(CLI::App&, nets::PixelStatistics&);
// `where` precedes the names of the two in messages.
void normalise(nets::Transform&, const nets::PixelStatistics&, const std::string& where = "--");
// --plan FILE; refuses flags that choose beside it.
void add_plan_file(CLI::App&, NetArguments&);

struct PlannedNet {
  nets::Graph graph;
  nets::NetPlan plan;
};
// As the arguments say: the plan of the file, or one chosen by the store and, where that knows
// nothing, by predictions; then one line on stderr says which command fills it. Throws InputError
// for a missing target, a net that does not exist or does not fit the memory, a plan made for
// another net, batch, type, mode, machine or number of threads.
PlannedNet planned_net(const NetArguments&, const std::string& verb, const AlgoRegistry&, Device&);

// What planned_net chooses by, for whoever wants to choose otherwise as well.
nets::ChooseOptions choose_options(const NetArguments&, const Device&);
nets::Chosen choose_by_store(const nets::Graph&, const NetArguments&, const nets::ChooseOptions&,
                             const AlgoRegistry&, Device&);

}  // namespace convlab
