#include "autotune/race/loss.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "conv/error.h"

namespace convlab {

Loss loss_by(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DeviceLost&) {
    throw;
  } catch (const EnvironmentError& e) {
    return {Status::refused, e.what()};
  } catch (const std::bad_alloc&) {
    return {Status::refused, "out of memory"};
  } catch (const std::system_error& e) {  // thread creation failed
    return {Status::refused, e.what()};
  } catch (const std::exception& e) {
    return {Status::failed, e.what()};
  }
}

Loss loss_by_end(int wait_status) {
  if (!WIFSIGNALED(wait_status))
    return {Status::refused,
            fmt::format("its process ended with exit status {}", WEXITSTATUS(wait_status))};
  const int signal = WTERMSIG(wait_status);
  const std::string what = fmt::format("signal {} ({})", signal, ::strsignal(signal));
  for (const int own : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
    if (signal == own) return {Status::failed, "crashed: " + what};
  return {Status::refused, fmt::format("its process was killed: {}{}", what,
                                       signal == SIGKILL ? ", as when memory runs out" : "")};
}

void exit_when_the_machine_fails() {
  std::set_terminate([] {
    try {
      if (const std::exception_ptr thrown = std::current_exception())
        if (const Loss loss = loss_by(thrown); loss.status == Status::refused) {
          fmt::print(stderr, "convlab: worker: {}\n", loss.reason);
          std::_Exit(EXIT_FAILURE);
        }
    } catch (...) {
    }
    std::abort();
  });
}

}  // namespace convlab
