#include "kernels_cuda/device/lazy_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include "conv/error.h"

namespace convlab::cuda {

// The loader's own search comes first (LD_LIBRARY_PATH, the package's folder, what the process has
// loaded already).
void* LazyLibrary::open() const {
  const std::string file = file_ + std::to_string(version_), there = folder_ + ("/" + file);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library && *folder_ && access(there.c_str(), F_OK) == 0)
    library = dlopen(there.c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

void LazyLibrary::load() {
  const std::lock_guard lock(mutex_);
  if (loaded_) return;
  const auto fail = [&] {
    throw EnvironmentError(fmt::format("{}: {}; {}", name_, dlerror(), remedy_));
  };
  void* const library = open();
  if (!library) fail();
  for (LazySymbol* symbol = symbols_; symbol; symbol = symbol->next_) {
    symbol->address_ = dlsym(library, symbol->name_);
    if (!symbol->address_) fail();
  }
  loaded_.store(true, std::memory_order_release);
}

std::string LazyLibrary::obstacle() try {
  load();
  return {};
} catch (const EnvironmentError& error) {
  return error.what();
}

}  // namespace convlab::cuda
