// Notes for the user of a net besides its weights, kept in a safetensors file's metadata.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nets/data/loader.h"

namespace convlab::nets {

struct WeightsNotes {
  std::string net = {};                   // "resnet20:7"
  std::vector<std::string> classes = {};  // names of the outputs
  // The transform from images to the net's input in testing; random parts are not kept.
  std::optional<Transform> transform = {};
  // If the metadata have no `input`, and so no transform: statistics that replace the usual
  // transform's own.
  PixelStatistics pixels = {};
};

// Keys: net; classes, one per line; input ("3x32x32"), resize, pad, mean, deviation ("0.5,0.5,0.5";
// torchvision's name std is read too).
std::map<std::string, std::string> to_metadata(const WeightsNotes&);
// The notes that are present. Throws InputError, naming the file, for malformed numbers or numbers
// that no transform can have, and for keys that need another: resize and pad without input, mean
// without deviation.
WeightsNotes notes_of(const std::map<std::string, std::string>& metadata, const std::string& name);

// Throws InputError that begins with `where` unless each is UTF-8 without control characters, so
// that they can be stored one per line, in JSON, and shown.
void require_class_names(const std::string& where, const std::vector<std::string>&);

}  // namespace convlab::nets
