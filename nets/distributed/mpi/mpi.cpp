#include "nets/distributed/mpi/mpi.h"

#include <fmt/format.h>
#include <mpi.h>

#include <atomic>
#include <climits>
#include <mutex>
#include <set>
#include <utility>

#include "nets/distributed/messages.h"

namespace convlab::nets {
namespace {

// With MPI_THREAD_SERIALIZED, threads may call MPI one at a time.
std::mutex& mpi_mutex() {
  static std::mutex mutex;
  return mutex;
}

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw RankLost(fmt::format("{}: {}", what, text));
}

class Transfer : public Pending {
 public:
  Transfer(MPI_Request request, int peer) : request_(request), peer_(peer) {}
  bool progress() override {
    const std::lock_guard lock(mpi_mutex());
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE),
          fmt::format("rank {} does not answer", peer_).c_str());
    return done != 0;
  }
  std::optional<int> waits_for() const override { return peer_; }

 private:
  MPI_Request request_;
  int peer_;
};

// Which ranks have waited for long, as they say in messages on a communicator of their own. Used
// under the lock.
class LongWaits {
 public:
  explicit LongWaits(MPI_Comm ranks) {
    check(MPI_Comm_dup(ranks, &ranks_), "cannot duplicate the communicator");
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
  }
  // Collective.
  void free() {
    receive();
    MPI_Comm_free(&ranks_);
  }

  // Of one of this rank's threads.
  void set(bool waiting) {
    waits_ += waiting ? 1 : -1;
    if (waits_ == (waiting ? 1 : 0)) send(waiting);
  }
  std::vector<int> ranks() {
    receive();
    return {waiting_.begin(), waiting_.end()};
  }
  // What others have said, if it is here.
  void receive() {
    for (int there = 1; there != 0;) {
      MPI_Status from;
      if (MPI_Iprobe(MPI_ANY_SOURCE, 0, ranks_, &there, &from) != MPI_SUCCESS || there == 0) return;
      std::uint8_t waiting = 0;
      if (MPI_Recv(&waiting, 1, MPI_BYTE, from.MPI_SOURCE, 0, ranks_, MPI_STATUS_IGNORE) ==
          MPI_SUCCESS)
        take(from.MPI_SOURCE, waiting != 0);
    }
  }

 private:
  // Nobody waits for these messages, sent or received: a rank that is stopped takes none.
  void send(bool waiting) {
    static const std::uint8_t messages[2] = {0, 1};
    take(rank_, waiting);
    for (int r = 0; r < size_; ++r) {
      MPI_Request request;
      if (r != rank_ &&
          MPI_Isend(&messages[waiting], 1, MPI_BYTE, r, 0, ranks_, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
  }
  void take(int rank, bool waiting) {
    if (waiting)
      waiting_.insert(rank);
    else
      waiting_.erase(rank);
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, waits_ = 0;
  std::set<int> waiting_;
};

class MpiCommunicator : public MessageCommunicator {
 public:
  // Without the waits of another it is the first, which finalises MPI.
  explicit MpiCommunicator(MPI_Comm ranks, std::shared_ptr<LongWaits> waits = nullptr)
      : ranks_(ranks), owns_(!waits), waits_(std::move(waits)) {
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    if (owns_) waits_ = std::make_shared<LongWaits>(ranks_);
  }
  // Freeing and finalising are collective: after an exception the others may not take part.
  ~MpiCommunicator() override {
    const std::lock_guard lock(mpi_mutex());
    if (given_up()) return;
    if (owns_) {
      waits_->free();
      MPI_Finalize();
    } else {
      MPI_Comm_free(&ranks_);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Pending> send(int to, ConstSpan message) override {
    const std::lock_guard lock(mpi_mutex());
    MPI_Request request;
    check(MPI_Isend(message.data(), count(message), MPI_BYTE, to, 0, ranks_, &request),
          "cannot send");
    return std::make_unique<Transfer>(request, to);
  }
  std::unique_ptr<Pending> receive(int from, Span message) override {
    const std::lock_guard lock(mpi_mutex());
    MPI_Request request;
    check(MPI_Irecv(message.data(), count(message), MPI_BYTE, from, 0, ranks_, &request),
          "cannot receive");
    return std::make_unique<Transfer>(request, from);
  }
  std::unique_ptr<Communicator> duplicate() override {
    barrier();  // MPI's duplication has no patience, so all begin it at once
    const std::lock_guard lock(mpi_mutex());
    MPI_Comm other;
    check(MPI_Comm_dup(ranks_, &other), "cannot duplicate the communicator");
    auto copy = std::make_unique<MpiCommunicator>(other, waits_);
    copy->patience = patience;
    return copy;
  }
  std::unique_ptr<Pending> start_average(Span values, const Average& how) override {
    {
      // A rank that never waits for long takes these messages too, or they pile up.
      const std::lock_guard lock(mpi_mutex());
      waits_->receive();
    }
    return MessageCommunicator::start_average(values, how);
  }
  void abandon(const std::string&) noexcept override { given_up() = true; }
  bool has_abandoned() const noexcept override { return given_up(); }

 protected:
  void set_waiting(bool now) noexcept override {
    const std::lock_guard lock(mpi_mutex());
    waits_->set(now);
  }
  std::vector<int> waiting_ranks() override {
    const std::lock_guard lock(mpi_mutex());
    return waits_->ranks();
  }

 private:
  static std::atomic<bool>& given_up() {
    static std::atomic<bool> value = false;
    return value;
  }
  static int count(ConstSpan message) {
    if (message.size() > std::size_t(INT_MAX))
      throw InputError(
          fmt::format("a message of {} bytes: expected smaller buckets", message.size()));
    return int(message.size());
  }

  MPI_Comm ranks_;
  bool owns_;
  std::shared_ptr<LongWaits> waits_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

// Open MPI's text goes on with the host that built it.
std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string library(text, std::size_t(length));
  return library.substr(0, library.find_first_of(",\n"));
}

std::unique_ptr<Communicator> mpi_communicator() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
    throw EnvironmentError("MPI does not start");
  if (provided < MPI_THREAD_SERIALIZED)
    throw EnvironmentError("this MPI is not for threads: expected MPI_THREAD_SERIALIZED");
  auto ranks = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD);
  // Another MPI's mpirun, or srun, starts processes that this MPI takes for single ones.
  const MpiPlace place = mpi_place().value_or(MpiPlace());
  if (ranks->rank() != place.rank || ranks->size() != place.size)
    throw EnvironmentError(
        fmt::format("started as rank {} of {}, but {} finds rank {} of {}: expected the mpirun of "
                    "that MPI",
                    place.rank, place.size, mpi_library(), ranks->rank(), ranks->size()));
  return ranks;
}

}  // namespace convlab::nets
