// The work of a command: TARGETs x batches x passes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autotune/tuner.h"
#include "bench/options/options.h"
#include "nets/onnx/layers.h"

namespace convlab {

// True if the text begins like a problem's, "mb1ic64...", "deconv:mb1..." or "lstm:t32...", and
// unlike any net's name.
bool looks_like_problem(const std::string& target);

// True for an ONNX model's file.
bool is_model(const std::string& target);
// As the options say for a model. nullopt: the model's own batch.
nets::OnnxSizes sizes_of(const CommonOptions&, std::optional<std::int64_t> batch);
// The first target, a net's name or a model. nullopt: a batch of 1, or the model's own. `notes`
// gets what was assumed about a model, a line each. Throws InputError as make_net and read_onnx_net
// do.
nets::Graph net_of_target(const CommonOptions&, std::optional<std::int64_t> batch,
                          std::string* notes = nullptr);

// For a verb that takes one problem and no net. Throws InputError for any other text.
LayerProblem parse_one_problem(const std::string& text);

// In the order given: each target's problems for each batch, and every pass for each problem. Equal
// layers of a net are one item with a count, convolutions before recurrent layers. --layer keeps
// only those of that name. Throws InputError for targets that are neither a net, a problem nor a
// readable @FILE, and for problems that do not fit the device's memory, with the amount they need.
// Warnings (skipped lines of an
// @FILE) go to stderr.
std::vector<TuneItem> resolve_targets(const CommonOptions&, const DeviceInfo&);

// For a verb that knows convolutions only: throws InputError, naming the verb, for any other.
void require_convolutions(const std::vector<TuneItem>&, const std::string& verb);

// The least host memory that checking and running this problem takes: the reference in double, plus
// all tensors in their own type.
double required_bytes(const Problem&);

}  // namespace convlab
