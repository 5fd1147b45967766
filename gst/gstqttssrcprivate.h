// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SRC_PRIVATE_H_
#define GST_QTTS_SRC_PRIVATE_H_

#include <gst/audio/audio.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttsclock.h"
#include "gstqttssettings.h"
#include "gstqttsspeech.h"
#include "gstqttssrc.h"
#include "gstqttstimeline.h"
#include "gstqttstrim.h"
#include "qtts/engine_options.h"
#include "qtts/model_info.h"

// What the parts of the element share: gstqttssrc.cpp, the class, its states and events; gstqttsproperties.cpp, what
// can be set and asked; gstqttsinput.cpp, the sink pad; gstqttsoutput.cpp, the streaming thread.
//
// Locks: GstQttsSrcPrivate::lock before the one inside Speech. Neither is held while posting, pushing or notifying.

GST_DEBUG_CATEGORY_EXTERN(gst_qtts_src_debug);

#define SAMPLE_RATE 24000

// Custom event, by which anybody calls gst_qtts_src_interrupt().
inline constexpr gchar kInterruptEvent[] = "qtts/interrupt";

struct GstQttsSrcPrivate {
  GstQttsSrcPrivate(GstElement* element, gstqtts::Reports::Reporter reporter)
      : speech(std::move(reporter),
               [element] { return std::shared_ptr<void>(gst_object_ref(element), gst_object_unref); }),
        clock(element),
        wake(speech.player().waker()) {}

  gstqtts::Speech speech;
  gstqtts::LiveClock clock;
  const std::function<void()> wake;

  std::mutex lock;
  // Guarded by the lock.
  gstqtts::Properties properties;
  // Of a qtts/set-voice event, over the settings for what comes after it by the sink pad; may be null. It lasts until
  // the next such event, a stream-start, a flush, the release of the pad or READY.
  GstStructure* voice = nullptr;
  guint64 trimmed_samples = 0;                   // in this run
  guint64 underruns = 0;                         // in this run
  bool running = false;                          // between start and stop: a new text is queued
  std::optional<qtts::EngineOptions> inspected;  // what `model` was found with; none in NULL
  std::optional<qtts::ModelInfo> model;          // known from READY on
  std::string device_name;
  bool on_cpu = false;  // where the model of this run was loaded
  GstPad* sinkpad = nullptr;
  GstEvent* end_of_stream = nullptr;  // of the application, for when the utterance is over

  // Used by the streaming thread, or while that is at rest.
  gstqtts::Timeline timeline{SAMPLE_RATE};
  gstqtts::LeadingSilenceTrimmer trimmer{SAMPLE_RATE};
  std::optional<gstqtts::Player::Output> frame;  // of speech, whose time has not come
  bool placed = false;                           // whether that frame has its place on the timeline
  guint64 silence_due = 0;                       // samples of silence before that frame
  bool in_utterance = false;                     // the last buffer was speech, and its utterance goes on
  gstqtts::Cue cue;                              // of the utterance
  GstClockTime shift = 0;                        // by which cues are late, for TextTiming::kShift
  std::string language;                          // tag of the utterance's; empty: unknown
  std::optional<std::string> tagged_language;    // of the last tags sent
  GstAudioFormat format = GST_AUDIO_FORMAT_UNKNOWN;
  std::vector<std::string> warnings;       // of the last utterance
  GstBuffer* handed_out = nullptr;         // by create(), and not seen on the src pad yet
  GstFlowReturn ended_with = GST_FLOW_OK;  // what create() ended the stream with

  // The thread that takes the element from PLAYING to PAUSED: see gst_qtts_src_unlock().
  std::atomic<GThread*> pausing_thread = nullptr;
  // Events that are being handed to the base class, which calls unlock() for them while the src pad is not flushing.
  std::atomic<int> unlocking_events = 0;

  // Set by the thread of the sink pad.
  std::atomic<bool> upstream_live = false;

  // Used by the thread of the sink pad.
  GstSegment text_segment = {};
  bool timing_refused = false;  // a warning about that was posted
  bool repair_reported = false;

  std::atomic<bool> error_posted = false;  // since the element was started
};

struct _GstQttsSrc {
  GstPushSrc parent;

  GstQttsSrcPrivate* priv;
};

// Applies fields of speak or of qtts/set-voice to `settings`, and judges the outcome as far as that can be done at
// once. kInvalidArgument says what is wrong. Thread-safe.
qtts::Status gst_qtts_src_override_settings(GstQttsSrc* self, const GstStructure* overrides,
                                            gstqtts::Settings* settings);

// Ends what a qtts/set-voice event has begun: the properties hold again for text of the sink pad. Thread-safe.
void gst_qtts_src_reset_voice(GstQttsSrc* self);

// The signal's handler. Thread-safe.
guint64 gst_qtts_src_interrupt(GstQttsSrc* self);

// Hands an end-of-stream to the base class, which sends it before the next buffer.
gboolean gst_qtts_src_end_now(GstQttsSrc* self, GstEvent* event);

#endif  // GST_QTTS_SRC_PRIVATE_H_
