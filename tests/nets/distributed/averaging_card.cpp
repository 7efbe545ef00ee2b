#include "tests/nets/distributed/averaging_card.h"

#include <algorithm>

#include "conv/error.h"

namespace convlab::nets {
namespace {

class CardAverage : public DeviceAverage {
 public:
  CardAverage(CardLink& link, std::size_t number, int size, DType dtype, Span values)
      : link_(link),
        number_(number),
        size_(size),
        dtype_(dtype),
        values_(values),
        before_(values.begin(), values.end()) {}

  bool is_complete() override {
    const std::lock_guard lock(link_.mutex);
    const auto& parts = link_.averages[number_];
    if (int(parts.size()) < size_) {
      if (link_.left > 0) throw Error("another card has left");
      return false;
    }
    if (!std::equal(before_.begin(), before_.end(), values_.begin()))
      throw Error("something changed the values on their way");
    if (dtype_ == DType::f64)
      average<double>(parts);
    else
      average<float>(parts);
    return true;
  }
  double seconds() const override { return AveragingCard::average_s; }

 private:
  template <class T>
  void average(const std::map<int, std::vector<std::byte>>& parts) const {
    for (std::size_t i = 0; i < values_.size() / sizeof(T); ++i) {
      T sum = 0;
      for (const auto& [rank, part] : parts) sum += reinterpret_cast<const T*>(part.data())[i];
      reinterpret_cast<T*>(values_.data())[i] = sum / T(size_);
    }
  }

  CardLink& link_;
  const std::size_t number_;
  const int size_;
  const DType dtype_;
  const Span values_;
  const std::vector<std::byte> before_;
};

class CardGroup : public DeviceGroup {
 public:
  CardGroup(AveragingCard& card, CardLink& link, int rank, int size)
      : card_(card), link_(link), rank_(rank), size_(size) {}
  ~CardGroup() override {
    const std::lock_guard lock(link_.mutex);
    ++link_.left;
  }
  std::unique_ptr<DeviceAverage> start_average(DType dtype, Span values, Stream& after) override {
    const std::lock_guard lock(link_.mutex);
    const std::size_t number = next_++;
    link_.averages.resize(std::max(link_.averages.size(), next_));
    link_.averages[number][rank_].assign(values.begin(), values.end());
    ++card_.started;
    card_.behind.push_back(&after);
    return std::make_unique<CardAverage>(link_, number, size_, dtype, values);
  }

 private:
  AveragingCard& card_;
  CardLink& link_;
  const int rank_, size_;
  std::size_t next_ = 0;
};

}  // namespace

std::string AveragingCard::averaging_library() {
  if (!missing.empty()) throw EnvironmentError(missing);
  return "a test's";
}

std::unique_ptr<DeviceGroup> AveragingCard::join_group(const std::string& id, int rank, int size) {
  if (id != std::string("\0id", 3)) throw InputError("another group's id");
  if (!cannot_join.empty()) throw Error(cannot_join);
  const std::lock_guard lock(link_.mutex);
  ++link_.joined;
  return std::make_unique<CardGroup>(*this, link_, rank, size);
}

}  // namespace convlab::nets
