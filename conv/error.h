// Errors, as exceptions. A refusal is not an error: it is a value (see algo.h).
#pragma once

#include <stdexcept>
#include <string>

namespace convlab {

// Base of everything this library throws on purpose. `what()` is one line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Invalid input from the caller: malformed text, impossible sizes, a foreign file. Says what,
// where, and what would be right. The program exits 2.
class InputError : public Error {
 public:
  using Error::Error;
};

// The machine lacks something required: a device or library. The program exits 3.
class EnvironmentError : public Error {
 public:
  using Error::Error;
};

// A device ran out of memory. Inside a tuning run this only refuses the candidate.
class OutOfMemory : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

// Queued work has destroyed the device's context (a kernel read outside its memory, say): every
// later call of this process fails too, but a new process may continue.
class DeviceLost : public Error {
 public:
  using Error::Error;
};

}  // namespace convlab
