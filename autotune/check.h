// Is an algorithm's result right? One reference per problem and seed, shared by every candidate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autotune/result.h"
#include "conv/algo.h"
#include "conv/reference.h"

namespace convlab {

// normal: nearly N(0,1), what everything is timed and judged on. small_integers: -2..2, on which
// sums of products are exact in every float type, so that plain algorithms must agree to the last
// bit.
enum class DataKind : std::uint8_t { normal, small_integers };

// Data of one problem (layouts aside) and the outputs it should give. Inputs are rounded to the
// problem's dtype first. Above full_reference_limit multiply-adds only a sample is evaluated.
// Host memory: 8 bytes per element of the tensors that the pass reads.
class ReferenceCase {
 public:
  // whole: all outputs, or the sample. sample: a few hundred outputs, which finds what works no
  // longer and says little about the error. nothing: operands to run on, and nothing can be judged.
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

// What a check found: ok, refused, failed or inaccurate, all but ok with the reason in one clause.
struct CheckResult {
  Status status = Status::ok;
  std::string reason;
  double rel_error = 0;  // ||y - ref||2 / ||ref||2; infinite where y has a NaN or an infinity
};

// Plans, packs, runs once and compares, with NaN in every output and workspace before and guard
// zones around them: the result of `convlab check`. `problem` equals the case's but for its
// layouts. More than max_error is inaccurate. A refusal comes back as Status::refused, an exception
// as failed; but DeviceLost is thrown on, since nothing more can be checked in this process.
CheckResult check_candidate(const ConvAlgo&, const ConvProblem&, const Config&,
                            const ReferenceCase&, Device&, Stream&, double max_error);

}  // namespace convlab
