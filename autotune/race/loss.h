// How a candidate ended that did not end well: by its own doing, which is worth remembering, or for
// want of something that the machine may have the next time, which is not.
#pragma once

#include <exception>
#include <string>

#include "autotune/result.h"

namespace convlab {

struct Loss {
  Status status = Status::failed;  // refused: not its own doing
  std::string reason;
};

// By what it threw. Throws DeviceLost on: that is not about one candidate.
Loss loss_by(const std::exception_ptr&);

// By how its process ended, as waitpid says. A signal that a wrong program gets, SIGSEGV or SIGABRT
// say, is its own doing. Others come from outside: SIGKILL when memory runs out, SIGXCPU at a
// limit. So does an exit, which no candidate calls: it is how OpenMP's runtime and OpenBLAS end
// when threads or memory are not to be had.
Loss loss_by_end(int wait_status);

// An exception that leaves a parallel loop ends the process as a crash would. In a worker, one that
// loss_by() calls no doing of the candidate ends it by an exit instead.
void exit_when_the_machine_fails();

}  // namespace convlab
