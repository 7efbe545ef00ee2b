// What a plan decided that its config does not say.
#pragma once

#include <string>

namespace convlab {

// A ConvPlan may also be one: a library that chooses its algorithm itself says which it took. One
// clause, lower case, no full stop; empty if there is nothing to say.
class PlanNote {
 public:
  virtual std::string note() const = 0;

 protected:
  ~PlanNote() = default;
};

}  // namespace convlab
