#include "nets/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "conv/error.h"
#include "conv/text/bytes.h"
#include "nets/data/random.h"
#include "nets/data/transform_image.h"

namespace convlab::nets {

// Batches lie in a ring of prefetch + 1 slots: one is the caller's, the others are being filled.
// Threads fill a batch in chunks of several images, which they claim in order.
class DataLoader::Impl {
 public:
  Impl(const Dataset& dataset, const Transform& transform, const LoaderOptions& options,
       Device& device)
      : dataset_(dataset),
        transform_(transform),
        options_(options),
        size_(dataset.size()),
        device_(device),
        stream_(device.make_stream()) {
    check();
    chunk_ = std::clamp<std::int64_t>(share_ / std::max(options.threads, 1), 1, 16);
    chunks_ = (share_ + chunk_ - 1) / chunk_;
    slots_.resize(std::size_t(slots()));
    for (Slot& slot : slots_) {
      slot.pinned = device.allocate_pinned(share_ * image_bytes_);
      if (device.info().kind != DeviceKind::cpu)
        slot.on_device = device.allocate(share_ * image_bytes_);
      slot.labels.resize(share_);
    }
    threads_.reserve(std::size_t(options.threads));
    try {
      for (int i = 0; i < options.threads; ++i)
        threads_.emplace_back([this] { work_until_stopped(); });
    } catch (const std::system_error& error) {
      stop();
      throw EnvironmentError(
          fmt::format("cannot start {} threads to load data: the system gives {} ({}); expected "
                      "fewer, as with --data-threads {}",
                      options.threads, threads_.size(), error.code().message(), threads_.size()));
    }
  }

  ~Impl() { stop(); }

  std::int64_t batches() const {
    return options_.drop_last ? size_ / options_.batch
                              : (size_ + options_.batch - 1) / options_.batch;
  }

  void start(std::int64_t epoch, std::int64_t first_batch) {
    if (epoch < 0 || first_batch < 0 || first_batch > batches())
      throw InputError(fmt::format("epoch {} from batch {} on: an epoch has batches 0 to {}", epoch,
                                   first_batch, batches() - 1));
    std::unique_lock lock(mutex_);
    end_ = 0;  // stops claiming
    finished_.wait(lock, [&] { return working_ == 0; });
    epoch_ = epoch;
    order_.resize(size_);
    std::iota(order_.begin(), order_.end(), std::int64_t(0));
    if (options_.shuffle) {
      Draws draws{options_.seed, std::uint64_t(epoch)};
      for (std::int64_t i = size_ - 1; i > 0; --i) std::swap(order_[i], order_[draws.below(i + 1)]);
    }
    for (Slot& slot : slots_) slot.begin(chunks_);
    oldest_ = claimed_batch_ = first_batch;
    claimed_chunk_ = 0;
    holding_ = false;
    end_ = batches();
    claimable_.notify_all();
  }

  const Batch* next() {
    std::unique_lock lock(mutex_);
    if (order_.empty()) throw InputError("data loader: next needs start before it");
    if (std::exchange(holding_, false)) {
      slot_of(oldest_).begin(chunks_);
      ++oldest_;
      claimable_.notify_all();
    }
    if (oldest_ >= end_) return nullptr;
    const auto begin = std::chrono::steady_clock::now();
    Slot& slot = slot_of(oldest_);
    if (options_.threads == 0)
      while (slot.unfinished > 0) work(lock);
    finished_.wait(lock, [&] { return slot.unfinished == 0; });
    waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (slot.error) {
      end_ = 0;
      std::rethrow_exception(slot.error);
    }
    report(slot);
    holding_ = true;
    batch_ = {(slot.must_be_copied() ? slot.on_device : slot.pinned).span(), slot.labels, 0};
    batch_.images = std::count_if(slot.labels.begin(), slot.labels.end(),
                                  [](std::int32_t label) { return label >= 0; });
    return &batch_;
  }

  double waited_s() const { return waited_s_; }
  const std::vector<std::string>& bad_images() const { return bad_images_; }

 private:
  struct BadImage {
    std::int64_t position, index;  // in the epoch's order, in the dataset
    std::string why;
  };
  struct Slot {
    Buffer pinned;
    Buffer on_device;  // on a card
    std::vector<std::int32_t> labels;
    std::int64_t unfinished = 0;  // chunks
    std::vector<BadImage> bad;
    std::exception_ptr error;

    void begin(std::int64_t chunks) {
      unfinished = chunks;
      bad.clear();
      error = nullptr;
    }
    bool must_be_copied() const { return on_device.data() != nullptr; }
  };

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    claimable_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  static std::int64_t bytes_of(DType dtype) { return dtype == DType::f64 ? 8 : 4; }

  std::int64_t slots() const {
    return options_.threads > 0 ? std::int64_t(options_.prefetch) + 1 : 1;
  }

  void check() {
    validate(transform_);
    const auto require = [](bool holds, const std::string& why) {
      if (!holds) throw InputError(why);
    };
    require(size_ > 0, "a dataset without images");
    require(options_.batch >= 1, fmt::format("a batch of {}; expected 1 or more", options_.batch));
    require(options_.threads >= 0 && options_.prefetch >= 0 && options_.bad_images >= 0,
            "a loader's threads, prefetch and bad_images are 0 or more");
    require(options_.dtype == DType::f32 || options_.dtype == DType::f64,
            "a loader makes f32 or f64");
    require(options_.threads <= most_data_threads,
            fmt::format("{} threads to load data: expected 0 to {}", options_.threads,
                        most_data_threads));
    require(!options_.drop_last || options_.batch <= size_,
            fmt::format("a batch of {} is more than the {} images that there are", options_.batch,
                        size_));
    require(options_.rank >= 0 && options_.rank < options_.ranks,
            fmt::format("rank {} of {}", options_.rank, options_.ranks));
    require(options_.batch % options_.ranks == 0,
            fmt::format("a batch of {} does not divide among {} ranks: expected a multiple of {}",
                        options_.batch, options_.ranks, options_.ranks));
    share_ = options_.batch / options_.ranks;
    image_bytes_ = transform_.elements() * bytes_of(options_.dtype);
    // Its images are pinned in the host's memory; how much a card's host has is not known here.
    const double there = double(device_.info().memory_bytes);
    const double needed = double(image_bytes_) * double(slots()) * double(share_);
    require(
        device_.info().kind != DeviceKind::cpu || needed <= there,
        fmt::format("{} batches of {} images (prefetch {}) do not fit in {}: expected a smaller "
                    "batch or prefetch",
                    slots(), share_, options_.prefetch, show_bytes(device_.info().memory_bytes)));
  }

  Slot& slot_of(std::int64_t batch) { return slots_[batch % std::int64_t(slots_.size())]; }

  bool can_claim() const {
    return claimed_batch_ < end_ && claimed_batch_ < oldest_ + std::int64_t(slots_.size());
  }

  void work_until_stopped() {
    std::unique_lock lock(mutex_);
    while (true) {
      claimable_.wait(lock, [&] { return stop_ || can_claim(); });
      if (stop_) return;
      work(lock);
    }
  }

  // Claims one chunk and fills it in, unlocked; copies the batch after its last chunk.
  void work(std::unique_lock<std::mutex>& lock) {
    const std::int64_t batch = claimed_batch_, chunk = claimed_chunk_++;
    if (claimed_chunk_ == chunks_) {
      ++claimed_batch_;
      claimed_chunk_ = 0;
    }
    ++working_;
    Slot& slot = slot_of(batch);
    const auto unlocked = [&](const auto& run) {
      std::exception_ptr error;
      lock.unlock();
      try {
        run();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) slot.error = error;
    };
    std::vector<BadImage> bad;
    unlocked([&] {
      const std::int64_t begin = chunk * chunk_, end = std::min(begin + chunk_, share_);
      for (std::int64_t i = begin; i < end && !stop_; ++i)
        fill(slot, i, batch * options_.batch + options_.rank * share_ + i, bad);
    });
    std::move(bad.begin(), bad.end(), std::back_inserter(slot.bad));
    if (slot.unfinished == 1 && slot.must_be_copied())
      unlocked([&] {
        device_.copy_to_device(slot.on_device.data(), slot.pinned.span(), *stream_);
        stream_->synchronize();
      });
    --slot.unfinished;
    --working_;
    finished_.notify_all();
  }

  // Fills in image i of a batch, the one at this position of the epoch.
  void fill(Slot& slot, std::int64_t i, std::int64_t position, std::vector<BadImage>& bad) const {
    std::byte* const out = slot.pinned.data() + i * image_bytes_;
    if (position < size_) {
      const std::int64_t index = order_[position];
      try {
        const Image image = dataset_.image(index);
        const Draws draws{options_.seed, std::uint64_t(epoch_), std::uint64_t(index)};
        if (options_.dtype == DType::f64)
          transform_image(image, transform_, draws, reinterpret_cast<double*>(out));
        else
          transform_image(image, transform_, draws, reinterpret_cast<float*>(out));
        slot.labels[i] = dataset_.label(index);
        return;
      } catch (const InputError& error) {
        bad.push_back({position, index, error.what()});
      }
    }
    std::fill(out, out + image_bytes_, std::byte{0});
    slot.labels[i] = no_label;
  }

  // A bad image is bad in every epoch, but named once, in the epoch's order whichever thread was
  // first.
  void report(Slot& slot) {
    std::sort(slot.bad.begin(), slot.bad.end(),
              [](const BadImage& a, const BadImage& b) { return a.position < b.position; });
    for (const BadImage& bad : slot.bad) {
      if (!known_bad_.insert(bad.index).second) continue;
      if (std::int64_t(known_bad_.size()) > options_.bad_images) {
        end_ = 0;
        if (options_.bad_images == 0) throw InputError(bad.why);
        throw InputError(
            fmt::format("{}, after {} other bad images", bad.why, options_.bad_images));
      }
      bad_images_.push_back(bad.why);
    }
  }

  const Dataset& dataset_;
  const Transform transform_;
  const LoaderOptions options_;
  const std::int64_t size_;
  Device& device_;
  const std::unique_ptr<Stream> stream_;
  std::int64_t share_ = 0;  // images of a batch that are this loader's
  std::int64_t image_bytes_ = 0, chunk_ = 0, chunks_ = 0;
  std::vector<Slot> slots_;

  // The caller's batch.
  Batch batch_;
  double waited_s_ = 0;
  std::vector<std::string> bad_images_;
  std::set<std::int64_t> known_bad_;

  std::mutex mutex_;
  std::condition_variable claimable_, finished_;
  std::atomic<bool> stop_ = false;
  // Written only while no thread works.
  std::int64_t epoch_ = 0;
  std::vector<std::int64_t> order_;
  // Batches: the first not yet given back, the threads' claim position, and the end. The caller
  // holds the oldest.
  std::int64_t oldest_ = 0, claimed_batch_ = 0, claimed_chunk_ = 0, end_ = 0, working_ = 0;
  bool holding_ = false;

  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(const Dataset& dataset, const Transform& transform,
                       const LoaderOptions& options, Device& device)
    : impl_(std::make_unique<Impl>(dataset, transform, options, device)) {}
DataLoader::~DataLoader() = default;
std::int64_t DataLoader::batches() const { return impl_->batches(); }
void DataLoader::start(std::int64_t epoch, std::int64_t first_batch) {
  impl_->start(epoch, first_batch);
}
const Batch* DataLoader::next() { return impl_->next(); }
double DataLoader::waited_s() const { return impl_->waited_s(); }
const std::vector<std::string>& DataLoader::bad_images() const { return impl_->bad_images(); }

}  // namespace convlab::nets
