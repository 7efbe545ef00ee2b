#include "autotune/measure/clocks.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace convlab {
namespace {

// The first line that a command prints.
std::string first_line_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "re"),
                                                             ::pclose);
  char line[256] = "";
  if (!pipe || !std::fgets(line, sizeof line, pipe.get())) return {};
  while (std::fgetc(pipe.get()) != EOF) {
  }
  return line;
}

}  // namespace

std::optional<Clocks> parse_clocks(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> fields;
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  if (fields.size() != 6) return {};
  const auto number = [&](std::size_t i) { return std::strtod(fields[i].c_str(), nullptr); };
  Clocks c{.sm_mhz = number(0),
           .max_sm_mhz = number(1),
           .memory_mhz = number(2),
           .celsius = number(3),
           .watts = number(4),
           .reasons = std::strtoull(fields[5].c_str(), nullptr, 16)};
  if (c.sm_mhz <= 0) return {};
  return c;
}

std::optional<Clocks> read_clocks(const DeviceInfo& device) {
  if (device.kind != DeviceKind::cuda) return {};
  const std::string card = device.bus_id.empty() ? std::to_string(device.index) : device.bus_id;
  // Drivers before 535 know the last field by its older name.
  for (const char* reasons : {"clocks_event_reasons.active", "clocks_throttle_reasons.active"})
    if (const auto clocks = parse_clocks(first_line_of(fmt::format(
            "nvidia-smi -i {} --format=csv,noheader,nounits "
            "--query-gpu=clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw,{} "
            "2>/dev/null </dev/null",
            card, reasons))))
      return clocks;
  return {};
}

std::string to_text(const Clocks& c) {
  return fmt::format("{:.0f} of {:.0f} MHz, memory {:.0f} MHz, {:.0f} C, {:.0f} W", c.sm_mhz,
                     c.max_sm_mhz, c.memory_mhz, c.celsius, c.watts);
}

// nvmlClocksEventReasons; an idle card (bit 0) is not throttled.
std::string throttle_text(std::uint64_t reasons) {
  static constexpr std::pair<std::uint64_t, const char*> names[] = {
      {0x2, "application clocks"}, {0x4, "power cap"},       {0x8, "hardware slowdown"},
      {0x10, "sync boost"},        {0x20, "heat"},           {0x40, "heat (hardware)"},
      {0x80, "power brake"},       {0x100, "display clocks"}};
  std::string text;
  for (const auto& [bit, name] : names)
    if (reasons & bit) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

ClockWatch::ClockWatch(const DeviceInfo& device) : device_(device), before_(read()) {}

std::optional<Clocks> ClockWatch::read() {
  const std::optional<Clocks> clocks = read_clocks(device_);
  if (clocks) reasons_ |= clocks->reasons;
  last_ = std::chrono::steady_clock::now();
  return clocks;
}

void ClockWatch::look() {
  constexpr std::chrono::seconds pause(5);
  if (before_ && std::chrono::steady_clock::now() - last_ > pause) read();
}

std::vector<std::pair<std::string, std::string>> ClockWatch::fields() {
  if (device_.kind != DeviceKind::cuda) return {};
  if (!before_) return {{"clocks", "unknown: there is no nvidia-smi for this card"}};
  const std::optional<Clocks> after = read();
  const std::string throttled = throttle_text(reasons_);
  return {{"clocks before", to_text(*before_)},
          {"clocks after", after ? to_text(*after) : "unknown"},
          {"throttled", throttled.empty() ? "no" : throttled}};
}

}  // namespace convlab
