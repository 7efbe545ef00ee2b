// Grouped problems, a group at a time: each group is a dense problem over neighbouring channels, on
// views into the whole tensors (Steps, in conv/types/layout.h). Internal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "conv/algo.h"

namespace convlab::cpu {

// The problem of one group. Group g's channels of x begin at x_desc().offset(0, g * c, 0, 0) of the
// whole tensor, with the group's c; those of y in the same way. Not for nhwc.
ConvProblem problem_of_group(ConvProblem);

// The plan of a grouped problem from one of problem_of_group(): a group after the other, each by
// all threads. Packed filters lie one behind the other. Not for nhwc.
std::unique_ptr<ConvPlan> make_plan_by_groups(const ConvProblem&,
                                              std::unique_ptr<ConvPlan> of_group);

// The work of all groups from that of one.
WorkEstimate work_of_groups(WorkEstimate of_group, std::int64_t groups);

// Refuses groups that are not whole channel blocks of this instruction set.
std::optional<Refusal> refuse_parts_of_blocks_in_groups(const ConvProblem&);

// How threads share groups: `teams` teams of `threads` each take whole groups. Either every thread
// is a team, so that nothing is shared within a group, or all are one, where there are too few
// groups to keep them busy.
struct GroupTeams {
  std::int64_t groups = 1, teams = 1, threads = 1;

  GroupTeams(std::int64_t groups, std::int64_t all_threads);
  // The device as one team sees it.
  DeviceInfo device_of_team(DeviceInfo) const;
};

}  // namespace convlab::cpu
