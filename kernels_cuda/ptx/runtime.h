// Where the interpreter's kernels come from: the file that CONVLAB_PTX names, or what was extracted
// from the library when it was built.
#pragma once

#include "kernels_cuda/ptx/program.h"

namespace convlab::ptx {

// From now on kernels come from here. Not while one runs.
void replace_library(Library);

}  // namespace convlab::ptx
