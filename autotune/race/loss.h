// How a candidate ended abnormally: by its own fault, which is stored, or because the machine
// lacked a resource, which may be available next time and is not stored.
#pragma once

#include <exception>
#include <string>

#include "autotune/result.h"

namespace convlab {

struct Loss {
  Status status = Status::failed;  // refused: not its own fault
  std::string reason;
};

// Classifies an exception. Rethrows DeviceLost, which is not about one candidate.
Loss loss_by(const std::exception_ptr&);

// Classifies the end of its process, as waitpid reports it. A signal that a faulty program gets,
// such as SIGSEGV or SIGABRT, is its own fault. Others come from outside: SIGKILL when memory runs
// out, SIGXCPU at a limit. An exit is not its fault either, since no candidate calls it: OpenMP's
// runtime and OpenBLAS exit when they get no threads or memory.
Loss loss_by_end(int wait_status);

// An exception that leaves a parallel loop ends the process as a crash would. This makes a worker
// exit instead if loss_by() says that the exception is not the candidate's own fault.
void exit_when_the_machine_fails();

}  // namespace convlab
