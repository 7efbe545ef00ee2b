// What a training says meanwhile: its progress, and a log with a row for each epoch.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "bench/output.h"
#include "nets/data/loader.h"
#include "nets/train/trainer.h"

namespace convlab {

std::string show_rate(double share);  // "93.75%"

// One row per epoch, written when it ends: whole or not at all.
class TrainLog {
 public:
  // Writes nothing. Throws InputError if no log can be written.
  static void require_writable(const std::string& file);
  TrainLog(const std::string& file, bool append);  // an empty name: no log
  void write(const std::string& line);

 private:
  void drop_half_row();

  std::string path_;
  std::ofstream stream_;
  bool is_new_ = false;
  std::optional<std::uintmax_t> rows_end_;  // nullopt for a device or a pipe
};

class TrainReporter {
 public:
  TrainReporter(TrainLog&, Progress&, const nets::DataLoader&, std::int64_t epochs,
                const nets::TrainingState& start);
  void step(const nets::StepReport&);
  void testing();  // the training part of an epoch has ended, and its test begins
  void epoch(const nets::EpochReport&);

 private:
  using Clock = std::chrono::steady_clock;

  void ranks(const nets::EpochReport&);
  double io_s() const { return loader_.waited_s() - io_before_s_; }
  double images_per_s(const nets::Scores&) const;

  TrainLog& log_;
  Progress& progress_;
  const nets::DataLoader& loader_;
  std::int64_t total_ = 0, done_ = 0;  // steps, of this run
  std::int64_t before_ = 0;            // images of the epoch that another run processed
  std::size_t named_ = 0;              // bad images
  Clock::time_point begin_ = Clock::now(), epoch_begin_ = begin_, told_ = begin_;
  double io_before_s_ = 0, trained_s_ = 0, trained_io_s_ = 0;
};

}  // namespace convlab
