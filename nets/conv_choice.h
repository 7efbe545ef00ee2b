// Which algorithm runs one convolution and pass in given layouts, within limits: measured where the
// tuning store knows the problem, else predicted; in parts of the batch where the whole needs more
// workspace than there is.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "autotune/candidates.h"
#include "nets/choose.h"

namespace convlab {

class ConvChoices {
 public:
  // All must outlive this object. Throws InputError for unknown names in algos and exclude.
  ConvChoices(const ChooseOptions&, const AlgoRegistry&, Device&, const Ceilings&, const Store*);

  // A problem has its pass, data type and epilogue; its layouts are ignored.

  bool tuned(const ConvProblem&);  // has the store measured it?
  // Nothing when nobody takes it. Of a problem that is tuned only what was measured counts, unless
  // `guess`.
  std::optional<PassPlan> best(const ConvProblem&, Layouts, bool guess);
  // The least workspace with which best(..., guess = true) finds something; nothing when none does.
  std::optional<std::int64_t> least_workspace(const ConvProblem&, Layouts);

 private:
  struct Option {
    const ConvAlgo* algo;
    Candidate candidate;  // its ms measured, or predicted
    double predicted_ms = 0;
    std::optional<std::int64_t> workspace;  // once somebody asked
  };
  struct Known {
    ConvProblem problem;
    bool tuned = false;
    std::vector<Option> options;
  };

  Known& known(const ConvProblem&);
  void enumerate(Known&) const;
  void recall(Known&) const;
  double cost(const Option&, Pass) const;
  std::int64_t workspace(const ConvProblem&, Option&);
  bool fits(const ConvProblem&, Option&);
  Option* twin(Known& part, const Option&) const;
  std::optional<PassPlan> in_parts(const ConvProblem&, const Known&, const Option&);

  const ChooseOptions& options_;
  Device& device_;
  const Ceilings& ceilings_;
  const Store* store_;
  std::vector<const ConvAlgo*> algos_;
  std::deque<Known> known_;  // where references stay valid
};

}  // namespace convlab
