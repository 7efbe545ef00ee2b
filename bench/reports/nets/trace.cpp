#include "bench/reports/nets/trace.h"

#include <fmt/format.h>

#include "bench/reports/trace_events.h"
#include "conv/text/counted.h"

namespace convlab {

using namespace nets;
namespace {

using Json = trace::Json;

constexpr trace::Row process{1, 0}, host_row{1, 1}, stream_row{1, 2}, exchange_row{1, 3};

// Live memory from now on, stacked in one track.
Json counter(double at_s, const MemoryUse& use) {
  return {{"ph", "C"},
          {"pid", process.process},
          {"name", "memory in bytes"},
          {"ts", trace::microseconds(at_s)},
          {"args",
           {{"weights", use.weights},
            {"optimizer", use.optimizer},
            {"activations", use.activations},
            {"gradients", use.gradients},
            {"workspace", use.workspace}}}};
}

}  // namespace

std::string render_trace(const TimedNet& net) {
  Json events = Json::array();
  events.push_back(trace::name_event(
      "process_name", process,
      fmt::format("{}, batch {}, {}", net.graph.name(), net.plan.batch, to_string(net.plan.mode))));
  events.push_back(trace::name_event("thread_name", host_row, "host"));
  events.push_back(trace::name_event(
      "thread_name", stream_row,
      fmt::format("stream: {}, {}", net.plan.machine, counted(net.plan.threads, "thread"))));
  for (const TimedPart& part : net.times.part_events)
    events.push_back(
        trace::slice(host_row, part.name, "part", part.begin_s, part.end_s, Json::object()));
  if (!net.times.bucket_events.empty())
    events.push_back(trace::name_event("thread_name", exchange_row,
                                       fmt::format("exchange with {} ranks", net.times.ranks)));
  for (const TimedBucket& bucket : net.times.bucket_events)
    events.push_back(trace::slice(exchange_row, fmt::format("{} to {}", bucket.last, bucket.first),
                                  "exchange", bucket.begin_s, bucket.end_s,
                                  {{"bytes", bucket.bytes}}));
  for (const TimedStep& event : net.times.step_events) {
    const StepInfo& step = net.steps[event.step];
    const PhaseInfo& phase = step.phases[std::size_t(event.phase)];
    Json args{{"kind", step.kind}, {"layouts", step.layouts()}, {"bytes", phase.bytes}};
    if (phase.eff_flops > 0) args["flops"] = phase.eff_flops;
    if (phase.plan) {
      args["algo"] = phase.plan->algo;
      args["config"] = phase.plan->config.text();
    }
    const std::string name(to_string(event.phase));
    events.push_back(trace::slice(stream_row, fmt::format("{}{} {}", step.layer, step.suffix, name),
                                  name, event.begin_s, event.end_s, std::move(args)));
    events.push_back(
        counter(event.begin_s, net.times.memory_during[event.step][std::size_t(event.phase)]));
  }
  return trace::render(std::move(events), net.provenance);
}

}  // namespace convlab
