#include "nets/distributed/mpi/mpi.h"

#include <fmt/format.h>
#include <mpi.h>

#include <atomic>
#include <climits>
#include <mutex>

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

class MpiCommunicator : public MessageCommunicator {
 public:
  // `owns`: finalises MPI.
  MpiCommunicator(MPI_Comm ranks, bool owns) : ranks_(ranks), owns_(owns) {
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
  }
  // Freeing and finalising are collective: after an exception the others may not take part.
  ~MpiCommunicator() override {
    const std::lock_guard lock(mpi_mutex());
    if (given_up()) return;
    if (owns_)
      MPI_Finalize();
    else
      MPI_Comm_free(&ranks_);
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
    const std::lock_guard lock(mpi_mutex());
    MPI_Comm other;
    check(MPI_Comm_dup(ranks_, &other), "cannot duplicate the communicator");
    auto copy = std::make_unique<MpiCommunicator>(other, false);
    copy->patience_s = patience_s;
    return copy;
  }
  void abandon(const std::string&) noexcept override { given_up() = true; }
  bool has_abandoned() const noexcept override { return given_up(); }

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
  auto ranks = std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, true);
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
