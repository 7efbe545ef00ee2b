// What the readers and writers of array files share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nets/weights/arrays.h"

namespace convlab {

// A file's bytes as pieces that follow one another, so that data need not be copied together. They
// point into the ArrayFile.
struct SafetensorsPieces {
  std::string header;  // with its length
  std::vector<ConstSpan> data;
};
SafetensorsPieces safetensors_pieces(const ArrayFile&);

// Throws InputError for an array whose bytes are not those of its type and shape.
void require_whole(const std::string& name, const Array&);

// A name from a file, fit for one line of a message.
std::string shown(std::string_view name);

}  // namespace convlab
