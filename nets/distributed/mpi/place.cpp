#include <charconv>
#include <cstdlib>
#include <cstring>

#include "nets/distributed/mpi/mpi.h"

namespace convlab::nets {
namespace {

std::optional<int> number(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

// The names are Open MPI's; MPICH and Slurm have no other common ones than PMI's.
std::optional<MpiPlace> mpi_place() {
  const auto size = number("OMPI_COMM_WORLD_SIZE"), rank = number("OMPI_COMM_WORLD_RANK");
  if (size && rank)
    return MpiPlace{*rank, *size, number("OMPI_COMM_WORLD_LOCAL_RANK").value_or(0),
                    number("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(1)};
  const auto pmi_size = number("PMI_SIZE"), pmi_rank = number("PMI_RANK");
  if (pmi_size && pmi_rank)
    return MpiPlace{*pmi_rank, *pmi_size, number("MPI_LOCALRANKID").value_or(0),
                    number("MPI_LOCALNRANKS").value_or(1)};
  return std::nullopt;
}

}  // namespace convlab::nets
