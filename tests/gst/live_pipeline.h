// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_LIVE_PIPELINE_H_
#define QTTS_TESTS_GST_LIVE_PIPELINE_H_

#include <gst/check/gsttestclock.h>

#include <string>
#include <vector>

#include "support.h"

// A live element whose clock a test moves, so that no test depends on the load of the machine.

namespace qtts::testing {

// Maximum lateness of speech before the element sends silence instead.
constexpr GstClockTime kLateTolerance = 10 * GST_MSECOND;

// A pipeline whose clock stands still unless a test moves it.
class LivePipeline : public Pipeline {
 public:
  // `between`: elements between the element and the sink, with " ! " before each.
  explicit LivePipeline(const std::string& properties, const std::string& between = "")
      : Pipeline("qttssrc name=src is-live=true " + properties + between +
                 " ! fakesink name=sink sync=false async=false") {
    clock_ = gst_test_clock_new_with_start_time(GST_SECOND);
    gst_pipeline_use_clock(GST_PIPELINE(get()), clock_);
    Record();
  }
  ~LivePipeline() {
    Set(GST_STATE_NULL);
    gst_object_unref(clock_);
  }
  LivePipeline(const LivePipeline&) = delete;
  LivePipeline& operator=(const LivePipeline&) = delete;

  GstTestClock* clock() const { return GST_TEST_CLOCK(clock_); }
  GstClockTime now() const { return gst_clock_get_time(clock_) - gst_element_get_base_time(get()); }
  void Advance(GstClockTime by) {
    gst_test_clock_advance_time(clock(), static_cast<GstClockTimeDiff>(by));
    ReleaseDue();
  }
  // Wakes every wait whose time has come.
  void ReleaseDue() const {
    GstClockID id = nullptr;
    while (gst_test_clock_peek_next_pending_id(clock(), &id)) {
      const bool due = gst_clock_id_get_time(id) <= gst_clock_get_time(clock_);
      gst_clock_id_unref(id);
      if (!due) return;
      GstClockID next = gst_test_clock_process_next_clock_id(clock());
      if (next == nullptr) return;
      gst_clock_id_unref(next);
    }
  }
  // Advances in steps until so many buffers have come.
  bool AdvanceUntil(size_t buffers, GstClockTime step = 10 * GST_MSECOND) {
    return WaitFor([&] {
      if (record().buffer_count() >= buffers) return true;
      if (gst_test_clock_peek_id_count(clock()) > 0) Advance(step);
      return false;
    });
  }
  // Advances a little, unless the element waits for the engine's next frame: then the load of the machine would decide
  // whether that frame is late.
  void AdvanceWithTheEngine() {
    GstClockID id = nullptr;
    if (!gst_test_clock_peek_next_pending_id(clock(), &id)) return;
    const GstClockTime awaited = gst_clock_id_get_time(id) - gst_element_get_base_time(get());
    gst_clock_id_unref(id);
    const auto buffers = record().buffers();
    if (!buffers.empty() && awaited == buffers.back().pts + buffers.back().duration + kLateTolerance) return;
    Advance(5 * GST_MSECOND);
  }
  bool WaitUntilSomebodyWaits() const {
    return WaitFor([this] { return gst_test_clock_peek_id_count(clock()) > 0; });
  }

 private:
  GstClock* clock_;
};

inline std::vector<Recorder::Item> Speech(const std::vector<Recorder::Item>& buffers) {
  std::vector<Recorder::Item> speech;
  for (const auto& buffer : buffers) {
    if (!buffer.silent) speech.push_back(buffer);
  }
  return speech;
}

inline std::string SpokenText(const std::vector<Recorder::Item>& buffers) {
  std::string text;
  for (const auto& buffer : Speech(buffers)) text += static_cast<char>(buffer.label.character);
  return text;
}

// Each ends where the next begins.
inline void ExpectContinuous(const std::vector<Recorder::Item>& buffers) {
  for (size_t i = 1; i < buffers.size(); ++i) {
    ASSERT_EQ(buffers[i].pts, buffers[i - 1].pts + buffers[i - 1].duration) << i;
    ASSERT_EQ(buffers[i].offset, buffers[i - 1].offset_end) << i;
    ASSERT_FALSE(buffers[i].discont) << i;
  }
}

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_LIVE_PIPELINE_H_
