// Only configs that an algorithm itself lists are planned, whatever a file says; and no algorithm
// ignores a part of a config.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "conv/error.h"
#include "conv/listed_config.h"

namespace convlab {

// Each listed config with each value in turn made invalid, with one key missing, and with one extra
// key.
inline std::vector<Config> spoilt(const std::vector<Config>& listed) {
  constexpr std::int64_t values[] = {std::numeric_limits<std::int64_t>::min(),
                                     -1,
                                     0,
                                     1,
                                     7,
                                     std::int64_t{1} << 31,
                                     std::int64_t{1} << 62,
                                     std::numeric_limits<std::int64_t>::max()};
  std::vector<Config> all;
  for (const Config& config : listed) {
    for (const auto& [name, value] : config.values()) {
      for (const std::int64_t other : values) {
        all.push_back(config);
        all.back().set(name, other);
      }
      all.push_back(config);
      all.back().set(name, "nosuch");
      Config less;
      for (const auto& [kept, number] : config.values())
        if (kept != name) less.set(kept, number);
      all.push_back(less);
    }
    all.push_back(config);
    all.back().set("nosuch", 1);
    all.push_back(config);
    if (!config.has("stores")) all.back().set("stores", "nontemporal");
  }
  return all;
}

// Returns the number of refused configs.
inline int expect_only_listed(const ConvAlgo& algo, const ConvProblem& p, Device& device) {
  const std::vector<Config> listed = algo.configs(p, device);
  int refused = 0;
  for (const Config& config : listed)
    EXPECT_NO_THROW((void)plan_listed(algo, p, config, device)) << config.text();
  for (const Config& config : spoilt(listed)) {
    try {
      (void)plan_listed(algo, p, config, device);
      // With an epilogue or accumulation it may list more configs.
      continue;
    } catch (const InputError& error) {
      EXPECT_EQ(std::find(listed.begin(), listed.end(), config), listed.end()) << error.what();
      EXPECT_NE(std::string(error.what()).find(" has no config '"), std::string::npos)
          << error.what();
      ++refused;
    }
  }
  return refused;
}

// An algorithm's plan() itself refuses a name that it does not know, and lists those that it knows.
inline void expect_unknown_name_refused(const ConvAlgo& algo, const ConvProblem& p,
                                        Device& device) {
  for (Config config : algo.configs(p, device)) {
    const auto known = config.values();
    config.set("nonsense", 1);
    try {
      (void)algo.plan(p, config, device);
      ADD_FAILURE() << algo.info().id << " plans the config '" << config.text() << "'";
    } catch (const InputError& error) {
      const std::string reason = error.what();
      const std::string unknown = "unknown name 'nonsense': expected ";
      const std::size_t at = reason.find(unknown);
      ASSERT_NE(at, std::string::npos) << algo.info().id << ": " << reason;
      // Names are told apart by what surrounds them: "n" is in "nonsense", too.
      const std::string expected = " " + reason.substr(at + unknown.size()) + ",";
      for (const auto& [name, value] : known)
        EXPECT_NE(expected.find(" " + name + ","), std::string::npos)
            << algo.info().id << " does not list " << name << ": " << reason;
    }
  }
}

}  // namespace convlab
