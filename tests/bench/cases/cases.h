// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_BENCH_CASES_H_
#define QTTS_TESTS_BENCH_CASES_H_

#include <gst/gst.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "../arguments.h"

// Cases of bench-cases: behaviour of the element beside what takes long. Each prints its figures and returns whether
// they meet the case's limits.
namespace qtts::bench {

struct Case {
  int number = 0;  // rounds, elements or seconds
  std::string model;
};

bool BenchElements(const Case& options);
bool BenchInterrupt(const Case& options);
bool BenchLive(const Case& options);
bool BenchPrefill(const Case& options);

inline double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Quantile of sorted values.
inline double At(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
}

// A pipeline of a launch line with a qttssrc named "speech".
class Speaker {
 public:
  Speaker(const std::string& line, const std::string& model);
  ~Speaker();
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  GstElement* pipeline() const { return pipeline_; }
  GstElement* element() const { return element_; }
  // Buffers that left; silence is not counted.
  int buffers() const { return buffers_; }

  void Set(GstState state);
  void Speak(const std::string& text, const char* params = nullptr);
  guint64 Stat(const char* name) const;
  // Waits until `condition` holds; fails after two minutes.
  template <typename Condition>
  static void Await(const Condition& condition) {
    const auto start = std::chrono::steady_clock::now();
    while (!condition()) {
      if (MillisecondsSince(start) > 120000) Fail("nothing happened for two minutes");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static GstPadProbeReturn OnBuffer(GstPad* pad, GstPadProbeInfo* info, gpointer user);

  GstElement* pipeline_;
  GstElement* element_;
  std::atomic<int> buffers_ = 0;
};

}  // namespace qtts::bench

#endif  // QTTS_TESTS_BENCH_CASES_H_
