#include "recurrent/algo.h"

#include "conv/error.h"

namespace convlab {

void RecurrentPlan::pack_weights(ConstSpan, Span, Stream&) const {
  throw Error("pack_weights: this plan takes the weights unpacked (packed_weights_bytes() is 0)");
}

}  // namespace convlab
