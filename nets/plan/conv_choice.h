// Chooses the algorithm for one convolution and pass in given layouts, within limits. Times are
// measured if the tuning store knows the problem, else predicted. The batch is split if the whole
// needs more workspace than allowed.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/candidates.h"
#include "nets/plan/choose.h"

namespace convlab::nets {

inline constexpr std::int64_t unbounded_bytes = std::numeric_limits<std::int64_t>::max();

// For inference, packed filters may stay between runs; their size beyond the plain filters is the
// plan's growth. Alternatively each run packs its filter into the workspace, as in training.
struct MemoryTerms {
  std::int64_t workspace = unbounded_bytes;  // maximum, including filters packed for one run
  double ms_per_byte = 0;                    // price of growth
};

struct ConvChoice {
  PassPlan plan;
  double cost = 0;  // plan.ms plus the price of its growth
  std::int64_t workspace = 0, growth = 0;
};

class ConvChoices {
 public:
  // All must outlive this object. Throws InputError for unknown names in algos and exclude.
  ConvChoices(const ChooseOptions&, const AlgoRegistry&, Device&, const Ceilings&, const Store*);

  // A problem has its pass, data type and epilogue; its layouts are ignored.

  bool tuned(const ConvProblem&);  // has the store measured it?
  // The cheapest choice; nullopt if no algorithm takes the problem. For a tuned problem only
  // measured candidates count, unless `guess`.
  std::optional<ConvChoice> best(const ConvProblem&, Layouts, const MemoryTerms&, bool guess);
  // The smallest sum of workspace and growth with which best(..., guess = true) finds a choice;
  // nullopt if it never does.
  std::optional<std::int64_t> least_workspace(const ConvProblem&, Layouts);
  // The least time of this algorithm in plain f32 arithmetic, in the problem's own layouts; nullopt
  // if it does not take the problem, or is not among the measured candidates of a tuned one.
  std::optional<double> least_ms(const ConvProblem&, std::string_view algo);

 private:
  struct Option {
    const ConvAlgo* algo;
    Candidate candidate;  // its ms measured, or predicted
    double predicted_ms = 0;
    std::optional<std::int64_t> workspace, packed;  // bytes, computed on demand
  };
  struct Known {
    ConvProblem problem;
    bool tuned = false;
    std::vector<Option> options;
  };

  Known& known(const ConvProblem&);
  void enumerate(Known&) const;
  void recall(Known&) const;
  bool must_pack(Pass) const;
  double cost(const Option&, Pass) const;
  void find_bytes(const ConvProblem&, Option&);
  ConvProblem taken(const ConvAlgo&, ConvProblem) const;
  std::optional<ConvChoice> choice(const ConvProblem&, Option&, const MemoryTerms&);
  Option* twin(Known& part, const Option&) const;
  std::optional<ConvChoice> in_parts(const ConvProblem&, const Option&, const MemoryTerms&);

  const ChooseOptions& options_;
  Device& device_;
  const Ceilings& ceilings_;
  const Store* store_;
  std::vector<const ConvAlgo*> algos_;
  std::deque<Known> known_;  // a deque keeps references valid
};

}  // namespace convlab::nets
