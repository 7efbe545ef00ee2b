#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

#include "nets/distributed/mpi/mpi.h"

namespace convlab::nets {
namespace {

std::optional<int> number(const std::string& variable) {
  const char* const text = std::getenv(variable.c_str());
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

struct Place {
  int rank = 0, size = 1;
};
// nullopt where there is none, or one that no launcher sets.
std::optional<Place> place(const std::string& rank_variable, const std::string& size_variable) {
  const auto rank = number(rank_variable), size = number(size_variable);
  if (!rank || !size || *rank < 0 || *rank >= *size) return std::nullopt;
  return Place{*rank, *size};
}

}  // namespace

// The names are Open MPI's; MPICH and Slurm have no other common ones than PMI's.
std::optional<MpiPlace> mpi_place() {
  std::optional<Place> all = place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                       host = place("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!all) {
    all = place("PMI_RANK", "PMI_SIZE");
    host = place("MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  }
  if (!all) return std::nullopt;
  const Place of_host = host.value_or(Place());
  return MpiPlace{all->rank, all->size, of_host.rank, of_host.size};
}

}  // namespace convlab::nets
