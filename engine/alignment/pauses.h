// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ALIGNMENT_PAUSES_H_
#define QTTS_ALIGNMENT_PAUSES_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <span>

namespace qtts {

// Finds the silences of decoded speech as it comes. A hop of 10 ms is silent if it is 25 dB below the loudest sound
// before it, which counts 3 dB less every second, or below -70 dB; a silence has at least 16 such hops. Times are in
// seconds from the beginning. Not thread-safe.
class Pauses {
 public:
  static constexpr double kHop = 0.01;
  static constexpr int64_t kMinHops = 16;

  explicit Pauses(int sample_rate) : hop_samples_(sample_rate > 100 ? sample_rate / 100 : 1) {}

  void Add(std::span<const float> pcm);
  // Ends the sound: all of it has been added.
  void Finish() { finished_ = true; }

  struct Silence {
    double begin = 0;
    std::optional<double> end;  // none: no sound after it is known
  };
  // Returns the first silence that ends after `time`, or has not ended.
  std::optional<Silence> Next(double time) const;
  // Returns the first hop with sound at or after `time`; none if there is none yet.
  std::optional<double> FirstSound(double time) const;
  // Returns the time up to which it is known whether a silence begins: the run at the end may become one.
  double decided() const;
  // Returns the time up to which the sound is known.
  double known() const { return static_cast<double>(hops_) * kHop; }
  bool finished() const { return finished_; }
  // Silences and sounds that end before `time` are not asked for any more.
  void Forget(double time);

 private:
  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    bool silent = false;
  };
  void AddHop(float mean_square);

  const int hop_samples_;
  int filled_ = 0;  // samples of the hop at the end
  float squares_ = 0;
  float peak_ = 0;  // mean square
  int64_t hops_ = 0;
  std::deque<Run> runs_;  // alternate
  bool finished_ = false;
};

}  // namespace qtts

#endif  // QTTS_ALIGNMENT_PAUSES_H_
