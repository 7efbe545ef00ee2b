#include "nets/distributed/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "conv/error.h"
#include "nets/distributed/devices.h"
#include "nets/distributed/measure.h"

namespace convlab::nets {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

constexpr std::int64_t deterministic_bucket = 4 << 20;
constexpr std::size_t large_average = 1 << 20;

// An average of S bytes takes about a + S / b. Its latency is a tenth of its transfer at S = 10 a
// b.
std::int64_t measured_bucket(Communicator& ranks,
                             const std::function<double(std::size_t bytes)>& average_s) {
  constexpr std::int64_t least = 64 << 10, most = 32 << 20;
  if (ranks.size() == 1) return most;
  const double latency = average_s(std::size_t(64 * ranks.size()));
  const double transfer = std::max(average_s(large_average) - latency, 1e-9);
  const double bytes =
      std::clamp(10 * latency / transfer * double(large_average), double(least), double(most));
  return ranks.all_gather(std::int64_t(bytes)).front();
}

}  // namespace

// Buckets up to `ready_` have final gradients; those before `done_` are averaged. In between lies
// the work, which is done by the thread if there is one, else by are_final_from() and finish().
class GradientExchange::Impl {
 public:
  Impl(Net& net, Communicator& ranks, const ExchangeOptions& options)
      : net_(net), ranks_(ranks.duplicate()), options_(options) {
    bucket_bytes_ = options.bucket_bytes;
    if (bucket_bytes_ == 0 && net.plan().deterministic) bucket_bytes_ = deterministic_bucket;
    require_same(*ranks_, "exchange", std::string(to_string(options.strategy)));
    require_same(*ranks_, "bucket", fmt::format("{} bytes", bucket_bytes_));
    require_same(*ranks_, "compression", options.bf16 ? "bf16" : "none");
    if (net.plan().mode != Mode::training)
      throw InputError(
          fmt::format("net {}: has no gradients to exchange: expected a plan for training",
                      net.graph().name()));
    if (options.bucket_bytes < 0)
      throw InputError(
          fmt::format("a bucket of {} bytes: expected 0 or more", options.bucket_bytes));
    how_ = {net.value_type(), options.strategy == Strategy::server ? Route::server : Route::ring,
            options.bf16};
    validate(how_);
    on_host_ = net.device().info().kind == DeviceKind::cpu;
    if (ranks.size() > 1) {
      JoinedDevices joined = join_devices(*ranks_, net.device(), needs_hosts());
      group_ = std::move(joined.group);
      if (!on_host_ && !group_)
        note_ = fmt::format("gradients travel through the hosts: {}", joined.obstacle);
    }
    if (bucket_bytes_ == 0) bucket_bytes_ = measured_bucket();
    make_buckets();
    if (options.own_thread && ranks.size() > 1) thread_ = std::thread([this] { work(); });
    net.observe_gradients([this](std::size_t first) {
      if (options_.strategy != Strategy::after) are_final_from(first);
    });
  }

  ~Impl() {
    net_.observe_gradients(nullptr);
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void finish() {
    if (group_) net_.stream().synchronize();  // what is waited for from here on is the exchange
    const Clock::time_point begin = Clock::now();
    are_final_from(0);
    if (thread_.joinable()) {
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return error_ || done_ == buckets_.size(); });
      if (error_) std::rethrow_exception(error_);
    } else {
      while (done_ < buckets_.size()) {
        begin_bucket();
        ranks_->complete(*current_);
        end_bucket();
        ++done_;
      }
    }
    if (is_staged())
      for (const BucketExchange& bucket : buckets_) copy(bucket, false);
    exposed_s_ = seconds(Clock::now() - begin);
    communicated_s_ = 0;
    for (const BucketExchange& bucket : buckets_)
      communicated_s_ += seconds(bucket.ended - bucket.begun);
    total_exposed_s_ += exposed_s_;
    total_communicated_s_ += communicated_s_;
    const std::lock_guard lock(mutex_);
    ready_ = done_ = 0;
  }

 private:
  friend class GradientExchange;

  // Why devices cannot do what is asked for; empty if they can.
  std::string needs_hosts() const {
    if (options_.strategy == Strategy::server) return "the server is rank 0's host";
    if (options_.bf16) return "they are rounded to bf16 there";
    if (net_.plan().deterministic) return "only there the order of additions is always the same";
    return "";
  }

  // A card's gradients are copied to the host and back.
  bool is_staged() const { return !on_host_ && !group_; }

  std::int64_t measured_bucket() {
    if (group_) {
      const Buffer values = net_.device().allocate(large_average);
      return nets::measured_bucket(*ranks_, [&](std::size_t bytes) {
        return best_device_average_s(*ranks_, *group_, how_.dtype, values.span().first(bytes),
                                     net_.stream());
      });
    }
    std::vector<std::byte> values(large_average);
    return nets::measured_bucket(*ranks_, [&](std::size_t bytes) {
      return median_average_s(*ranks_, Span(values).first(bytes), how_);
    });
  }

  void make_buckets() {
    const std::vector<Parameter>& parameters = net_.parameters();
    const std::size_t size = std::size_t(size_of(net_.value_type()));
    const Span all = net_.gradients();
    if (is_staged()) staging_ = net_.device().allocate_pinned(all.size());
    values_ = is_staged() ? staging_.span() : all;
    // Each begins at a gradient's start and ends where the one before begins, padding included.
    std::size_t end = all.size(), end_parameter = parameters.size();
    for (std::size_t p = parameters.size(); p-- > 0;) {
      if (parameters[p].gradient == nullptr) continue;
      const std::size_t begin = std::size_t(parameters[p].gradient - all.data());
      const bool last = begin == 0;
      if (!last && std::int64_t(end - begin) < bucket_bytes_) continue;
      buckets_.push_back({p, end_parameter, end - begin, {}, {}});
      spans_.push_back(values_.subspan(begin, (end - begin) / size * size));
      end = begin;
      end_parameter = p;
      if (last) break;
    }
    on_device_.resize(buckets_.size());
  }

  // Between a card's gradients and their place on the host.
  void copy(const BucketExchange& bucket, bool to_host) {
    const std::byte* const all = net_.gradients().data();
    const std::size_t size = std::size_t(size_of(net_.value_type()));
    for (std::size_t p = bucket.first; p < bucket.end; ++p) {
      const Parameter& parameter = net_.parameters()[p];
      if (parameter.gradient == nullptr) continue;
      const Span at = values_.subspan(std::size_t(parameter.gradient - all),
                                      std::size_t(parameter.count) * size);
      if (to_host)
        net_.read(parameter.gradient, at);
      else
        net_.write(parameter.gradient, at);
    }
  }

  void are_final_from(std::size_t first) {
    std::size_t ready = ready_;
    for (; ready < buckets_.size() && buckets_[ready].first >= first; ++ready) {
      if (is_staged()) copy(buckets_[ready], true);
      if (group_)
        on_device_[ready] = group_->start_average(how_.dtype, spans_[ready], net_.stream());
    }
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        ready_ = ready;
      }
      wake_.notify_all();
      return;
    }
    ready_ = ready;
    while (done_ < ready_) {
      begin_bucket();
      if (!current_->progress()) return;
      end_bucket();
      ++done_;
    }
  }

  void begin_bucket() {
    if (current_) return;
    buckets_[done_].begun = Clock::now();
    if (group_)
      current_ = pending_on_device(*on_device_[done_]);
    else
      current_ = ranks_->start_average(spans_[done_], how_);
  }
  void end_bucket() {
    current_.reset();
    BucketExchange& bucket = buckets_[done_];
    bucket.ended = Clock::now();
    if (group_)
      bucket.begun =
          bucket.ended - std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(on_device_[done_]->seconds()));
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || (!error_ && done_ < ready_); });
      if (stop_) return;
      lock.unlock();
      std::exception_ptr error;
      try {
        begin_bucket();
        if (!ranks_->complete(*current_, &stop_)) return;
        end_bucket();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      if (!error) ++done_;
      finished_.notify_all();
    }
  }

  Net& net_;
  const std::unique_ptr<Communicator> ranks_;
  const ExchangeOptions options_;
  Average how_;
  std::int64_t bucket_bytes_ = 0;
  std::vector<BucketExchange> buckets_;
  std::vector<Span> spans_;  // of each bucket, where it is averaged
  bool on_host_ = true;
  std::string note_;
  Buffer staging_;  // a card's gradients, on the host
  Span values_;
  std::unique_ptr<DeviceGroup> group_;                     // null: hosts average
  std::vector<std::unique_ptr<DeviceAverage>> on_device_;  // of each bucket
  std::unique_ptr<Pending> current_;
  double communicated_s_ = 0, exposed_s_ = 0, total_communicated_s_ = 0, total_exposed_s_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::size_t ready_ = 0, done_ = 0;
  std::atomic<bool> stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

GradientExchange::GradientExchange(Net& net, Communicator& ranks, const ExchangeOptions& options)
    : impl_(std::make_unique<Impl>(net, ranks, options)) {}
GradientExchange::~GradientExchange() = default;
void GradientExchange::finish() { impl_->finish(); }
std::int64_t GradientExchange::bucket_bytes() const { return impl_->bucket_bytes_; }
const std::string& GradientExchange::note() const { return impl_->note_; }
const std::vector<BucketExchange>& GradientExchange::buckets() const { return impl_->buckets_; }
double GradientExchange::communicated_s() const { return impl_->communicated_s_; }
double GradientExchange::exposed_s() const { return impl_->exposed_s_; }
double GradientExchange::total_communicated_s() const { return impl_->total_communicated_s_; }
double GradientExchange::total_exposed_s() const { return impl_->total_exposed_s_; }

}  // namespace convlab::nets
