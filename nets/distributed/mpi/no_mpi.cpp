#include "conv/error.h"
#include "nets/distributed/mpi/mpi.h"

namespace convlab::nets {

std::string mpi_library() { return ""; }

std::unique_ptr<Communicator> mpi_communicator() {
  throw EnvironmentError(
      "this build has no MPI: install libopenmpi-dev and openmpi-bin, then configure (cmake "
      "--preset "
      "user) and build again; without mpirun it trains on one machine");
}

}  // namespace convlab::nets
