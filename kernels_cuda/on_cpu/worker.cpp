#include "kernels_cuda/on_cpu/worker.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels_cuda/on_cpu/access_counts.h"

namespace convlab::on_cpu {
namespace {

constexpr std::size_t max_static_shared = 48 << 10;
constexpr std::size_t max_shared = 227 << 10;
constexpr std::align_val_t shared_alignment{128};

// Every bit set gives NaNs and -1, so that a kernel that relies on them fails.
void poison(void* memory, std::size_t bytes) { std::memset(memory, 0xff, bytes); }

}  // namespace

// --- launches and blocks

void Worker::begin(const Launch& launch) {
  launch_ = &launch;
  count_ = launch.threads();
  if (count_ > capacity_) {
    threads_.reset();  // before the stacks that they run on
    stacks_ = std::make_unique<FiberStacks>(count_);
    threads_ = std::make_unique<Thread[]>(count_);
    ring_ = std::make_unique<Thread*[]>(count_);
    warp_syncs_ = std::make_unique<WarpSync[][max_masks]>((count_ + 31) / 32);
    capacity_ = count_;
    for (unsigned i = 0; i < count_; ++i) {
      char name[32];
      std::snprintf(name, sizeof name, "CUDA thread %u", i);
      threads_[i].rank = i;
      threads_[i].fiber.create((*stacks_)[i], FiberStacks::bytes(), name);
    }
  }
  if (launch.shared_bytes) dynamic_ = allocate_shared(launch.shared_bytes);
}

void Worker::run_block(std::size_t block) {
  const Launch& launch = *launch_;
  self = this;
  blockDim = launch.block;
  gridDim = launch.grid;
  blockIdx = {unsigned(block % gridDim.x), unsigned(block / gridDim.x % gridDim.y),
              unsigned(block / gridDim.x / gridDim.y)};
  random_ = launch.seed ? unsigned((launch.seed + block) * 2654435761u) | 1 : 0;

  if (dynamic_) poison(dynamic_.get(), launch.shared_bytes);
  for (const StaticShared& array : static_) poison(array.memory.get(), array.bytes);

  alive_ = count_;
  at_barrier_ = 0;
  ready_ = {ring_.get(), count_, 0, 0};
  for (unsigned i = 0; i < (count_ + 31) / 32; ++i)
    for (WarpSync& sync : warp_syncs_[i]) sync.mask = 0;
  for (unsigned i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    thread.copies.clear();
    thread.copy_group = 0;
    thread.fiber.restart(fiber_main, i * 192 % 4096 / 64 * 64);  // tops in different cache sets
    make_ready(thread);
  }
  root_.adopt();
  release(&block_token_);
  go_to(root_, *take_ready(), false);
  acquire(&block_token_);
  end_of_epoch();
  self = nullptr;
}

void Worker::end() {
  dynamic_.reset();
  static_.clear();
  last_shared_ = {};
  static_bytes_ = 0;
}

CONVLAB_UNSEEN void Worker::fiber_main() {
  Fiber::arrived();
  Worker& worker = *self;
  acquire(&worker.block_token_);
  worker.launch_->call(worker.launch_->kernel);
  worker.exit_thread();
}

// Threads that have exited no longer count at barriers and in warp operations.
CONVLAB_UNSEEN void Worker::exit_thread() {
  current_->state = Thread::State::done;
  --alive_;
  if (at_barrier_ && at_barrier_ == alive_) open_barrier();
  const unsigned first = current_->rank / 32 * 32;
  const unsigned last = first + 32 < count_ ? first + 32 : count_;
  for (unsigned i = first; i < last; ++i)
    if (threads_[i].state == Thread::State::in_warp_op) try_warp(threads_[i]);
  release(&block_token_);
  if (alive_)
    run_next();
  else
    Fiber::switch_to(current_->fiber, root_, true);
}

void Worker::fail(const char* what, Site at) const {
  std::fprintf(stderr, "on_cpu: %s\n  at %s:%d, block (%u,%u,%u), thread (%u,%u,%u)\n", what,
               at.file, at.line, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y,
               threadIdx.z);
  int shown = 0;
  const Thread* last = nullptr;
  for (unsigned i = 0; i < count_ && shown < 8; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state != Thread::State::at_barrier && thread.state != Thread::State::in_warp_op)
      continue;
    if (last && last->at == thread.at && last->state == thread.state) continue;
    if (thread.state == Thread::State::at_barrier)
      std::fprintf(stderr, "  from thread %u on: waiting in __syncthreads at %s:%d\n", i,
                   thread.at.file, thread.at.line);
    else
      std::fprintf(stderr,
                   "  from thread %u on: waiting in a warp operation at %s:%d (mask %08x)\n", i,
                   thread.at.file, thread.at.line, thread.mask);
    last = &thread;
    ++shown;
  }
  std::abort();
}

// --- turns

CONVLAB_UNSEEN unsigned Worker::random() {  // xorshift
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  return random_;
}

CONVLAB_UNSEEN void Worker::make_ready(Thread& thread) {
  thread.state = Thread::State::ready;
  ready_[ready_.count++] = &thread;
}

CONVLAB_UNSEEN Thread* Worker::take_ready() {
  if (!ready_.count) fail("deadlock: no thread of the block can go on", current_->at);
  if (random_) {
    Thread*& drawn = ready_[random() % ready_.count];
    Thread* const thread = drawn;
    drawn = ready_[0];
    ready_[0] = thread;
  }
  Thread* const thread = ready_[0];
  ready_.head = ready_.head + 1 == ready_.capacity ? 0 : ready_.head + 1;
  --ready_.count;
  return thread;
}

CONVLAB_UNSEEN void Worker::run_next() {
  Thread& from = *current_;
  Thread& to = *take_ready();
  if (&to != &from) go_to(from.fiber, to, from.state == Thread::State::done);
}

CONVLAB_UNSEEN void Worker::go_to(Fiber& from, Thread& to, bool from_ends) {
  current_ = &to;
  threadIdx = to.index;
  Fiber::switch_to(from, to.fiber, from_ends);
}

// In a shuffled schedule the last to arrive need not be the first to go on.
CONVLAB_UNSEEN void Worker::offer_turn() {
  if (!random_) return;
  make_ready(*current_);
  run_next();
}

// --- __syncthreads

CONVLAB_UNSEEN void Worker::barrier(Site at) {
  char* const token = &barrier_tokens_[barriers_ % 2];
  release(token);
  current_->at = at;
  ++at_barrier_;
  if (at_barrier_ == alive_) {
    open_barrier();
    offer_turn();
  } else {
    current_->state = Thread::State::at_barrier;
    run_next();
  }
  acquire(token);
}

CONVLAB_UNSEEN void Worker::open_barrier() {
  at_barrier_ = 0;
  ++barriers_;
  end_of_epoch();
  const Thread* first = current_->state == Thread::State::done ? nullptr : current_;
  for (unsigned i = 0; i < count_; ++i) {
    Thread& thread = threads_[i];
    if (thread.state != Thread::State::at_barrier) continue;
    if (!first) first = &thread;
    if (thread.at.line != first->at.line || thread.at.file != first->at.file)
      fail("threads of one block wait at different __syncthreads()", first->at);
    make_ready(thread);
  }
}

// --- operations of a warp

CONVLAB_UNSEEN void Worker::wait_for_warp(unsigned mask, void* operands, Site at,
                                          void (*resolve)(Thread*, unsigned)) {
  Thread& thread = *current_;
  if (!(mask >> thread.lane() & 1)) fail("warp operation: the calling lane is not in its mask", at);
  thread.at = at;
  thread.mask = mask;
  thread.operands = operands;
  thread.resolve = resolve;
  thread.state = Thread::State::in_warp_op;
  if (try_warp(thread))
    offer_turn();
  else
    run_next();
}

// Completes the operation that this thread waits in, if all lanes that have not exited are in it.
CONVLAB_UNSEEN bool Worker::try_warp(Thread& thread) {
  const unsigned first = thread.rank / 32 * 32;
  Thread* const warp = &threads_[first];
  const unsigned lanes = count_ - first < 32 ? count_ - first : 32;
  unsigned active = 0;
  // Starts at the next lane: if threads take turns in order, that is the one that has not arrived
  // yet.
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned lane = (thread.lane() + i) % 32;
    if (!(thread.mask >> lane & 1) || lane >= lanes) continue;
    const Thread& other = warp[lane];
    if (other.state == Thread::State::done) continue;
    if (other.state != Thread::State::in_warp_op || other.mask != thread.mask ||
        other.resolve != thread.resolve)
      return false;
    active |= 1u << lane;
  }
  {
    const Unseen unseen;
    thread.resolve(warp, active);
  }
  for (unsigned lane = 0; lane < lanes; ++lane) {
    if (!(active >> lane & 1)) continue;
    if (&warp[lane] == current_)
      current_->state = Thread::State::ready;
    else
      make_ready(warp[lane]);
  }
  return true;
}

CONVLAB_UNSEEN Worker::WarpSync& Worker::warp_sync(unsigned mask, Site at) {
  for (WarpSync& sync : warp_syncs_[current_->rank / 32]) {
    if (!sync.mask) sync.mask = mask;
    if (sync.mask == mask) return sync;
  }
  fail("__syncwarp: more than 16 different masks", at);
}

// The only warp operation that orders memory.
CONVLAB_UNSEEN void Worker::sync_warp(unsigned mask, Site at) {
  struct Operands {
    WarpSync* sync;
  } mine{&warp_sync(mask, at)};
  char* const token = &mine.sync->tokens[mine.sync->generation % 2];
  release(token);
  warp_op(mask, mine, at, [](Operands* const lanes[32], unsigned active) {
    ++lanes[std::countr_zero(active)]->sync->generation;
  });
  acquire(token);
}

// --- shared memory: exactly sized, so that the address sanitizer sees its end

void Worker::FreeShared::operator()(std::byte* p) const { ::operator delete(p, shared_alignment); }

Worker::SharedMemory Worker::allocate_shared(std::size_t bytes) {
  return SharedMemory(static_cast<std::byte*>(::operator new(bytes, shared_alignment)));
}

CONVLAB_UNSEEN void* Worker::static_shared(const void* tag, std::size_t bytes) {
  const Unseen unseen;
  for (const StaticShared& array : static_)
    if (array.tag == tag) return array.memory.get();
  static_bytes_ += bytes;
  if (static_bytes_ > max_static_shared)
    fail("more than 48 KB of static shared memory", current_->at);
  if (static_bytes_ + launch_->shared_bytes > max_shared)
    fail("more than 227 KB of shared memory", current_->at);
  static_.push_back({tag, bytes, allocate_shared(bytes)});
  poison(static_.back().memory.get(), bytes);
  return static_.back().memory.get();
}

CONVLAB_UNSEEN bool Worker::find_shared(const void* p, std::size_t bytes) {
  const Unseen unseen;
  const auto try_range = [&](const SharedMemory& memory, std::size_t size) {
    const Range range{memory.get(), memory.get() + size};
    if (!range.holds(p, bytes)) return false;
    last_shared_ = range;
    return true;
  };
  return try_range(dynamic_, dynamic_ ? launch_->shared_bytes : 0) ||
         std::any_of(static_.begin(), static_.end(), [&](const StaticShared& array) {
           return try_range(array.memory, array.bytes);
         });
}

}  // namespace convlab::on_cpu
