// Algorithms that take long to say what they offer.
#pragma once

namespace convlab {

// A ConvAlgo may also be one: its refuse() and configs() make plans to know the answer. Under a
// budget it is asked only about problems that are taken up.
class SlowListing {
 protected:
  ~SlowListing() = default;
};

}  // namespace convlab
