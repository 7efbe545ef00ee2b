// Drawn images: training data when there is no other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace convlab::nets {

// One 3x32x32 picture of a shape of this class (disc, ring, square ..., each its own mirror image).
// Place, size, rotation, colours, background, distractors and noise follow from the seed and the
// index.
std::vector<std::uint8_t> draw_shape(std::int32_t label, std::uint64_t seed, std::int64_t index);

// The directory, below $XDG_CACHE_HOME/convlab or ~/.cache/convlab, that holds this many training
// images and a fifth of that for testing in CIFAR-10's binary format. It is written atomically if
// it is missing. Throws InputError for a count that is not from 10 to 10 million, EnvironmentError
// when it cannot be written.
std::filesystem::path synthetic_directory(std::int64_t images);

}  // namespace convlab::nets
