// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsoutput.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttserror.h"
#include "gstqttspcm.h"
#include "gstqttsproperties.h"
#include "qtts/resources.h"

using gstqtts::IdleMode;
using gstqtts::Player;
using gstqtts::Speech;
using gstqtts::TextTiming;

#define GST_CAT_DEFAULT gst_qtts_src_debug

// Silence that fills pauses comes in pieces of this length: speech that is ready waits no longer for its turn,
// and it is what telephony and WebRTC send in a packet.
static constexpr guint64 kSilencePiece = SAMPLE_RATE / 50;
// A live buffer that is later than "latency" by no more than this keeps its time: less than the processing
// deadline (20 ms) by which sinks wait for late buffers anyway.
static constexpr GstClockTime kLateTolerance = 10 * GST_MSECOND;
// Later silence than that was kept waiting by downstream.
static constexpr GstClockTime kSilenceTolerance = 200 * GST_MSECOND;

// Speech that its cue cuts fades out over this many samples, lest it clicks.
static constexpr size_t kFade = SAMPLE_RATE / 200;

static void gst_qtts_src_forget_frame(GstQttsSrc* self) {
  self->priv->frame.reset();
  self->priv->placed = false;
  self->priv->silence_due = 0;
  self->priv->in_utterance = false;
}

void gst_qtts_src_drop_frame(GstQttsSrc* self) {
  gst_qtts_src_forget_frame(self);
  gst_clear_buffer(&self->priv->handed_out);
  self->priv->ended_with = GST_FLOW_OK;
}

void gst_qtts_src_restart(GstQttsSrc* self) {
  gst_qtts_src_drop_frame(self);
  self->priv->timeline.Restart();
  self->priv->shift = 0;
}

// `pcm` null: silence.
static GstBuffer* gst_qtts_src_new_buffer(GstQttsSrc* self, const float* pcm, gsize samples) {
  GstQttsSrcPrivate* priv = self->priv;
  const bool is_float = priv->format == GST_AUDIO_FORMAT_F32;

  GstAllocator* allocator = nullptr;
  GstAllocationParams params;
  gst_base_src_get_allocator(GST_BASE_SRC(self), &allocator, &params);
  GstBuffer* buffer =
      gst_buffer_new_allocate(allocator, samples * (is_float ? sizeof(float) : sizeof(gint16)), &params);
  if (allocator != nullptr) gst_object_unref(allocator);
  GstMapInfo map;
  if (buffer == nullptr || !gst_buffer_map(buffer, &map, GST_MAP_WRITE)) {
    gst_clear_buffer(&buffer);
    return nullptr;
  }
  if (pcm == nullptr) {
    std::memset(map.data, 0, map.size);
  } else if (is_float) {
    std::memcpy(map.data, pcm, map.size);
  } else {
    gstqtts::ConvertToS16(pcm, samples, reinterpret_cast<gint16*>(map.data));
  }
  gst_buffer_unmap(buffer, &map);
  return buffer;
}

static void gst_qtts_src_stamp(GstBuffer* buffer, const gstqtts::Stamp& stamp) {
  GST_BUFFER_PTS(buffer) = stamp.pts;
  GST_BUFFER_DURATION(buffer) = stamp.duration;
  GST_BUFFER_OFFSET(buffer) = stamp.offset;
  GST_BUFFER_OFFSET_END(buffer) = stamp.offset_end;
  if (stamp.discont) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  if (stamp.resync) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_RESYNC);
  if (stamp.silence) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_GAP);
}

// Of the next buffer.
static guint64 gst_qtts_src_next_running_time(GstQttsSrc* self) {
  return gst_segment_to_running_time(&GST_BASE_SRC(self)->segment, GST_FORMAT_TIME, self->priv->timeline.time());
}

static GstFlowReturn gst_qtts_src_fail(GstQttsSrc* self, const qtts::Status& status, const char* what) {
  self->priv->speech.Fail();
  gstqtts::PostError(GST_ELEMENT(self), status, what);
  return GST_FLOW_ERROR;
}

// Whether what befell this utterance is in store for every other: the device is gone, or its settings are those of the
// properties, which the next one will have too.
static bool gst_qtts_src_meets_every_text(GstQttsSrc* self, const Player::Output& output) {
  if (output.device_lost || output.status.code() == qtts::StatusCode::kDeviceUnavailable) return true;
  if (!gstqtts::IsAboutSettings(output.status)) return false;
  const std::lock_guard lock(self->priv->lock);
  return output.settings == self->priv->properties.utterance;
}

// An utterance could not be spoken, or not to its end: an error where that meets every text, or where there was no
// other text, so that whoever waits for the end of the stream learns that nothing was spoken; else a warning.
static GstFlowReturn gst_qtts_src_fail_utterance(GstQttsSrc* self, const Player::Output& output, const char* what) {
  if (output.nothing_spoken || gst_qtts_src_meets_every_text(self, output)) {
    return gst_qtts_src_fail(self, output.status, what);
  }
  gstqtts::PostWarning(GST_ELEMENT(self), output.status, what);
  return GST_FLOW_OK;
}

// The end of the text.
static GstFlowReturn gst_qtts_src_finish(GstQttsSrc* self, const Player::Output& output) {
  if (output.status.ok()) {
    GST_DEBUG_OBJECT(self, "everything is spoken");
    const Speech::Stats stats = self->priv->speech.stats();
    if (stats.unsayable > 0 && stats.unsayable == stats.utterances + stats.interrupted) {
      GST_ELEMENT_WARNING(self, STREAM, FAILED,
                          ("Nothing was spoken: there is nothing to say in the text, no letter, number or currency "
                           "sign. speak-anything=true gives it to the model all the same."),
                          (nullptr));
    }
    return GST_FLOW_EOS;
  }
  return gst_qtts_src_fail(
      self, {output.status.code(), "None of the texts could be spoken. The last one: " + output.status.message()},
      "every utterance failed");
}

static void gst_qtts_src_warn_of_settings(GstQttsSrc* self, const std::string& warning) {
  gst_element_message_full(GST_ELEMENT(self), GST_MESSAGE_WARNING, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS,
                           g_strdup(warning.c_str()), nullptr, __FILE__, GST_FUNCTION, __LINE__);
}

static void gst_qtts_src_utterance_started(GstQttsSrc* self, const Player::Output& output) {
  GstQttsSrcPrivate* priv = self->priv;

  GST_DEBUG_OBJECT(self, "the engine took an utterance, seed %" G_GUINT64_FORMAT, output.seed);
  if (!output.language_warning.empty()) gst_qtts_src_warn_of_settings(self, output.language_warning);
  // Once for a row of utterances with the same settings.
  if (output.warnings == priv->warnings) return;
  priv->warnings = output.warnings;
  for (const std::string& warning : output.warnings) gst_qtts_src_warn_of_settings(self, warning);
}

static GstFlowReturn gst_qtts_src_utterance_ended(GstQttsSrc* self, const Player::Output& output) {
  if (!output.language_warning.empty()) gst_qtts_src_warn_of_settings(self, output.language_warning);
  if (output.end_reason == qtts::EndReason::kError) {
    return gst_qtts_src_fail_utterance(self, output, "speaking failed");
  }
  if (output.end_reason == qtts::EndReason::kBusy) {
    return gst_qtts_src_fail_utterance(self, output, "an utterance waited in vain");
  }
  if (output.end_reason == qtts::EndReason::kMaxDuration) {
    GST_ELEMENT_WARNING(
        self, RESOURCE, SETTINGS,
        ("The speech was cut at the longest duration allowed. Raise max-duration, or say less at once."), (nullptr));
  }
  if (output.end_reason == qtts::EndReason::kRunaway) {
    GST_ELEMENT_WARNING(self, STREAM, FAILED,
                        ("The model missed the end of its text, and was stopped. Another seed will most likely do; "
                         "runaway-guard=false lets it go on."),
                        (nullptr));
  }
  return GST_FLOW_OK;
}

static GstFlowReturn gst_qtts_src_no_buffer(GstQttsSrc* self) {
  return gst_qtts_src_fail(self, qtts::Status::ResourceExhausted("Cannot allocate a buffer for a frame of sound."),
                           "no buffer");
}

// Cuts leading silence off a frame of speech where that is asked for. False if nothing is left of it.
static bool gst_qtts_src_trim(GstQttsSrc* self, std::vector<float>* pcm) {
  const size_t cut = self->priv->trimmer.Trim(pcm);
  if (cut > 0) {
    const std::lock_guard lock(self->priv->lock);
    self->priv->trimmed_samples += cut;
  }
  return !pcm->empty();
}

// What helps where speech is made too slowly, for the user.
static std::string gst_qtts_src_speed_advice(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  const std::lock_guard lock(priv->lock);
  if (!priv->on_cpu) return "Use a smaller model";
  const qtts::Precision faster = qtts::FasterOnCpu(priv->properties.engine.precision);
  if (faster == priv->properties.engine.precision) return "Run the model on a GPU, use a smaller one";
  return "Set precision=" + std::string(qtts::PrecisionName(faster)) + ", run the model on a GPU, use a smaller one";
}

// Tells about speech that came too late for its place in a live stream, by `jitter`.
static void gst_qtts_src_report_underrun(GstQttsSrc* self, GstClockTimeDiff jitter) {
  GstQttsSrcPrivate* priv = self->priv;

  guint64 underruns = 0;
  {
    const std::lock_guard lock(priv->lock);
    underruns = ++priv->underruns;
  }
  const GstClockTime time = priv->timeline.time();
  GstMessage* message = gst_message_new_qos(GST_OBJECT(self), TRUE, gst_qtts_src_next_running_time(self), time, time,
                                            GST_CLOCK_TIME_NONE);
  gst_message_set_qos_values(message, jitter, 1.0, 0);
  gst_element_post_message(GST_ELEMENT(self), message);
  if (underruns == 1) {
    GST_ELEMENT_WARNING(
        self, RESOURCE, BUSY,
        ("Speech is made more slowly than it is heard: there are gaps in it. %s, speak fewer streams at once, or raise "
         "\"latency\".",
         gst_qtts_src_speed_advice(self).c_str()),
        ("%" GST_TIME_FORMAT " too late", GST_TIME_ARGS(jitter)));
  } else {
    GST_INFO_OBJECT(self, "underrun %" G_GUINT64_FORMAT ", %" GST_TIME_FORMAT " too late", underruns,
                    GST_TIME_ARGS(jitter));
  }
}

// Finds the place of the next frame of speech, which is there: moves the timeline of a live stream on if the frame
// is too late for where that is, and notes the silence that has to come before the frame. Where nothing flows before a
// cue, it waits for that, unless the frame is interrupted. False if the wait was.
static bool gst_qtts_src_place_frame(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  GstClockTime latency = 0;
  GstClockTime leading = 0;
  GstClockTime gap = 0;
  TextTiming timing = TextTiming::kIgnore;
  {
    const std::lock_guard lock(priv->lock);
    latency = priv->properties.pacing.latency;
    leading = priv->properties.pacing.leading_silence;
    gap = priv->properties.pacing.utterance_gap;
    timing = priv->properties.pacing.text_timing;
  }
  const bool live = gst_base_src_is_live(GST_BASE_SRC(self));
  GstClockTime lag = 0;
  if (live || priv->upstream_live) {
    std::optional<GstClockTime> running_time;
    if (!priv->clock.WaitForNow(&running_time)) return false;
    const GstClockTime now = running_time.value_or(0);
    const GstClockTime time = priv->timeline.time();
    // Silence that flows up to here leaves no pause to move in, but for one that nobody filled in time.
    GstClockTime tolerance = 0;
    if (priv->in_utterance) {
      tolerance = kLateTolerance;
    } else if (live && gst_qtts_src_get_idle_mode(self) == IdleMode::kSilence) {
      tolerance = kSilenceTolerance;
    }
    const bool late = now > time + latency + tolerance;
    if (live && late && priv->in_utterance && !priv->frame->awaited_text && priv->speech.player().WaitsForEngine())
      gst_qtts_src_report_underrun(self, GST_CLOCK_DIFF(time, now));
    if (late || priv->timeline.broken()) {
      priv->timeline.MoveTo(now);
    } else if (now > time + latency + kLateTolerance / 2) {
      lag = now - time - latency;
    }
  }
  priv->silence_due = 0;
  if (priv->in_utterance) {
    priv->placed = true;
    return true;
  }
  // The silence before it goes on for as long as the speech is late, so that all of the speech is on time.
  priv->silence_due = gstqtts::SamplesWithin(lag, SAMPLE_RATE);
  if (timing != TextTiming::kIgnore && priv->cue.start) {
    const GstClockTime start = *priv->cue.start + (timing == TextTiming::kShift ? priv->shift : 0);
    const GstClockTime time = priv->timeline.time();
    if (time > start) {
      if (timing == TextTiming::kShift) priv->shift += time - start;
    } else if (live && gst_qtts_src_get_idle_mode(self) != IdleMode::kSilence) {
      // The timeline stays where it is until then: what is spoken after an interrupt does not wait for this cue.
      const auto wanted = [priv] { return priv->speech.player().WouldCommit(); };
      if (!priv->clock.WaitUntil(start, wanted)) return false;
      if (!wanted()) return true;
      priv->timeline.MoveTo(start);
    } else {
      priv->silence_due = std::max(priv->silence_due, gstqtts::SamplesWithin(start - time, SAMPLE_RATE));
    }
  }
  priv->silence_due = std::max(priv->silence_due, priv->timeline.MissingSilence(leading, gap));
  priv->placed = true;
  return true;
}

// Cuts a frame of speech that is placed where its cue ends, if it has to be minded. False if nothing is left of it.
static bool gst_qtts_src_clip(GstQttsSrc* self, std::vector<float>* pcm) {
  GstQttsSrcPrivate* priv = self->priv;

  {
    const std::lock_guard lock(priv->lock);
    if (priv->properties.pacing.text_timing != TextTiming::kClip || !priv->cue.end) return true;
  }
  const GstClockTime time = priv->timeline.time() + gstqtts::SampleTime(priv->silence_due, SAMPLE_RATE);
  const guint64 left = *priv->cue.end > time ? gstqtts::SamplesWithin(*priv->cue.end - time, SAMPLE_RATE) : 0;
  if (left >= pcm->size()) return true;
  pcm->resize(left);
  const size_t fade = std::min(kFade, pcm->size());
  for (size_t i = 0; i < fade; ++i) (*pcm)[pcm->size() - 1 - i] *= static_cast<float>(i) / static_cast<float>(fade);
  return !pcm->empty();
}

// Waits for the next frame of speech and keeps it in `frame`. Without one when it is time for silence.
static GstFlowReturn gst_qtts_src_next_frame(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  Player::Output output;
  GstFlowReturn flow = GST_FLOW_OK;
  while (flow == GST_FLOW_OK) {
    switch (priv->speech.player().Next(&output)) {
      case Player::Event::kStarted: {
        gst_qtts_src_utterance_started(self, output);
        priv->in_utterance = false;
        priv->cue = output.cue;
        priv->language = output.language;
        const std::lock_guard lock(priv->lock);
        if (priv->properties.pacing.trim_leading_silence) priv->trimmer.Restart();
        break;
      }
      case Player::Event::kFrame:
        if (!gst_qtts_src_trim(self, &output.frame.pcm)) break;
        priv->frame = std::move(output);
        return GST_FLOW_OK;
      case Player::Event::kGap:
        if (output.cue.start.value_or(0) > priv->timeline.time()) {
          priv->silence_due = gstqtts::SamplesWithin(*output.cue.start - priv->timeline.time(), SAMPLE_RATE);
          return GST_FLOW_OK;
        }
        break;
      case Player::Event::kEvent:
        // From this thread, so that it is in order with the buffers.
        gst_pad_push_event(GST_BASE_SRC_PAD(self), gst_event_ref(static_cast<GstEvent*>(output.event.get())));
        break;
      case Player::Event::kEnded:
        priv->in_utterance = false;
        flow = gst_qtts_src_utterance_ended(self, output);
        break;
      case Player::Event::kRefused:
        flow = gst_qtts_src_fail_utterance(self, output, "the engine refused an utterance");
        break;
      case Player::Event::kLoadFailed:
        return GST_FLOW_ERROR;  // the loader's thread has posted it
      case Player::Event::kEndOfText:
        return gst_qtts_src_finish(self, output);
      case Player::Event::kIdle:
      case Player::Event::kWoken:
        return GST_FLOW_OK;
      case Player::Event::kHalted:
        return GST_FLOW_FLUSHING;
    }
  }
  return flow;
}

// Tags go out before the first speech and where the language changes.
static void gst_qtts_src_update_tags(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  if (priv->tagged_language == priv->language) return;
  priv->tagged_language = priv->language;
  GstTagList* tags = gst_tag_list_new(GST_TAG_COMMENT, "Synthetic speech", nullptr);
  gst_tag_list_set_scope(tags, GST_TAG_SCOPE_STREAM);
  if (!priv->language.empty()) {
    gst_tag_list_add(tags, GST_TAG_MERGE_REPLACE, GST_TAG_LANGUAGE_CODE, priv->language.c_str(), nullptr);
  }
  GST_ELEMENT_GET_CLASS(self)->send_event(GST_ELEMENT(self), gst_event_new_tag(tags));
}

// Until the time of the next buffer, when live. False if the wait was interrupted.
static bool gst_qtts_src_wait(GstQttsSrc* self) {
  if (!gst_base_src_is_live(GST_BASE_SRC(self))) return true;
  return self->priv->clock.WaitUntil(gst_qtts_src_next_running_time(self));
}

// Silence that was not taken in time is not handed out late: a live stream moves on. False if it was interrupted.
static bool gst_qtts_src_catch_up(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  if (!gst_base_src_is_live(GST_BASE_SRC(self))) return true;
  std::optional<GstClockTime> now;
  if (!priv->clock.WaitForNow(&now)) return false;
  GstClockTime latency = 0;
  {
    const std::lock_guard lock(priv->lock);
    latency = priv->properties.pacing.latency;
  }
  if (now && *now > priv->timeline.time() + latency + kSilenceTolerance) priv->timeline.MoveTo(*now);
  return true;
}

static GstFlowReturn gst_qtts_src_create_silence(GstQttsSrc* self, guint64 samples, GstBuffer** buffer) {
  GstQttsSrcPrivate* priv = self->priv;

  if (!gst_qtts_src_wait(self)) return GST_FLOW_FLUSHING;
  if (!gst_qtts_src_catch_up(self)) return GST_FLOW_FLUSHING;
  *buffer = gst_qtts_src_new_buffer(self, nullptr, samples);
  if (*buffer == nullptr) return gst_qtts_src_no_buffer(self);
  gst_qtts_src_stamp(*buffer, priv->timeline.Silence(samples));
  GST_LOG_OBJECT(self, "silence: %" GST_PTR_FORMAT, static_cast<void*>(*buffer));
  return GST_FLOW_OK;
}

// For how long silence waits for a frame of speech that goes on.
static GstClockTime gst_qtts_src_get_grace(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  if (!priv->in_utterance) return 0;
  const std::lock_guard lock(priv->lock);
  return priv->properties.pacing.latency + kLateTolerance;
}

// Until the stop of the segment, which a seek may set.
static guint64 gst_qtts_src_samples_left(GstQttsSrc* self) {
  const guint64 stop = GST_BASE_SRC(self)->segment.stop;
  const GstClockTime time = self->priv->timeline.time();
  if (!GST_CLOCK_TIME_IS_VALID(stop)) return G_MAXUINT64;
  return stop > time ? gstqtts::SamplesWithin(stop - time, SAMPLE_RATE) : 0;
}

// The next buffer, when its time has come.
static GstFlowReturn gst_qtts_src_make_buffer(GstQttsSrc* self, GstBuffer** buffer) {
  GstQttsSrcPrivate* priv = self->priv;
  const bool live = gst_base_src_is_live(GST_BASE_SRC(self));

  for (;;) {
    if (!priv->frame && priv->silence_due == 0) {
      priv->speech.player().ClearWake();  // before the mode is read: its changes wake
      const bool fill = gst_qtts_src_get_idle_mode(self) == IdleMode::kSilence;
      if (fill && live) {
        std::optional<GstClockTime> now;
        if (!priv->clock.WaitForNow(&now)) return GST_FLOW_FLUSHING;
        if (priv->timeline.broken()) priv->timeline.MoveTo(now.value_or(0));
        priv->clock.SetAlarm(gst_qtts_src_next_running_time(self) + gst_qtts_src_get_grace(self), priv->wake);
      }
      const GstFlowReturn flow = gst_qtts_src_next_frame(self);
      priv->clock.CancelAlarm();
      if (flow != GST_FLOW_OK) return flow;
      if (!priv->frame && priv->silence_due == 0) {
        if (!fill) continue;  // woken by a change of the mode
        if (std::exchange(priv->in_utterance, false) && priv->speech.player().WaitsForEngine())
          gst_qtts_src_report_underrun(self, 0);
        return gst_qtts_src_create_silence(self, kSilencePiece, buffer);
      }
    }

    if (priv->frame && !priv->placed) {
      if (!gst_qtts_src_place_frame(self)) return GST_FLOW_FLUSHING;
      if (!priv->speech.player().WouldCommit()) {
        gst_qtts_src_drop_frame(self);
        continue;
      }
      if (!gst_qtts_src_clip(self, &priv->frame->frame.pcm)) {
        priv->speech.player().Clip();
        gst_qtts_src_forget_frame(self);
        continue;
      }
    }

    if (!priv->frame && priv->speech.ending()) {  // a gap in the text is no speech
      priv->silence_due = 0;
      continue;
    }
    const guint64 left = gst_qtts_src_samples_left(self);
    if (left == 0) return GST_FLOW_EOS;
    // An interrupted wait leaves the frame where it is: not a frame is lost when a live stream is paused.
    if (priv->silence_due > 0 && (!priv->frame || priv->speech.player().WouldCommit())) {
      const guint64 samples = std::min({priv->silence_due, left, live ? kSilencePiece : guint64{SAMPLE_RATE}});
      const GstFlowReturn flow = gst_qtts_src_create_silence(self, samples, buffer);
      if (flow == GST_FLOW_OK) priv->silence_due -= samples;
      return flow;
    }
    if (!gst_qtts_src_wait(self)) return GST_FLOW_FLUSHING;
    Player::Output frame = std::move(*priv->frame);
    gst_qtts_src_forget_frame(self);
    if (frame.frame.pcm.size() > left) frame.frame.pcm.resize(left);
    if (!priv->speech.player().Commit(frame, gst_qtts_src_next_running_time(self))) continue;  // it was interrupted
    const std::vector<float>& pcm = frame.frame.pcm;
    *buffer = gst_qtts_src_new_buffer(self, pcm.data(), pcm.size());
    if (*buffer == nullptr) return gst_qtts_src_no_buffer(self);
    gst_qtts_src_update_tags(self);
    gst_qtts_src_stamp(*buffer, priv->timeline.Speech(pcm.size()));
    GST_LOG_OBJECT(self, "speech: %" GST_PTR_FORMAT, static_cast<void*>(*buffer));
    priv->in_utterance = true;
    return GST_FLOW_OK;
  }
}

// Whether somebody wants create() to return whom a call of unlock_stop() that comes from a pause may have overridden: a
// flush, a stop or an end-of-stream. Each has announced itself here before it calls unlock().
static bool gst_qtts_src_is_unlocked(GstQttsSrc* self) {
  GstPad* pad = GST_BASE_SRC_PAD(self);
  GST_OBJECT_LOCK(pad);
  const bool flushing = GST_PAD_IS_FLUSHING(pad);
  GST_OBJECT_UNLOCK(pad);
  return flushing || self->priv->unlocking_events > 0;
}

// Lets the base class send the application's own end-of-stream, if there is one.
static void gst_qtts_src_take_end_of_stream(GstQttsSrc* self) {
  GstEvent* event = nullptr;
  {
    const std::lock_guard lock(self->priv->lock);
    std::swap(self->priv->end_of_stream, event);
  }
  if (event != nullptr) gst_qtts_src_end_now(self, event);
}

// Since 1.24 GstBaseSrc drops the outcome of create() when a live source was paused meanwhile, and calls it again in
// PLAYING. No sound may be lost for it, nor the end of the stream.
GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;

  if (gst_qtts_src_is_unlocked(self)) return GST_FLOW_FLUSHING;
  if (priv->ended_with != GST_FLOW_OK) return priv->ended_with;
  if (priv->handed_out != nullptr) {
    *buffer = gst_buffer_ref(priv->handed_out);
    return GST_FLOW_OK;
  }
  GstFlowReturn flow = GST_FLOW_ERROR;
  const qtts::Status status = qtts::CatchExhaustion("go on speaking", [&] {
    flow = gst_qtts_src_make_buffer(self, buffer);
    return qtts::Status::Ok();
  });
  if (!status.ok()) flow = gst_qtts_src_fail(self, status, "memory or threads ran out");
  if (flow == GST_FLOW_EOS) gst_qtts_src_take_end_of_stream(self);
  if (flow == GST_FLOW_OK) {
    gst_buffer_replace(&priv->handed_out, *buffer);
  } else if (flow != GST_FLOW_FLUSHING) {
    priv->ended_with = flow;
  }
  return flow;
}
