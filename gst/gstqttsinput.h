// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_INPUT_H_
#define GST_QTTS_INPUT_H_

#include <gst/gst.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string_view>

#include "gstqttsproperties.h"
#include "gstqttsspeech.h"
#include "qtts/mutex.h"

namespace gstqtts {

// Custom event that interrupts the speech.
inline constexpr gchar kInterruptEvent[] = "qtts/interrupt";

// The sink pad: what comes by it is handed to the Intake. It is there on request, once.
//
// Owned by the element. The public functions are thread-safe; the thread of the pad calls the rest.
class Input {
 public:
  // `interrupt` does what the signal of that name does.
  Input(GstElement* element, Speech& speech, ElementProperties& properties, std::function<void()> interrupt)
      : element_(element), speech_(speech), properties_(properties), interrupt_(std::move(interrupt)) {}
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Implements GstElementClass::request_new_pad and ::release_pad.
  GstPad* RequestPad(GstPadTemplate* templ);
  void ReleasePad(GstPad* pad);
  // Returns a reference to the pad, of the caller; null if there is none.
  GstPad* RefPad() const;

  // Returns the minimum latency of upstream if it is live.
  std::optional<GstClockTime> AskLiveLatency() const;

  // Begins a run, whose first segment tells whether upstream is live.
  void Restart() { upstream_live_ = false; }
  // Returns true if text arrives in real time, so that speech after a pause takes the current time.
  bool upstream_live() const { return upstream_live_; }

 private:
  static Input* Of(GstPad* pad) { return static_cast<Input*>(gst_pad_get_element_private(pad)); }
  static GstFlowReturn OnBuffer(GstPad* pad, GstObject* parent, GstBuffer* buffer);
  static gboolean OnEvent(GstPad* pad, GstObject* parent, GstEvent* event);
  static gboolean OnQuery(GstPad* pad, GstObject* parent, GstQuery* query);

  GstFlowReturn Chain(GstBuffer* buffer);
  gboolean TakeEvent(GstPad* pad, GstEvent* event);
  gboolean TakeCustomEvent(GstEvent* event);
  void TakeSpeaker(const GstStructure* change);
  gboolean TakeVoice(const GstStructure* overrides);
  void TakeGap(GstEvent* event);
  void TakeCaps(GstEvent* event);
  void EndUtterance();
  Settings TextSettings() const;
  bool ClipText(GstBuffer* buffer, GstClockTime* start, GstClockTime* stop) const;
  Cue CueOf(GstClockTime start, GstClockTime stop);

  GstElement* const element_;
  Speech& speech_;
  ElementProperties& properties_;
  const std::function<void()> interrupt_;

  std::atomic<bool> upstream_live_ = false;  // set by the thread of the pad

  mutable qtts::Mutex mutex_;
  GstPad* pad_ QTTS_GUARDED_BY(mutex_) = nullptr;

  // Used by the pad's thread only.
  GstSegment segment_ = {};
  bool ssml_ = false;            // the caps say so
  bool timing_refused_ = false;  // a warning about that was posted
  bool repair_reported_ = false;
};

}  // namespace gstqtts

#endif  // GST_QTTS_INPUT_H_
