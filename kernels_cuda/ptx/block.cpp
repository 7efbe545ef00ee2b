#include "kernels_cuda/ptx/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace convlab::ptx {

// --- shared memory

void SharedMemory::begin(const Program& program, std::size_t dynamic_bytes) {
  ++epoch_;
  if (ranges_.empty()) {
    ranges_ = program.shared;
    ranges_.push_back({dynamic_shared, dynamic_bytes});
    const std::size_t end = dynamic_shared + dynamic_bytes;
    bytes_.resize(end);
    places_.resize((end + 1) / 2);
  }
  for (const Program::Range& range : ranges_)  // NaNs
    std::memset(bytes_.data() + range.begin, 0xff, range.bytes);
}

std::byte* SharedMemory::find(std::uint64_t address, std::size_t bytes) {
  const auto holds = [&](const Program::Range& range) { return range.holds(address, bytes); };
  if (!holds(last_)) {
    const auto range = std::ranges::find_if(ranges_, holds);
    if (range == ranges_.end()) return nullptr;
    last_ = *range;
  }
  return bytes_.data() + address;
}

std::string SharedMemory::touch(std::uint64_t address, std::size_t bytes, Access access,
                                unsigned warp) {
  const std::uint32_t mine = 1u << warp;
  for (std::uint64_t i = address / 2; i < (address + bytes + 1) / 2; ++i) {
    Place& place = places_[i];
    const bool written = place.written == epoch_ && place.writer != warp;
    const bool read = place.read == epoch_ && (place.readers & ~mine) != 0;
    if (written || (read && access == Access::store))
      return fmt::format("warp {} {} what warp {} {} since the last barrier", warp,
                         access == Access::store ? "writes" : "reads",
                         written ? place.writer : unsigned(std::countr_zero(place.readers & ~mine)),
                         written ? "wrote" : "read");
    if (access == Access::store) {
      place.written = epoch_;
      place.writer = warp;
    } else {
      place.readers = place.read == epoch_ ? place.readers | mine : mine;
      place.read = epoch_;
    }
  }
  return {};
}

// --- a warp

void Warp::begin(const Launch& launch, uint3 at) {
  const Program& program = block_.program();
  file_.resize((program.registers.size() + 7) / 8);
  std::memcpy(file_.data(), program.registers.data(), program.registers.size());
  const auto set = [&](Special special, auto value) {
    std::uint32_t* const to = lanes<std::uint32_t>(register_of(special));
    for (unsigned lane = 0; lane < 32; ++lane) to[lane] = value(lane);
  };
  const auto thread = [&](unsigned lane) { return index_ * 32 + lane; };
  const dim3 block = launch.block, grid = launch.grid;
  set(Special::tid_x, [&](unsigned lane) { return thread(lane) % block.x; });
  set(Special::tid_y, [&](unsigned lane) { return thread(lane) / block.x % block.y; });
  set(Special::tid_z, [&](unsigned lane) { return thread(lane) / block.x / block.y; });
  set(Special::ntid_x, [&](unsigned) { return block.x; });
  set(Special::ntid_y, [&](unsigned) { return block.y; });
  set(Special::ntid_z, [&](unsigned) { return block.z; });
  set(Special::ctaid_x, [&](unsigned) { return at.x; });
  set(Special::ctaid_y, [&](unsigned) { return at.y; });
  set(Special::ctaid_z, [&](unsigned) { return at.z; });
  set(Special::nctaid_x, [&](unsigned) { return grid.x; });
  set(Special::nctaid_y, [&](unsigned) { return grid.y; });
  set(Special::nctaid_z, [&](unsigned) { return grid.z; });
  set(Special::laneid, [](unsigned lane) { return lane; });

  const unsigned threads = std::min(32u, launch.threads() - index_ * 32);
  alive_ = threads == 32 ? ~0u : (1u << threads) - 1;
  paths_ = {{0, std::uint32_t(program.code.size()), alive_}};
  local_.assign(32 * program.local_bytes, std::byte(0xff));
  copies_.clear();
  std::ranges::fill(groups_, 0u);
  executed_ = 0;
}

Warp::State Warp::run(std::size_t most) {
  const std::vector<Instruction>& code = block_.program().code;
  for (std::size_t i = 0; i < most; ++i) {
    while (!paths_.empty() && (paths_.back().at == paths_.back().meets || paths_.back().lanes == 0))
      paths_.pop_back();
    if (paths_.empty()) return State::ended;
    Path& path = paths_.back();
    const Instruction& ins = code[path.at];
    if (++executed_ > most_instructions)
      fault(ins, fmt::format("the warp does not end within {} instructions", most_instructions));
    std::uint32_t lanes_here = path.lanes;
    if (ins.guarded) {
      const std::uint32_t guard = *lanes<std::uint32_t>(ins.guard);
      lanes_here &= ins.guard_negated ? ~guard : guard;
    }
    switch (ins.control) {
      case Control::next:
        active_ = lanes_here;
        if (active_) ins.run(*this, ins);
        ++path.at;
        break;
      case Control::branch: {
        const std::uint32_t staying = path.lanes & ~lanes_here, next = path.at + 1;
        if (lanes_here && staying) {
          path.at = ins.meets;
          paths_.push_back({next, ins.meets, staying});
          paths_.push_back({ins.target, ins.meets, lanes_here});
        } else {
          path.at = lanes_here ? ins.target : next;
        }
        break;
      }
      case Control::exit:
        alive_ &= ~lanes_here;
        ++path.at;
        for (Path& each : paths_) each.lanes &= ~lanes_here;
        break;
      case Control::barrier:
        if (lanes_here && lanes_here != alive_)
          fault(ins, "part of a warp waits at a barrier for the rest");
        ++path.at;
        if (lanes_here) return State::at_barrier;
        break;
    }
  }
  return State::ready;
}

void Warp::require_whole_warp(const Instruction& ins) const {
  if (active_ != ~0u) fault(ins, "needs all 32 lanes of the warp");
}

void Warp::addresses(Register reg, std::int64_t offset, std::uint64_t (&to)[32]) {
  if (reg.bytes == 4)
    for (unsigned lane = 0; lane < 32; ++lane)
      to[lane] = std::uint32_t(lanes<std::uint32_t>(reg)[lane] + std::uint32_t(offset));
  else
    for (unsigned lane = 0; lane < 32; ++lane)
      to[lane] = lanes<std::uint64_t>(reg)[lane] + std::uint64_t(offset);
}

const std::byte* Warp::parameter(std::uint64_t address, std::size_t bytes, const Instruction& ins) {
  const std::span<const std::byte> all = block_.launch().parameters;
  if (address > all.size() || bytes > all.size() - address)
    fault(ins, fmt::format("reads {} bytes at {} of {} bytes of parameters", bytes,
                           std::int64_t(address), all.size()));
  if (address % bytes) fault(ins, "misaligned");
  return all.data() + address;
}

std::byte* Warp::global(std::uint64_t address, std::size_t bytes, unsigned lane,
                        const Instruction& ins) {
  const Allocation* const in = block_.allocation(address);
  if (!in || bytes > in->end - address)
    fault(ins, lane,
          in ? fmt::format("{} bytes at {} of an allocation of {}", bytes, address - in->begin,
                           in->end - in->begin)
             : fmt::format("{} bytes at {:#x}, where nothing is allocated", bytes, address));
  if (address % std::bit_floor(bytes))  // a part of a copy may have 12
    fault(ins, lane, fmt::format("misaligned: {} bytes at {:#x}", bytes, address));
  return reinterpret_cast<std::byte*>(address);
}

std::byte* Warp::shared(std::uint64_t address, std::size_t bytes, Access access, unsigned lane,
                        const Instruction& ins) {
  SharedMemory& memory = block_.shared();
  std::byte* const p = memory.find(address, bytes);
  if (!p)
    fault(ins, lane,
          fmt::format("{} bytes at {:#x}, where shared memory has no array", bytes, address));
  if (address % bytes)
    fault(ins, lane, fmt::format("misaligned: {} bytes at {:#x} of shared memory", bytes, address));
  if (const std::string race = memory.touch(address, bytes, access, index_); !race.empty())
    fault(ins, lane, race);
  return p;
}

std::byte* Warp::local(std::uint64_t address, std::size_t bytes, unsigned lane,
                       const Instruction& ins) {
  const Program& program = block_.program();
  if (std::ranges::none_of(program.local, [&](auto& range) { return range.holds(address, bytes); }))
    fault(ins, lane,
          fmt::format("{} bytes at {:#x}, where local memory has no array", bytes, address));
  if (address % bytes)
    fault(ins, lane, fmt::format("misaligned: {} bytes at {:#x} of local memory", bytes, address));
  return local_.data() + lane * program.local_bytes + address;
}

void Warp::start_copy(Copy copy, const Instruction& ins) {
  std::memset(shared(copy.to, copy.bytes, Access::store, copy.lane, ins), 0xff, copy.bytes);
  copy.group = groups_[copy.lane];
  copies_.push_back(copy);
}

void Warp::commit_copies() {
  for (unsigned lane = 0; lane < 32; ++lane) groups_[lane] += active_ >> lane & 1;
}

void Warp::wait_for_copies(unsigned pending, const Instruction& ins) {
  std::erase_if(copies_, [&](const Copy& copy) {
    const bool waits = active_ >> copy.lane & 1;
    if (!waits || copy.group + pending >= groups_[copy.lane]) return false;
    std::byte* const to = shared(copy.to, copy.bytes, Access::store, copy.lane, ins);
    if (copy.valid) std::memcpy(to, copy.from, copy.valid);
    std::memset(to + copy.valid, 0, copy.bytes - copy.valid);
    return true;
  });
}

void Warp::fault(const Instruction& ins, unsigned lane, std::string_view what) const {
  fault(ins, fmt::format("lane {}: {}", lane, what));
}
void Warp::fault(const Instruction& ins, std::string_view what) const {
  throw Fault(fmt::format("{}, warp {}, line {}, '{}': {}", block_.name(), index_, ins.line,
                          ins.text, what));
}

// --- a block, and all of them

Block::Block(const Program& program, const Launch& launch)
    : program_(program), launch_(launch), random_(launch.seed) {
  for (unsigned i = 0; i < (launch.threads() + 31) / 32; ++i)
    warps_.push_back(std::make_unique<Warp>(*this, i));
}

std::string Block::name() const {
  return fmt::format("{} block ({}, {}, {})", program_.kernel, index_.x, index_.y, index_.z);
}

const Allocation* Block::allocation(std::uint64_t address) {
  if (last_ && address >= last_->begin && address < last_->end) return last_;
  const auto behind =
      std::ranges::upper_bound(launch_.allocations, address, {}, &Allocation::begin);
  if (behind == launch_.allocations.begin() || address >= std::prev(behind)->end) return nullptr;
  return last_ = &*std::prev(behind);
}

void Block::begin(std::size_t index) {
  const dim3 grid = launch_.grid;
  index_ = {unsigned(index % grid.x), unsigned(index / grid.x % grid.y),
            unsigned(index / grid.x / grid.y)};
  shared_.begin(program_, launch_.shared_bytes);
  ready_.clear();
  waiting_.clear();
  for (const std::unique_ptr<Warp>& warp : warps_) {
    warp->begin(launch_, index_);
    ready_.push_back(warp.get());
  }
}

bool Block::go_on(std::size_t most) {
  // Turns of all lengths, so that a warp is found at every place of its work by another.
  std::size_t turn = 0;
  if (launch_.seed) {
    turn = random_() % ready_.size();
    most = std::min(most, std::size_t(1) << random_() % 12);
  }
  Warp* const warp = ready_[turn];
  const Warp::State state = warp->run(most);
  if (state != Warp::State::ready) ready_.erase(ready_.begin() + std::ptrdiff_t(turn));
  if (state == Warp::State::at_barrier) waiting_.push_back(warp);
  if (ready_.empty() && !waiting_.empty()) {
    shared_.pass_barrier();
    ready_.swap(waiting_);
  }
  return !ready_.empty();
}

void execute(const Program& program, const Launch& launch) {
  std::vector<std::size_t> order(launch.blocks());
  std::iota(order.begin(), order.end(), std::size_t(0));
  if (launch.seed) std::shuffle(order.begin(), order.end(), std::mt19937(launch.seed));
  if (!launch.together) {
    Block block(program, launch);
    for (const std::size_t index : order) {
      block.begin(index);
      while (block.go_on(~std::size_t(0))) {
      }
    }
    return;
  }
  std::vector<std::unique_ptr<Block>> blocks;
  for (const std::size_t index : order) {
    blocks.push_back(std::make_unique<Block>(program, launch));
    blocks.back()->begin(index);
  }
  while (!blocks.empty())
    std::erase_if(blocks, [](const auto& block) { return !block->go_on(1 << 12); });
}

}  // namespace convlab::ptx
