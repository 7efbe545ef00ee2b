// The algorithms of a program, for both kinds of problems.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "autotune/problem.h"
#include "conv/registry.h"
#include "recurrent/algo.h"

namespace convlab {

// An algorithm of either kind. The registry that has it outlives this.
class AlgoRef {
 public:
  AlgoRef(const ConvAlgo& algo) : any_(&algo) {}
  AlgoRef(const RecurrentAlgo& algo) : any_(&algo) {}

  const ConvAlgo* conv() const;  // null for an algorithm of the other kind
  const RecurrentAlgo* recurrent() const;
  bool is_for(const Problem&) const;  // a problem of its kind

  const AlgoInfo& info() const;
  bool is_slow_to_list() const;  // conv/optional/slow_listing.h
  // As the interface of its kind has them, for problems of its kind. A recurrent algorithm with a
  // format of its own is refused in a pass whose products it computes in another pass: its time
  // for that pass alone is not comparable.
  std::optional<Refusal> refuse(const Problem&, Device&) const;
  std::vector<Config> configs(const Problem&, Device&) const;
  bool deterministic(const Problem&, const Config&) const;
  WorkEstimate work(const Problem&, const Config&, Device&) const;
  // What must be said beside its times: that a recurrent algorithm with a format of its own runs
  // all passes or none. Empty: nothing.
  std::string note(const Problem&, const Config&, Device&) const;

  friend bool operator==(const AlgoRef&, const AlgoRef&) = default;

 private:
  template <class Call>
  auto call(const Problem&, const Call&) const;

  std::variant<const ConvAlgo*, const RecurrentAlgo*> any_;
};

struct Algos {
  AlgoRegistry conv;
  RecurrentRegistry recurrent;

  std::vector<AlgoRef> for_device(DeviceKind) const;  // convolutions' first
  // For this kind of problem. Throws InputError naming the ids that exist.
  AlgoRef get(const Problem&, DeviceKind, std::string_view id) const;
};

// Fills the registries. Made of a function of Algos&, or of AlgoRegistry& for convolutions alone.
class RegistryMaker {
 public:
  RegistryMaker(void (*make)(Algos&)) : make_(make) {}  // chooses among overloads
  template <class Make>
  requires std::invocable<Make&, Algos&> RegistryMaker(Make make) : make_(std::move(make)) {}
  template <class Make>
  requires std::invocable<Make&, AlgoRegistry&> RegistryMaker(Make make)
      : make_([make](Algos& a) { make(a.conv); }) {}

  Algos operator()() const {
    Algos algos;
    make_(algos);
    return algos;
  }

 private:
  std::function<void(Algos&)> make_;
};

}  // namespace convlab
