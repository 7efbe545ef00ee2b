// Ranks that are processes started by mpirun.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "nets/distributed/communicator.h"

namespace convlab::nets {

// This process's place among those that mpirun started, from its environment.
struct MpiPlace {
  int rank = 0, size = 1;
  int host_rank = 0, host_size = 1;  // among the ranks of this host
};
// nullopt without mpirun.
std::optional<MpiPlace> mpi_place();

// Its name and version, "Open MPI v4.1.4"; empty if this build has no MPI.
std::string mpi_library();

// All ranks, once per process: it initialises MPI, and finalises it when it is destroyed, unless it
// was abandoned. mpirun then ends the other ranks as soon as this process ends with another exit
// code than 0. Throws EnvironmentError if this build has no MPI, and where MPI finds another place
// than mpi_place(): the processes were started by another MPI.
std::unique_ptr<Communicator> mpi_communicator();

}  // namespace convlab::nets
