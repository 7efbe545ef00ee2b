// Algorithms that are slow to list their configs.
#pragma once

namespace convlab {

// A ConvAlgo may also implement this: its refuse() and configs() ask a library that takes its time
// for each problem. Under a budget it is only asked about problems whose turn has come.
class SlowListing {
 protected:
  ~SlowListing() = default;
};

}  // namespace convlab
