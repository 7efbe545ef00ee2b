// Whole files: read, and replaced by all of their new contents or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "conv/span.h"

namespace convlab {

// Throws InputError, naming the file, when it cannot be read.
std::vector<std::byte> read_file(const std::string& path);

// Writes the pieces one after another into a temporary file in the directory of `path`, fsyncs it,
// renames it over what was there, and fsyncs the directory: a process or a machine that dies
// meanwhile leaves the old file or the new one. Throws InputError for a path that cannot be
// written, EnvironmentError when the disk is full or fails; nothing is left of the temporary file
// then.
void replace_file(const std::string& path, std::span<const ConstSpan> pieces);

// Throws as replace_file would, where that shows before there is anything to write.
void require_replaceable(const std::string& path);

}  // namespace convlab
