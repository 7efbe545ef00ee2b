// Shared libraries that are loaded when one of their functions is first called. cuBLAS, cuFFT and
// cuDNN take a gigabyte. A program that links them maps and relocates it at every start, even to
// use the CPU alone, and does not start if they are missing or memory is limited.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

namespace convlab::cuda {

class LazySymbol;

// Never unloaded. Neither constructed nor destroyed at run time (`constinit`), so that functions
// may be declared, and called, in any static object.
class LazyLibrary {
 public:
  // {"cuBLAS", "libcublas.so.", 13, its folder when this was built, the remedy if it is missing}.
  // The major version is the headers', since another one has other functions under the same names.
  // The folder may be empty.
  constexpr LazyLibrary(const char* name, const char* file, int version, const char* folder,
                        const char* remedy)
      : name_(name), file_(file), version_(version), folder_(folder), remedy_(remedy) {}
  LazyLibrary(const LazyLibrary&) = delete;

  // Loads the library and finds every function declared of it, unless that is done. Throws
  // EnvironmentError. Any thread may call it.
  void load();
  // The message that load() would throw; empty if it would not.
  std::string obstacle();

 private:
  friend class LazySymbol;
  void* open() const;

  const char *name_, *file_;
  int version_;
  const char *folder_, *remedy_;
  LazySymbol* symbols_ = nullptr;
  std::mutex mutex_;
  std::atomic<bool> loaded_ = false;
};

// One function's address, which load() of its library fills in.
class LazySymbol {
 public:
  LazySymbol(const LazySymbol&) = delete;

 protected:
  LazySymbol(LazyLibrary& library, const char* name)
      : library_(library), name_(name), next_(std::exchange(library.symbols_, this)) {}
  void* address() const {
    if (!library_.loaded_.load(std::memory_order_acquire)) library_.load();
    return address_;
  }

 private:
  friend class LazyLibrary;
  LazyLibrary& library_;
  const char* name_;
  LazySymbol* next_;
  void* address_ = nullptr;
};

// LazyFunction<decltype(::cublasCreate_v2)>: called as the function is, throws what load() throws.
template <class Function>
class LazyFunction : public LazySymbol {
 public:
  LazyFunction(LazyLibrary& library, const char* name) : LazySymbol(library, name) {}
  template <class... Args>
  auto operator()(Args&&... args) const {
    return reinterpret_cast<Function*>(address())(std::forward<Args>(args)...);
  }
};

// Declares a library's function under its own name, which hides the header's declaration: callers
// read as if the program linked the library. A macro, since type, name and symbol must not differ.
// Takes names as the library has them: cublasCreate_v2, not cublasCreate, which is a macro for it.
#define CONVLAB_LAZY_FUNCTION(library, function) \
  inline LazyFunction<decltype(::function)> function { library, #function }

}  // namespace convlab::cuda
