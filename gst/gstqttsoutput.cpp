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

using gstqtts::Speech;

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

void gst_qtts_src_drop_frame(GstQttsSrc* self) {
  self->priv->frame.reset();
  self->priv->placed = false;
  self->priv->silence_due = 0;
  self->priv->in_utterance = false;
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

// One ERROR, and the end of the stream. Not GST_FLOW_ERROR, to which the base class would add a second
// error that says nothing ("Internal data stream error"); downstream it sends the same end-of-stream.
static GstFlowReturn gst_qtts_src_fail(GstQttsSrc* self, const qtts::Status& status, const char* what) {
  self->priv->speech.Fail();
  gstqtts::PostError(GST_ELEMENT(self), status, what);
  return GST_FLOW_EOS;
}

// An utterance could not be spoken. From the sink pad others may follow, which are not lost for it.
static GstFlowReturn gst_qtts_src_fail_utterance(GstQttsSrc* self, const Speech::Output& output, const char* what) {
  if (!output.from_pad || gstqtts::ConcernsAllUtterances(output.status)) {
    return gst_qtts_src_fail(self, output.status, what);
  }
  gstqtts::PostWarning(GST_ELEMENT(self), output.status, what);
  return GST_FLOW_OK;
}

static void gst_qtts_src_utterance_started(GstQttsSrc* self, const Speech::Output& output) {
  GstQttsSrcPrivate* priv = self->priv;

  GST_DEBUG_OBJECT(self, "the engine took an utterance, seed %" G_GUINT64_FORMAT, output.seed);
  // Once for a row of utterances with the same settings.
  if (output.warnings == priv->warnings) return;
  priv->warnings = output.warnings;
  for (const std::string& warning : output.warnings) {
    gst_element_message_full(GST_ELEMENT(self), GST_MESSAGE_WARNING, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS,
                             g_strdup(warning.c_str()), nullptr, __FILE__, GST_FUNCTION, __LINE__);
  }
}

static GstFlowReturn gst_qtts_src_utterance_ended(GstQttsSrc* self, const Speech::Output& output) {
  if (output.end_reason == qtts::EndReason::kError) {
    return gst_qtts_src_fail_utterance(self, output, "speaking failed");
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
        ("Speech is made more slowly than it is heard: there are gaps in it. Run the model on a GPU, use "
         "a smaller one, speak fewer streams at once, or raise \"latency\"."),
        ("%" GST_TIME_FORMAT " too late", GST_TIME_ARGS(jitter)));
  } else {
    GST_INFO_OBJECT(self, "underrun %" G_GUINT64_FORMAT ", %" GST_TIME_FORMAT " too late", underruns,
                    GST_TIME_ARGS(jitter));
  }
}

// Finds the place of the next frame of speech, which is there: moves the timeline of a live stream on if the frame
// is too late for where that is, and notes the silence that has to come before the frame. False if it was
// interrupted.
static bool gst_qtts_src_place_frame(GstQttsSrc* self) {
  GstQttsSrcPrivate* priv = self->priv;

  GstClockTime latency = 0;
  GstClockTime leading = 0;
  GstClockTime gap = 0;
  TextTiming timing = TextTiming::kIgnore;
  {
    const std::lock_guard lock(priv->lock);
    latency = priv->latency;
    leading = priv->leading_silence;
    gap = priv->utterance_gap;
    timing = priv->text_timing;
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
    if (live && late && priv->in_utterance && !priv->frame->awaited_text && priv->speech.WaitsForEngine())
      gst_qtts_src_report_underrun(self, GST_CLOCK_DIFF(time, now));
    if (late || priv->timeline.broken()) {
      priv->timeline.MoveTo(now);
    } else if (now > time + latency + kLateTolerance / 2) {
      lag = now - time - latency;
    }
  }
  priv->placed = true;
  priv->silence_due = 0;
  if (priv->in_utterance) return true;
  // The silence before it goes on for as long as the speech is late, so that all of the speech is on time.
  priv->silence_due = gstqtts::SamplesWithin(lag, SAMPLE_RATE);
  if (timing != TextTiming::kIgnore && priv->cue.start) {
    const GstClockTime start = *priv->cue.start + (timing == TextTiming::kShift ? priv->shift : 0);
    const GstClockTime time = priv->timeline.time();
    if (time > start) {
      if (timing == TextTiming::kShift) priv->shift += time - start;
    } else if (live && gst_qtts_src_get_idle_mode(self) != IdleMode::kSilence) {
      priv->timeline.MoveTo(start);
    } else {
      priv->silence_due = std::max(priv->silence_due, gstqtts::SamplesWithin(start - time, SAMPLE_RATE));
    }
  }
  priv->silence_due = std::max(priv->silence_due, priv->timeline.MissingSilence(leading, gap));
  return true;
}

// Cuts a frame of speech that is placed where its cue ends, if it has to be minded. False if nothing is left of it.
static bool gst_qtts_src_clip(GstQttsSrc* self, std::vector<float>* pcm) {
  GstQttsSrcPrivate* priv = self->priv;

  {
    const std::lock_guard lock(priv->lock);
    if (priv->text_timing != TextTiming::kClip || !priv->cue.end) return true;
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

  Speech::Output output;
  GstFlowReturn flow = GST_FLOW_OK;
  while (flow == GST_FLOW_OK) {
    switch (priv->speech.Next(&output)) {
      case Speech::Event::kStarted: {
        gst_qtts_src_utterance_started(self, output);
        priv->in_utterance = false;
        priv->cue = output.cue;
        priv->language = output.language;
        const std::lock_guard lock(priv->lock);
        if (priv->trim_leading_silence) priv->trimmer.Restart();
        break;
      }
      case Speech::Event::kFrame:
        if (!gst_qtts_src_trim(self, &output.frame.pcm)) break;
        priv->frame = std::move(output);
        return GST_FLOW_OK;
      case Speech::Event::kGap:
        if (output.cue.start.value_or(0) > priv->timeline.time()) {
          priv->silence_due = gstqtts::SamplesWithin(*output.cue.start - priv->timeline.time(), SAMPLE_RATE);
          return GST_FLOW_OK;
        }
        break;
      case Speech::Event::kEnded:
        priv->in_utterance = false;
        flow = gst_qtts_src_utterance_ended(self, output);
        break;
      case Speech::Event::kRefused:
        flow = gst_qtts_src_fail_utterance(self, output, "the engine refused an utterance");
        break;
      case Speech::Event::kLoadFailed:
        return GST_FLOW_EOS;
      case Speech::Event::kEndOfText:
        GST_DEBUG_OBJECT(self, "everything is spoken");
        return GST_FLOW_EOS;
      case Speech::Event::kIdle:
      case Speech::Event::kWoken:
        return GST_FLOW_OK;
      case Speech::Event::kHalted:
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
  const std::string code = gstqtts::LanguageCode(priv->language);
  if (!code.empty()) gst_tag_list_add(tags, GST_TAG_MERGE_REPLACE, GST_TAG_LANGUAGE_CODE, code.c_str(), nullptr);
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
    latency = priv->latency;
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
  return priv->latency + kLateTolerance;
}

GstFlowReturn gst_qtts_src_create(GstPushSrc* src, GstBuffer** buffer) {
  GstQttsSrc* self = GST_QTTS_SRC(src);
  GstQttsSrcPrivate* priv = self->priv;
  const bool live = gst_base_src_is_live(GST_BASE_SRC(self));

  for (;;) {
    if (!priv->frame && priv->silence_due == 0) {
      priv->speech.ClearWake();  // before the mode is read: its changes wake
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
        if (std::exchange(priv->in_utterance, false) && priv->speech.WaitsForEngine())
          gst_qtts_src_report_underrun(self, 0);
        return gst_qtts_src_create_silence(self, kSilencePiece, buffer);
      }
    }

    if (priv->frame && !priv->placed) {
      if (!gst_qtts_src_place_frame(self)) return GST_FLOW_FLUSHING;
      if (!gst_qtts_src_clip(self, &priv->frame->frame.pcm)) {
        priv->speech.Clip();
        gst_qtts_src_drop_frame(self);
        continue;
      }
    }

    // An interrupted wait leaves the frame where it is: not a frame is lost when a live stream is paused.
    if (priv->silence_due > 0 && (!priv->frame || priv->speech.WouldCommit())) {
      const guint64 samples = std::min(priv->silence_due, live ? kSilencePiece : SAMPLE_RATE);
      const GstFlowReturn flow = gst_qtts_src_create_silence(self, samples, buffer);
      if (flow == GST_FLOW_OK) priv->silence_due -= samples;
      return flow;
    }
    if (!gst_qtts_src_wait(self)) return GST_FLOW_FLUSHING;
    const Speech::Output frame = std::move(*priv->frame);
    gst_qtts_src_drop_frame(self);
    if (!priv->speech.Commit(frame, gst_qtts_src_next_running_time(self))) continue;  // it was interrupted
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
