// What the user of a net must know beside its weights, kept in a safetensors file's metadata.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nets/data/loader.h"

namespace convlab::nets {

struct WeightsNotes {
  std::string net = {};                   // "resnet20:7"
  std::vector<std::string> classes = {};  // what the outputs are called
  // How images become the net's input when it is tested; what is random is not kept.
  std::optional<Transform> transform = {};
  // Where metadata say no `input`, and so no transform: what the usual one takes in place of its
  // own.
  PixelStatistics pixels = {};
};

// Keys: net; classes, one a line; input ("3x32x32"), resize, pad, mean, deviation ("0.5,0.5,0.5";
// read under torchvision's name std too).
std::map<std::string, std::string> to_metadata(const WeightsNotes&);
// Those that are there. Throws InputError, naming the file, for numbers that are none or that no
// transform can have, and for keys that say nothing without another: resize and pad without input,
// mean without deviation.
WeightsNotes notes_of(const std::map<std::string, std::string>& metadata, const std::string& name);

// Throws InputError that begins with `where` unless each is UTF-8 without control characters, so
// that they can be kept a line each, in JSON, and shown.
void require_class_names(const std::string& where, const std::vector<std::string>&);

}  // namespace convlab::nets
