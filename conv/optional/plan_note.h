// A plan's decisions that its config does not record.
#pragma once

#include <string>

namespace convlab {

// A ConvPlan may also implement this: a library that chooses its algorithm itself reports its
// choice. One clause, lower case, no full stop; empty if there is nothing to say.
class PlanNote {
 public:
  virtual std::string note() const = 0;

 protected:
  ~PlanNote() = default;
};

}  // namespace convlab
