// The algorithms that nets may use.
#pragma once

#include "autotune/algos.h"
#include "conv/registry.h"
#include "recurrent/algo.h"

namespace convlab::nets {

// A view: the registries outlive it and every net made with it. A registry of convolutions converts
// to it; recurrent layers need the other one too.
struct NetAlgos {
  NetAlgos(const AlgoRegistry& convolutions)  // NOLINT(google-explicit-constructor)
      : conv(convolutions) {}
  NetAlgos(const AlgoRegistry& convolutions, const RecurrentRegistry& recurrent_layers)
      : conv(convolutions), recurrent(&recurrent_layers) {}
  NetAlgos(const Algos& algos)  // NOLINT(google-explicit-constructor)
      : NetAlgos(algos.conv, algos.recurrent) {}

  const AlgoRegistry& conv;
  const RecurrentRegistry* recurrent = nullptr;
};

}  // namespace convlab::nets
