// A problem of either kind that is tuned: a convolution or a recurrent layer.
//
// The race, the store, the worker and the results know problems only through Problem. What differs
// between the kinds is in three places: here, what a problem is; AlgoRef (autotune/algos.h), what
// an algorithm offers for it; Testbed (autotune/testbed/testbed.h), how a candidate is run and
// checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "conv/problem.h"
#include "recurrent/problem.h"

namespace convlab {

using Layouts = std::pair<Layout, Layout>;  // of x and y
ConvProblem with_layouts(ConvProblem, Layouts);

class Problem {
 public:
  Problem() = default;
  Problem(const ConvProblem& p) : any_(p) {}
  Problem(const RecurrentProblem& p) : any_(p) {}

  // Null for a problem of the other kind.
  const ConvProblem* conv() const { return std::get_if<ConvProblem>(&any_); }
  const RecurrentProblem* recurrent() const { return std::get_if<RecurrentProblem>(&any_); }

  Pass pass() const;
  DType dtype() const;
  std::int64_t batch() const;
  // training: backward passes follow, for which a recurrent layer's forward pass saves activations.
  void set_pass(Pass, bool training = false);
  // A recurrent layer in training saves hidden states only, and backward_data computes the values
  // of gates again. Returns false, and does nothing, for what saves no others. Set the pass before.
  bool set_recompute();
  void set_dtype(DType);
  void set_batch(std::int64_t);

  double flops() const;     // as ConvProblem and RecurrentProblem count them
  double elements() const;  // of all that the pass reads and writes
  bool has_layouts() const { return conv() != nullptr; }  // a recurrent layer's are fixed
  Problem with_layouts(Layouts) const;                    // itself if it has none

  friend bool operator==(const Problem&, const Problem&) = default;

 private:
  std::variant<ConvProblem, RecurrentProblem> any_;
};

void validate(const Problem&);  // throws InputError
// The text form of its kind: sizes only. Neither text is one of the other kind.
std::string to_text(const Problem&);

// What its text does not say: a convolution's "accumulate" or any of "bias+residual" and an
// activation ("bias+hardswish"), a recurrent layer's "training" and "recompute", joined by +.
std::string extras_of(const Problem&);

// A problem with a name, as a net's layer has, and how often it occurs.
struct LayerProblem {
  LayerProblem() = default;
  LayerProblem(const NamedProblem& p) : problem(p.problem), name(p.name), count(p.count) {}
  LayerProblem(const NamedRecurrentProblem& p) : problem(p.problem), name(p.name), count(p.count) {}

  Problem problem;
  std::string name;
  std::int64_t count = 1;
  // A transposed convolution (conv/transposed.h): `problem` is the convolution whose gradient it
  // is, in the pass that computes it. text() and pass() are the transposed one's.
  bool transposed = false;

  std::string text() const;
  Pass pass() const;
  void set_pass(Pass, bool training = false);  // as Problem's
  friend bool operator==(const LayerProblem&, const LayerProblem&) = default;
};
// A problem of any kind, in pass forward. Throws InputError as its kind's parser does, and adds its
// warnings.
LayerProblem parse_layer(std::string_view text, std::vector<std::string>& warnings);
LayerProblem parse_layer(std::string_view text);

}  // namespace convlab
