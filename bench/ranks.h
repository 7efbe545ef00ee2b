// A verb that runs under mpirun: one process a rank, of which one speaks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/options/net_options.h"
#include "nets/distributed/exchange.h"
#include "nets/distributed/mpi/mpi.h"

namespace convlab {

struct ExchangeArguments {
  std::optional<nets::Strategy> strategy;  // default: overlapped
  std::optional<std::int64_t> bucket;      // bytes; 0: each parameter alone
  bool bf16 = false;
};
// --exchange --bucket --compress
void add_exchange(CLI::App&, ExchangeArguments&);

// An error that another rank, or this one, has told the user already.
class AlreadySaid : public Error {
 public:
  explicit AlreadySaid(int code) : Error("said already"), exit_code(code) {}
  const int exit_code;
};

class Ranks {
 public:
  // Under mpirun with several ranks it starts MPI. Throws EnvironmentError without MPI.
  Ranks();

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool speaks() const { return rank() == 0; }  // on stdout, and by files
  // Null with one rank.
  nets::Communicator* communicator() const { return communicator_.get(); }

  // Throws InputError if a flag that says how ranks work together is given without mpirun.
  void require_mpirun_for(const std::string& flag, bool given) const;
  void require_mpirun_for(const ExchangeArguments&) const;
  // This rank's part of the batch. Throws InputError if `flag` does not divide among the ranks.
  std::int64_t share(std::int64_t batch, const std::string& flag = "--batch") const;
  // Gives each rank of a host a card of its own, from the one that --device names on; on the CPU
  // divides its cores among them where --threads says nothing. Throws InputError for too few cards.
  void divide_host(CommonOptions&) const;
  // With a thread for the exchange where a core is left for it.
  nets::ExchangeOptions exchange(const ExchangeArguments&, const Device&) const;

  // Collective. `mine` is null on all ranks but 0. Throws InputError, the same on all ranks, unless
  // all devices are of one kind with as many threads: a plan is for these.
  nets::NetPlan plan_of_rank_0(const nets::NetPlan* mine, const Device&) const;
  // Collective, with an agree(): each rank's net, by rank 0's plan.
  PlannedNet planned_net(const NetArguments&, const std::string& verb, const nets::NetAlgos&,
                         Device&);

  // Runs the verb of this name. If it throws before agree() on any rank, it ends on all, and the
  // first such rank says why. The function calls agree() before each collective call of its
  // preparation, and begin() when that is over.
  int run(const std::string& name, const std::function<int()>& verb);
  void agree();
  void begin();

 private:
  void settle(const std::string& mine);

  bool by_mpirun_;
  nets::MpiPlace place_;
  std::unique_ptr<nets::Communicator> communicator_;
  bool preparing_ = true;
};

}  // namespace convlab
