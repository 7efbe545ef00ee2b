// Checks an algorithm's result. One reference per problem and seed is shared by every candidate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "conv/algo.h"
#include "conv/reference.h"

namespace convlab {

// normal: nearly N(0,1), used for timing and for the error. small_integers: -2..2. Sums of their
// products are exact in every float type, so plain algorithms must agree to the last bit.
enum class DataKind : std::uint8_t { normal, small_integers };

// Data of one problem (layouts aside) and the outputs it should give. Inputs are rounded to the
// problem's dtype first. Above full_reference_limit multiply-adds only a sample is evaluated.
// Host memory: 8 bytes per element of the tensors that the pass reads.
class ReferenceCase {
 public:
  // whole: all outputs, or the sample. sample: a few hundred outputs, which detect a broken run but
  // say little about the error. nothing: operands only; no result can be judged.
  enum class Evaluate : std::uint8_t { whole, sample, nothing };
  ReferenceCase(const ConvProblem&, std::uint64_t seed, DataKind = DataKind::normal,
                Evaluate = Evaluate::whole);

  const ConvProblem& problem() const { return problem_; }
  const ReferenceInput& input() const { return input_; }
  bool sampled() const { return sampled_; }
  const std::vector<std::int64_t>& indices() const { return indices_; }  // plain, sorted
  const std::vector<double>& expected() const { return expected_; }      // at indices()

 private:
  ConvProblem problem_;
  std::vector<double> x_, w_, dy_, bias_, residual_, out_;
  ReferenceInput input_;
  std::vector<std::int64_t> indices_;
  std::vector<double> expected_;
  bool sampled_ = false;
};

// The result of a check: ok, refused, failed or inaccurate. All but ok carry the reason, one
// clause.
struct CheckResult {
  Status status = Status::ok;
  std::string reason;
  double rel_error = 0;  // ||y - ref||2 / ||ref||2; infinite if y has a NaN or an infinity
};

// Plans, packs, runs once and compares: the result of `convlab check`. Every output and workspace
// holds NaN beforehand and has guard zones around it. `problem` equals the case's except for its
// layouts. An error above max_error is inaccurate. A refusal comes back as Status::refused, an
// exception as failed. DeviceLost is rethrown, since nothing more can be checked in this process.
CheckResult check_candidate(const ConvAlgo&, const ConvProblem&, const Config&,
                            const ReferenceCase&, Device&, Stream&, double max_error);

}  // namespace convlab
