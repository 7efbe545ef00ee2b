#include "bench/reports/nets/train_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "bench/reports/report.h"
#include "conv/error.h"

namespace convlab {

using namespace nets;
namespace {

constexpr std::string_view log_header =
    "epoch,rate,loss,top1,test_loss,test_top1,test_top5,images_per_s,t_io_s,s,t_comm_s,exposed_s,"
    "waited_s,waited_for\n";

const RankTime& slowest_of(const EpochReport& r) {
  return *std::max_element(
      r.ranks.begin(), r.ranks.end(),
      [](const RankTime& a, const RankTime& b) { return a.waited_for_s < b.waited_for_s; });
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string show_time(double seconds) {
  const auto s = std::int64_t(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

}  // namespace

std::string show_rate(double share) { return fmt::format("{:.2f}%", 100 * share); }

void TrainLog::require_writable(const std::string& file) {
  if (file.empty() || file == "-") return;
  const std::filesystem::path path(file);
  std::error_code none;
  if (std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) > 0) {
    std::string begin(log_header.size(), '\0');
    if (std::ifstream in(path);
        in && !(in.read(begin.data(), std::streamsize(begin.size())) && begin == log_header))
      throw InputError(
          fmt::format("--log: '{}' is there and is no such log: expected a new name", file));
  }
  const bool is_folder = std::filesystem::is_directory(path, none);
  if (!is_folder && access(file.c_str(), W_OK) == 0) return;
  const int error = is_folder ? EISDIR : errno;
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (error == ENOENT && access(folder.c_str(), W_OK) == 0) return;
  throw InputError(fmt::format("--log: cannot write '{}': {}", file, std::strerror(error)));
}

TrainLog::TrainLog(const std::string& file, bool append) : path_(file) {
  if (file.empty()) return;
  if (path_ == "-") path_ = "/dev/stdout";
  std::error_code error;
  is_new_ = !std::filesystem::exists(path_, error);
  const bool fresh = !append || is_new_;
  stream_.open(path_, fresh && file != "-" ? std::ios::trunc : std::ios::app);
  if (!stream_)
    throw InputError(fmt::format("--log: cannot write '{}': {}", file, std::strerror(errno)));
  if (std::filesystem::is_regular_file(path_)) rows_end_ = std::filesystem::file_size(path_);
  if (fresh) write(std::string(log_header));
}

void TrainLog::write(const std::string& line) {
  if (path_.empty()) return;
  stream_ << line << std::flush;
  if (!stream_) {
    const int error = errno;
    drop_half_row();
    throw EnvironmentError(
        fmt::format("--log: cannot write '{}': {}", path_, std::strerror(error)));
  }
  if (rows_end_) *rows_end_ += line.size();
}

void TrainLog::drop_half_row() {
  if (!rows_end_) return;
  stream_.close();  // tries once more to write the rest
  std::error_code ignored;
  if (is_new_ && *rows_end_ == 0)
    std::filesystem::remove(path_, ignored);
  else
    std::filesystem::resize_file(path_, *rows_end_, ignored);
}

TrainReporter::TrainReporter(TrainLog& log, Progress& progress, const DataLoader& loader,
                             std::int64_t epochs, const TrainingState& start)
    : log_(log), progress_(progress), loader_(loader) {
  total_ = (epochs - start.epoch) * start.steps - start.step;
  before_ = start.scores.images;
}

void TrainReporter::step(const StepReport& r) {
  ++done_;
  for (; named_ < loader_.bad_images().size(); ++named_)
    progress_.line(fmt::format("skipped {}", loader_.bad_images()[named_]));
  if (seconds_since(told_) < (progress_.has_terminal() ? 0.1 : 10)) return;
  told_ = Clock::now();
  const std::string text = fmt::format(
      "epoch {}/{}: loss {:.4f}, top-1 {}, {} images/s, t_io {:.1f}%, {} left", r.epoch + 1,
      r.epochs, r.scores.mean_loss(), show_rate(r.scores.top1_rate()),
      show_images_per_s(images_per_s(r.scores)), 100 * io_s() / seconds_since(epoch_begin_),
      show_time(seconds_since(begin_) / double(done_) * double(total_ - done_)));
  progress_.step(std::size_t(done_), std::size_t(total_), text);
}

void TrainReporter::testing() {
  if (trained_s_ > 0) return;
  trained_s_ = seconds_since(epoch_begin_);
  trained_io_s_ = io_s();
}

void TrainReporter::epoch(const EpochReport& r) {
  const double images_per_s = double(r.train.images - before_) / trained_s_;
  std::string text = fmt::format("epoch {}/{}: loss {:.4f}, top-1 {}", r.epoch + 1, r.epochs,
                                 r.train.mean_loss(), show_rate(r.train.top1_rate()));
  if (r.test)
    text += fmt::format("; test loss {:.4f}, top-1 {}{}", r.test->mean_loss(),
                        show_rate(r.test->top1_rate()), r.best ? " (best)" : "");
  progress_.line(fmt::format("{}; {} images/s, t_io {:.1f}%, {}", text,
                             show_images_per_s(images_per_s), 100 * trained_io_s_ / trained_s_,
                             show_time(trained_s_)));
  if (!r.ranks.empty()) ranks(r);
  if (trained_io_s_ > 0.05 * trained_s_)
    progress_.line(
        fmt::format("reading images was not hidden: {:.1f} s of that; more --data-threads may help",
                    trained_io_s_));
  const Scores test = r.test.value_or(Scores());
  const std::string exchange =
      r.ranks.empty() ? ",,,"
                      : fmt::format("{:.3f},{:.3f},{:.3f},{}", r.communicated_s, r.exposed_s,
                                    slowest_of(r).waited_for_s, &slowest_of(r) - r.ranks.data());
  log_.write(fmt::format("{},{},{},{},{},{},{},{:.1f},{:.3f},{:.3f},{}\n", r.epoch + 1, r.rate,
                         r.train.mean_loss(), r.train.top1_rate(), test.mean_loss(),
                         test.top1_rate(), test.top5_rate(), images_per_s, trained_io_s_,
                         trained_s_, exchange));
  epoch_begin_ = Clock::now();
  io_before_s_ = loader_.waited_s();
  trained_s_ = trained_io_s_ = 0;
  before_ = 0;
}

// The exchange, and the rank that the others waited for most.
void TrainReporter::ranks(const EpochReport& r) {
  const RankTime& slowest = slowest_of(r);
  const double hidden = std::max(0.0, r.communicated_s - r.exposed_s);
  progress_.line(
      fmt::format("exchange {:.1f} s, {:.0f}% of it hidden; {:.1f} s waited for rank {}{}",
                  r.communicated_s, 100 * hidden / std::max(r.communicated_s, 1e-9),
                  slowest.waited_for_s, &slowest - r.ranks.data(),
                  slowest.waited_for_s > std::max(1.0, 0.1 * trained_s_) ? ", which is slow" : ""));
}

double TrainReporter::images_per_s(const Scores& scores) const {
  return double(scores.images - before_) / seconds_since(epoch_begin_);
}

}  // namespace convlab
