// One training step of a recurrent problem as the reference computes it, and an algorithm's passes
// held against it one by one. What a pass reads comes from the reference, so that each is judged
// alone. Outputs and workspaces are NaN before, and have guards around them.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conv/device.h"
#include "conv/reference.h"
#include "recurrent/algo.h"
#include "recurrent/reference.h"

namespace convlab {

// On a device: NaN in every element, or values, with a guard on either side.
class GuardedArray {
 public:
  GuardedArray(Device& device, DType dtype, std::int64_t elements)
      : GuardedArray(device, dtype, std::size_t(elements * size_of(dtype)), nullptr) {}
  GuardedArray(Device& device, DType dtype, const std::vector<double>& values)
      : GuardedArray(device, dtype, values.size() * std::size_t(size_of(dtype)), &values) {}
  static GuardedArray bytes(Device& device, std::size_t bytes) {
    return GuardedArray(device, DType::f32, std::int64_t(bytes + 3) / 4);
  }

  std::byte* data() const { return buffer_.data() + guard; }
  Span span() const { return {data(), bytes_}; }
  std::vector<double> values() const {
    const std::vector<std::byte> all = download();
    std::vector<double> v(bytes_ / std::size_t(size_of(dtype_)));
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = dtype_ == DType::f64 ? reinterpret_cast<const double*>(all.data() + guard)[i]
                                  : double(reinterpret_cast<const float*>(all.data() + guard)[i]);
    return v;
  }
  bool is_intact() const {
    const std::vector<std::byte> all = download();
    const auto is_guard = [](std::byte b) { return b == std::byte{0x5a}; };
    return std::all_of(all.begin(), all.begin() + guard, is_guard) &&
           std::all_of(all.end() - guard, all.end(), is_guard);
  }

 private:
  static constexpr std::ptrdiff_t guard = 64;  // keeps the alignment of workspaces

  GuardedArray(Device& device, DType dtype, std::size_t bytes, const std::vector<double>* values)
      : device_(&device),
        stream_(device.make_stream()),
        dtype_(dtype),
        bytes_(bytes),
        buffer_(device.allocate(bytes + 2 * guard)) {
    std::vector<std::byte> all(buffer_.bytes(), std::byte{0x5a});
    std::fill_n(all.begin() + guard, bytes, std::byte{0xff});
    for (std::size_t i = 0; values != nullptr && i < values->size(); ++i) {
      if (dtype == DType::f64)
        reinterpret_cast<double*>(all.data() + guard)[i] = (*values)[i];
      else
        reinterpret_cast<float*>(all.data() + guard)[i] = float((*values)[i]);
    }
    device.copy_to_device(buffer_.data(), all, *stream_);
    stream_->synchronize();
  }
  std::vector<std::byte> download() const {
    std::vector<std::byte> all(buffer_.bytes());
    device_->copy_to_host(all, buffer_.data(), *stream_);
    return all;
  }

  Device* device_;
  std::unique_ptr<Stream> stream_;
  DType dtype_;
  std::size_t bytes_;
  Buffer buffer_;
};

struct PassResult {
  double error = 0;            // the largest of all outputs
  std::string worst;           // which that is
  bool intact = true;          // guards
  std::vector<double> output;  // y, dx or dweights
};

class RecurrentCase {
 public:
  // `states`: whether there are any before the first step and gradients of the last ones.
  RecurrentCase(const RecurrentProblem& problem, std::uint64_t seed, bool states = true)
      : problem_(problem) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    const auto draw = [&](std::int64_t count, double size) {
      std::vector<double> v(static_cast<std::size_t>(count));
      for (double& e : v) e = round(size * normal(random));
      return v;
    };
    x_ = draw(problem.x_elements(), 1);
    weights_ =
        draw(problem.weights_elements(), 1 / std::sqrt(double(std::max(problem.h, problem.i))));
    dy_ = draw(problem.y_elements(), 1);
    if (states) {
      h0_ = draw(problem.state_elements(), 0.5);
      dhn_ = draw(problem.state_elements(), 1);
      if (problem.has_cell_state()) {
        c0_ = draw(problem.state_elements(), 0.5);
        dcn_ = draw(problem.state_elements(), 1);
      }
    }
    forward_ = of(Pass::forward);
    y_ = rounded(forward_.out);
    activations_ = rounded(forward_.activations);
    data_ = of(Pass::backward_data);
    dgates_ = rounded(data_.dgates);
    filter_ = of(Pass::backward_filter);
  }

  RecurrentProblem with_pass(Pass pass, bool training = true) const {
    RecurrentProblem p = problem_;
    p.pass = pass;
    p.training = training && pass == Pass::forward;
    return p;
  }

  // A pass by itself. dx: whether backward_data computes it.
  PassResult check(const RecurrentAlgo& algo, const RecurrentProblem& p, const Config& config,
                   Device& device, bool dx = true) {
    GuardedArray activations(device, p.dtype, activations_), dgates(device, p.dtype, dgates_);
    return run(algo, p, config, device, activations, dgates, false, dx);
  }

  // All passes of an algorithm with a format of its own.
  PassResult check_own_format(const RecurrentAlgo& algo, Device& device, bool dx = true) {
    const auto saved = algo.own_format(with_pass(Pass::forward), device).value();
    GuardedArray activations = GuardedArray::bytes(device, saved.activations),
                 dgates = GuardedArray::bytes(device, saved.dgates);
    PassResult worst;
    for (const Pass pass : all_passes) {
      const PassResult result =
          run(algo, with_pass(pass), Config{}, device, activations, dgates, true, dx);
      if (!(result.error <= worst.error)) {
        worst.error = result.error;
        worst.worst = std::string(to_string(pass)) + " " + result.worst;
      }
      worst.intact = worst.intact && result.intact;
    }
    return worst;
  }

 private:
  double round(double v) const { return problem_.dtype == DType::f32 ? double(float(v)) : v; }
  std::vector<double> rounded(std::vector<double> values) const {
    for (double& v : values) v = round(v);
    return values;
  }
  RecurrentOutput of(Pass pass) const {
    return reference_of(with_pass(pass), {.x = x_,
                                          .weights = weights_,
                                          .h0 = h0_,
                                          .c0 = c0_,
                                          .y = y_,
                                          .activations = activations_,
                                          .dy = dy_,
                                          .dhn = dhn_,
                                          .dcn = dcn_,
                                          .dgates = dgates_});
  }

  PassResult run(const RecurrentAlgo& algo, const RecurrentProblem& p, const Config& config,
                 Device& device, GuardedArray& activations, GuardedArray& dgates, bool own,
                 bool dx) {
    const auto stream = device.make_stream();
    const auto plan = algo.plan(p, config, device);
    GuardedArray workspace = GuardedArray::bytes(device, plan->workspace_bytes());
    GuardedArray packed = GuardedArray::bytes(device, plan->packed_weights_bytes());
    GuardedArray weights(device, p.dtype, weights_), x(device, p.dtype, x_), y(device, p.dtype, y_),
        dy(device, p.dtype, dy_);
    GuardedArray h0(device, p.dtype, h0_), c0(device, p.dtype, c0_), dhn(device, p.dtype, dhn_),
        dcn(device, p.dtype, dcn_);
    if (plan->packed_weights_bytes() > 0)
      plan->pack_weights(weights.span(), packed.span(), *stream);

    const bool forward = p.pass == Pass::forward, data = p.pass == Pass::backward_data;
    const RecurrentOutput& expected = forward ? forward_ : data ? data_ : filter_;
    GuardedArray out(device, p.dtype, std::int64_t(expected.out.size()));
    GuardedArray out_h(device, p.dtype, std::int64_t(expected.out_h.size()));
    GuardedArray out_c(device, p.dtype, std::int64_t(expected.out_c.size()));
    GuardedArray out_activations(device, p.dtype, std::int64_t(expected.activations.size()));
    GuardedArray out_dgates(device, p.dtype, std::int64_t(expected.dgates.size()));
    const auto state = [](GuardedArray& array) -> const void* {
      return array.span().empty() ? nullptr : array.data();
    };
    RecurrentArgs args;
    args.x = x.data();
    args.weights = plan->packed_weights_bytes() > 0 ? packed.data() : weights.data();
    args.h0 = state(h0), args.c0 = state(c0);
    args.y = y.data();
    args.activations = activations.data();
    args.dy = dy.data();
    args.dhn = state(dhn), args.dcn = state(dcn);
    args.dgates = dgates.data();
    const bool needs_out = !data || dx;
    args.out = needs_out ? out.data() : nullptr;
    args.out_h = out_h.data(), args.out_c = out_c.data();
    args.out_activations = own ? activations.data() : out_activations.data();
    args.out_dgates = own ? dgates.data() : out_dgates.data();
    plan->run(args, workspace.span(), *stream);
    stream->synchronize();

    PassResult result;
    const auto judge = [&](const char* name, GuardedArray& array,
                           const std::vector<double>& values) {
      result.intact = result.intact && array.is_intact();
      const double error = values.empty() ? 0 : rel_error(array.values(), values);
      if (error > result.error) {
        result.error = error;
        result.worst = name;
      }
    };
    if (needs_out) judge("output", out, expected.out);
    judge("states", out_h, expected.out_h);
    judge("cell states", out_c, expected.out_c);
    if (!own && p.training) judge("activations", out_activations, expected.activations);
    if (!own) judge("dgates", out_dgates, expected.dgates);
    for (GuardedArray* array : {&workspace, &packed, &activations, &dgates})
      result.intact = result.intact && array->is_intact();
    result.output = out.values();
    return result;
  }

  RecurrentProblem problem_;
  std::vector<double> x_, weights_, h0_, c0_, dy_, dhn_, dcn_, y_, activations_, dgates_;
  RecurrentOutput forward_, data_, filter_;
};

}  // namespace convlab
