// Which batches of slices are convolved with which taps.
#include <algorithm>

#include "kernels_cpu/device/range.h"
#include "kernels_cpu/slices/slices.h"

namespace convlab::cpu {
namespace {

// Slices z of y and d of x that a tap joins: z = z.begin + j, d = d + j * stride_d.
struct TapSlices {
  std::int64_t tap = 0;
  Range z;
  std::int64_t d = 0;
};

std::vector<TapSlices> taps_of(const ConvProblem& p) {
  std::vector<TapSlices> taps;
  for (std::int64_t t = 0; t < p.t; ++t) {
    const std::int64_t shift = t * p.dilation_d - p.pad_d;  // d = z * stride_d + shift
    const auto first_at = [&](std::int64_t d) {             // the first z whose slice is >= d
      return d <= shift ? 0 : ceil_div(d - shift, p.stride_d);
    };
    const Range z{first_at(0), std::min(first_at(p.d), p.z)};
    if (z.size() > 0) taps.push_back({t, z, z.begin * p.stride_d + shift});
  }
  return taps;
}

// Where the slices of a tensor with depth lie, in elements.
struct Slices {
  std::int64_t image, slice, channel;
  Slices(const TensorDesc& t, std::int64_t depth) : image(t.image_step()) {
    const std::int64_t rows = t.h / depth;
    const bool nhwc = t.layout == Layout::nhwc;
    slice = rows * t.w * (nhwc ? t.c : channel_block(t.layout));
    channel = nhwc || depth == 1 || t.padded_c() == channel_block(t.layout) ? 0 : t.channel_step();
  }
  // Of a batch of images that are this far apart; an image has `elements`.
  Steps steps(std::int64_t apart, std::int64_t n, std::int64_t elements) const {
    return {channel == 0 && (n == 1 || apart == elements) ? 0 : apart, channel};
  }
};

// The problem without depth, for one image.
ConvProblem flat(const ConvProblem& p) {
  ConvProblem slice = p;
  slice.n = slice.d = slice.t = slice.z = slice.stride_d = slice.dilation_d = 1;
  slice.pad_d = 0;
  return slice;
}

// How many images and slices of a run are one batch.
struct Batch {
  std::int64_t images, slices;
};

class Schedule {
 public:
  Schedule(const ConvProblem& p, Views views)
      : p_(p), views_(views), x_(p.x_desc(), p.d), y_(p.y_desc(), p.z), flat_(flat(p)) {}

  std::vector<SliceCall> calls() && {
    std::vector<TapSlices> taps = taps_of(p_);
    if (p_.pass == Pass::backward_filter) {
      for (const TapSlices& tap : taps) {
        ConvProblem slice = flat_;
        slice.accumulate = p_.accumulate && p_.t == 1;
        const std::size_t first = calls_.size();
        add(tap, slice);
        for (std::size_t i = first + 1; i < calls_.size(); ++i) calls_[i].problem.accumulate = true;
      }
      return std::move(calls_);
    }
    // A tap that reaches every slice is the first for all, which leaves the fewest runs.
    std::stable_sort(taps.begin(), taps.end(), [](const TapSlices& a, const TapSlices& b) {
      return a.z.size() > b.z.size();
    });
    std::vector<std::int64_t> to_come(std::size_t(data() ? p_.d : p_.z), 0);
    for (const TapSlices& tap : taps)
      for (std::int64_t j = 0; j < tap.z.size(); ++j) ++to_come[output(tap, j)];
    std::vector<bool> written(to_come.size(), p_.accumulate);
    for (const TapSlices& tap : taps) add_runs(tap, written, to_come);
    return std::move(calls_);
  }

 private:
  bool data() const { return p_.pass == Pass::backward_data; }
  std::size_t output(const TapSlices& tap, std::int64_t j) const {
    return std::size_t(data() ? tap.d + j * p_.stride_d : tap.z.begin + j);
  }

  // The slices of a tap in runs of one epilogue.
  void add_runs(const TapSlices& tap, std::vector<bool>& written,
                std::vector<std::int64_t>& to_come) {
    const auto problem_at = [&](std::int64_t j) {
      const std::size_t at = output(tap, j);
      const bool first = !written[at], last = to_come[at] == 1;
      ConvProblem slice = flat_;
      slice.accumulate = !first;
      slice.epilogue = {.bias = first && p_.epilogue.bias,
                        .residual = first && p_.epilogue.residual,
                        .activation = last ? p_.epilogue.activation : std::nullopt};
      return slice;
    };
    for (std::int64_t begin = 0; begin < tap.z.size();) {
      const ConvProblem slice = problem_at(begin);
      std::int64_t end = begin + 1;
      while (end < tap.z.size() && problem_at(end) == slice) ++end;
      add({tap.tap, {tap.z.begin + begin, tap.z.begin + end}, tap.d + begin * p_.stride_d}, slice);
      begin = end;
    }
    for (std::int64_t j = 0; j < tap.z.size(); ++j) {
      written[output(tap, j)] = true;
      --to_come[output(tap, j)];
    }
  }

  ConvProblem batch_problem(ConvProblem slice, const Batch& batch) const {
    const bool across_images = batch.images > 1 && batch.slices == 1;
    const auto steps = [&](const Slices& tensor, std::int64_t slices_apart,
                           const TensorDesc& image) {
      return tensor.steps(across_images ? tensor.image : slices_apart * tensor.slice, slice.n,
                          image.elements());
    };
    const TensorDesc x = slice.x_desc(), y = slice.y_desc();
    slice.n = batch.images * batch.slices;
    slice.x_steps = steps(x_, p_.stride_d, x);
    slice.y_steps = steps(y_, 1, y);
    return slice;
  }

  // One run in the largest batches that are views which the algorithm takes.
  void add(const TapSlices& run, const ConvProblem& slice) {
    const std::int64_t count = run.z.size();
    const bool uniform = x_.image == count * p_.stride_d * x_.slice &&
                         y_.image == count * y_.slice && x_.channel == 0 && y_.channel == 0;
    std::vector<Batch> batches{{1, count}, {p_.n, 1}, {1, 1}};
    if (p_.n > count) std::swap(batches[0], batches[1]);
    if (uniform) batches.insert(batches.begin(), Batch{p_.n, count});
    for (const Batch& batch : batches) {
      const ConvProblem problem = batch_problem(slice, batch);
      if (views_ == Views::none && problem.is_view() && problem.n > 1) continue;
      for (std::int64_t n = 0; n < p_.n; n += batch.images)
        for (std::int64_t j = 0; j < count; j += batch.slices)
          calls_.push_back({problem, run.tap, n * x_.image + (run.d + j * p_.stride_d) * x_.slice,
                            n * y_.image + (run.z.begin + j) * y_.slice});
      return;
    }
  }

  const ConvProblem& p_;
  Views views_;
  Slices x_, y_;
  ConvProblem flat_;
  std::vector<SliceCall> calls_;
};

}  // namespace

std::vector<SliceCall> slice_calls(const ConvProblem& p, Views views) {
  return Schedule(p, views).calls();
}

ConvProblem single_slice(const ConvProblem& p) {
  ConvProblem slice = flat(p);
  slice.x_steps = Slices(p.x_desc(), p.d).steps(slice.x_desc().elements(), 1, 0);
  slice.y_steps = Slices(p.y_desc(), p.z).steps(slice.y_desc().elements(), 1, 0);
  return slice;
}

std::vector<std::int64_t> untouched_slices(const ConvProblem& p) {
  std::vector<bool> touched(std::size_t(p.pass == Pass::backward_data ? p.d : p.z), false);
  for (const TapSlices& tap : taps_of(p))
    for (std::int64_t j = 0; j < tap.z.size(); ++j)
      touched[std::size_t(p.pass == Pass::backward_data ? tap.d + j * p.stride_d
                                                        : tap.z.begin + j)] = true;
  std::vector<std::int64_t> slices;
  for (std::size_t i = 0; i < touched.size(); ++i)
    if (!touched[i]) slices.push_back(std::int64_t(i));
  return slices;
}

}  // namespace convlab::cpu
