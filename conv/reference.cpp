#include "conv/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "conv/error.h"
#include "conv/math/activated.h"

namespace convlab {
namespace {

// Positions along one output dimension that read the image through a tap.
struct Taps {
  std::int64_t stride, pad, dilation;
  std::int64_t input(std::int64_t output, std::int64_t tap) const {
    return output * stride - pad + tap * dilation;
  }
  // The output that reads `input` through the tap, or -1.
  std::int64_t output(std::int64_t input, std::int64_t tap) const {
    const std::int64_t at = input + pad - tap * dilation;
    return at < 0 || at % stride != 0 ? -1 : at / stride;
  }
};

// The axes of a problem.
struct Axes {
  Taps d, h, w;
  explicit Axes(const ConvProblem& f)
      : d{f.stride_d, f.pad_d, f.dilation_d},
        h{f.stride_h, f.pad_h, f.dilation_h},
        w{f.stride_w, f.pad_w, f.dilation_w} {}
};

using Place = std::array<std::int64_t, 5>;  // N K Z P Q, N C D H W or K C T R S

std::int64_t count_of(const Place& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}
Place place_of(std::int64_t index, const Place& extents) {
  Place place{};
  for (std::size_t i = place.size(); i-- > 0; index /= extents[i]) place[i] = index % extents[i];
  return place;
}

// The extents of this pass's output, in plain order.
Place output_extents(const ConvProblem& f) {
  switch (f.pass) {
    case Pass::forward:
      return {f.n, f.k, f.z, f.p, f.q};
    case Pass::backward_data:
      return {f.n, f.c, f.d, f.h, f.w};
    case Pass::backward_filter:
      return {f.k, f.c / f.groups, f.t, f.r, f.s};
  }
  return {};
}

bool inside(std::int64_t at, std::int64_t count) { return at >= 0 && at < count; }

// y[n,k,z,p,q], epilogue included.
double forward_at(const ConvProblem& f, const ReferenceInput& in, std::int64_t index) {
  const auto [n, k, z, p, q] = place_of(index, output_extents(f));
  const Axes axes(f);
  const std::int64_t group_c = f.c / f.groups, first_c = k / (f.k / f.groups) * group_c;
  double sum = 0;
  for (std::int64_t c = 0; c < group_c; ++c)
    for (std::int64_t t = 0; t < f.t; ++t) {
      const std::int64_t d = axes.d.input(z, t);
      if (!inside(d, f.d)) continue;
      for (std::int64_t r = 0; r < f.r; ++r) {
        const std::int64_t h = axes.h.input(p, r);
        if (!inside(h, f.h)) continue;
        const double* x_row =
            &in.x[std::size_t((((n * f.c + first_c + c) * f.d + d) * f.h + h) * f.w)];
        const double* w_row = &in.w[std::size_t((((k * group_c + c) * f.t + t) * f.r + r) * f.s)];
        for (std::int64_t s = 0; s < f.s; ++s) {
          const std::int64_t w = axes.w.input(q, s);
          if (inside(w, f.w)) sum += x_row[w] * w_row[s];
        }
      }
    }
  if (f.epilogue.bias) sum += in.bias[std::size_t(k)];
  if (f.epilogue.residual) sum += in.residual[std::size_t(index)];
  if (f.epilogue.activation) sum = activated(*f.epilogue.activation, sum);
  return sum;
}

// dx[n,c,d,h,w]: every (z, p, q, t, r, s) with p*stride - pad + r*dilation = h, ...
double backward_data_at(const ConvProblem& f, const ReferenceInput& in, std::int64_t index) {
  const auto [n, c, d, h, w] = place_of(index, output_extents(f));
  const Axes axes(f);
  const std::int64_t group_c = f.c / f.groups, group_k = f.k / f.groups;
  const std::int64_t first_k = c / group_c * group_k;
  double sum = 0;
  for (std::int64_t t = 0; t < f.t; ++t) {
    const std::int64_t z = axes.d.output(d, t);
    if (!inside(z, f.z)) continue;
    for (std::int64_t r = 0; r < f.r; ++r) {
      const std::int64_t p = axes.h.output(h, r);
      if (!inside(p, f.p)) continue;
      for (std::int64_t s = 0; s < f.s; ++s) {
        const std::int64_t q = axes.w.output(w, s);
        if (!inside(q, f.q)) continue;
        for (std::int64_t k = first_k; k < first_k + group_k; ++k)
          sum += in.dy[std::size_t((((n * f.k + k) * f.z + z) * f.p + p) * f.q + q)] *
                 in.w[std::size_t((((k * group_c + c % group_c) * f.t + t) * f.r + r) * f.s + s)];
      }
    }
  }
  return sum;
}

// dw[k,c,t,r,s].
double backward_filter_at(const ConvProblem& f, const ReferenceInput& in, std::int64_t index) {
  const auto [k, c, t, r, s] = place_of(index, output_extents(f));
  const Axes axes(f);
  const std::int64_t x_c = k / (f.k / f.groups) * (f.c / f.groups) + c;
  double sum = 0;
  for (std::int64_t n = 0; n < f.n; ++n)
    for (std::int64_t z = 0; z < f.z; ++z) {
      const std::int64_t d = axes.d.input(z, t);
      if (!inside(d, f.d)) continue;
      for (std::int64_t p = 0; p < f.p; ++p) {
        const std::int64_t h = axes.h.input(p, r);
        if (!inside(h, f.h)) continue;
        const double* x_row = &in.x[std::size_t((((n * f.c + x_c) * f.d + d) * f.h + h) * f.w)];
        const double* dy_row = &in.dy[std::size_t((((n * f.k + k) * f.z + z) * f.p + p) * f.q)];
        for (std::int64_t q = 0; q < f.q; ++q) {
          const std::int64_t w = axes.w.input(q, s);
          if (inside(w, f.w)) sum += x_row[w] * dy_row[q];
        }
      }
    }
  return sum;
}

double value_at(const ConvProblem& f, const ReferenceInput& in, std::int64_t index) {
  const double old = f.accumulate ? in.out[std::size_t(index)] : 0.0;
  switch (f.pass) {
    case Pass::forward:
      return old + forward_at(f, in, index);
    case Pass::backward_data:
      return old + backward_data_at(f, in, index);
    case Pass::backward_filter:
      return old + backward_filter_at(f, in, index);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Checks that the data's length matches the sizes, and that the indices exist.
void check(const ConvProblem& f, const ReferenceInput& in, std::span<const std::int64_t> indices) {
  validate(f);
  const std::int64_t x = f.n * f.c * f.d * f.h * f.w, y = f.n * f.k * f.z * f.p * f.q;
  const std::int64_t outputs = count_of(output_extents(f));
  const auto expect = [](const char* name, bool used, std::span<const double> data,
                         std::int64_t count) {
    if (used && std::int64_t(data.size()) != count)
      throw InputError(
          fmt::format("reference: {} has {} elements, expected {}", name, data.size(), count));
  };
  expect("x", f.pass != Pass::backward_data, in.x, x);
  expect("w", f.pass != Pass::backward_filter, in.w, f.filter_elements());
  expect("dy", f.pass != Pass::forward, in.dy, y);
  expect("bias", f.epilogue.bias, in.bias, f.k);
  expect("residual", f.epilogue.residual, in.residual, y);
  expect("the output", f.accumulate, in.out, outputs);
  for (const std::int64_t index : indices)
    if (index < 0 || index >= outputs)
      throw InputError(fmt::format("reference: there is no output {} of {}", index, outputs));
}

}  // namespace

double reference_at(const ConvProblem& f, const ReferenceInput& in, std::int64_t index) {
  const std::int64_t indices[] = {index};
  check(f, in, indices);
  return value_at(f, in, index);
}

std::vector<double> reference_of(const ConvProblem& problem, const ReferenceInput& in,
                                 std::span<const std::int64_t> indices) {
  check(problem, in, indices);
  std::vector<double> result(indices.size());
#pragma omp parallel for schedule(dynamic, 16)
  for (std::size_t i = 0; i < indices.size(); ++i) result[i] = value_at(problem, in, indices[i]);
  return result;
}
std::vector<std::int64_t> all_outputs(const ConvProblem& problem) {
  std::vector<std::int64_t> indices(std::size_t(count_of(output_extents(problem))));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = std::int64_t(i);
  return indices;
}

std::vector<std::int64_t> sample_outputs(const ConvProblem& problem, std::int64_t count,
                                         std::uint64_t seed) {
  const Place extents = output_extents(problem);
  if (count_of(extents) <= count) return all_outputs(problem);

  // Coordinates per dimension where errors are likely: both ends, and both sides of a tile
  // boundary.
  std::array<std::vector<std::int64_t>, extents.size()> special;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    const std::int64_t e = extents[d], seam = e / 2 / 4 * 4;
    for (std::int64_t at : {std::int64_t{0}, std::int64_t{1}, seam - 1, seam, e - 2, e - 1})
      if (at >= 0 && at < e) special[d].push_back(at);
  }
  std::mt19937_64 random(seed);
  const auto pick = [&](std::int64_t below) {
    return std::int64_t(random() % std::uint64_t(below));
  };

  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) {
    // A quarter of the sample are corners, and another has edges of spatial dimensions.
    std::int64_t index = 0;
    for (std::size_t d = 0; d < extents.size(); ++d) {
      const auto& s = special[d];
      const bool at_special = i % 4 == 0 || (d >= 2 && i % 4 == 1 && (i / 4 + std::int64_t(d)) % 2);
      index = index * extents[d] +
              (at_special ? s[std::size_t(pick(std::int64_t(s.size())))] : pick(extents[d]));
    }
    indices.push_back(index);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

double rel_error(std::span<const double> y, std::span<const double> ref) {
  if (y.size() != ref.size())
    throw InputError(
        fmt::format("rel_error: {} results for {} of the reference", y.size(), ref.size()));
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    difference += (y[i] - ref[i]) * (y[i] - ref[i]);
    norm += ref[i] * ref[i];
  }
  const double error = norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

}  // namespace convlab
