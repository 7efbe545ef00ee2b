// Where the candidates of a recurrent problem run.
#pragma once

#include <cstdint>
#include <memory>

#include "autotune/testbed/testbed.h"

namespace convlab {

// Rows of a batch depend on one another only in dweights, which are their sum. So a batch repeats a
// few distinct rows, as many as the reference may cost, and every output is judged: a row against
// its like, dweights against the sum weighted by how often each row occurs. An odd number of rows,
// which no algorithm's blocks are a multiple of.
std::int64_t distinct_rows(const RecurrentProblem&, ReferenceCase::Evaluate);
// FLOPs of the reference, evaluated whole: of the pass and of those before it.
double recurrent_reference_flops(const RecurrentProblem&);

// An algorithm with a format of its own (RecurrentAlgo::own_format) gets activations and dgates
// that its own earlier passes wrote; all others get the reference's.
std::unique_ptr<Testbed> make_recurrent_testbed(const RecurrentProblem&, std::uint64_t seed,
                                                ReferenceCase::Evaluate, Device&, Stream&);

}  // namespace convlab
