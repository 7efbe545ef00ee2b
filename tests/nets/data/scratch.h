// Shared by the tests of data: a private directory, files, and checks of error messages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "conv/error.h"

namespace convlab::nets {

using Bytes = std::vector<std::uint8_t>;

// The directory is removed with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path path(const std::string& name = "") const { return directory_ / name; }
  // Creates missing parent folders.
  std::filesystem::path write(const std::string& name, const Bytes&) const;

 private:
  std::filesystem::path directory_;
};

// Expects an Error of this type whose message is one line and contains each of these.
template <class E = InputError>
void expect_error(const std::function<void()>& call, const std::vector<std::string>& says) {
  try {
    call();
  } catch (const E& error) {
    const std::string what = error.what();
    for (const std::string& part : says)
      EXPECT_NE(what.find(part), what.npos) << "'" << what << "' should say '" << part << "'";
    EXPECT_EQ(what.find('\n'), what.npos) << what;
    return;
  }
  ADD_FAILURE() << "no error that says '" << (says.empty() ? "" : says.front()) << "'";
}

}  // namespace convlab::nets
