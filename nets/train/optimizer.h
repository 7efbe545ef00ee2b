// The weight update rules: by name, and as text.
#pragma once

#include <string>

#include "nets/net.h"

namespace convlab::nets {

// "sgd", "adam" or "adamw": PyTorch's defaults, but SGD with a momentum of 0.9. Throws InputError
// for another name.
UpdateRule make_rule(const std::string& name);
std::string rule_name(const UpdateRule&);

// Throws InputError for invalid numbers, such as a momentum of 1.
void validate(const UpdateRule&);

double rate_of(const UpdateRule&);
UpdateRule with_rate(UpdateRule, double rate);

// "sgd,rate=0.1,momentum=0.9,weight_decay=0.0001,nesterov=1": every number, exactly. Parsing throws
// InputError, also for invalid numbers.
std::string to_string(const UpdateRule&);
UpdateRule parse_rule(const std::string&);

}  // namespace convlab::nets
