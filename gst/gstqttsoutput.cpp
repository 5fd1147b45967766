// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsoutput.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttserror.h"
#include "gstqttslog.h"
#include "gstqttsmetas.h"
#include "qtts/resources.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

// Length of buffers of silence in pauses. Speech that is ready waits at most this long, and telephony and WebRTC send
// packets of this length.
constexpr guint64 kSilencePiece = SAMPLE_RATE / 50;
// A live buffer later than "latency" by at most this keeps its time: less than the processing deadline (20 ms) for
// which sinks wait anyway.
constexpr GstClockTime kLateTolerance = 10 * GST_MSECOND;
// Silence later than this was delayed by downstream.
constexpr GstClockTime kSilenceTolerance = 200 * GST_MSECOND;

// Length of the fade-out, in samples, of speech cut by its cue, to avoid a click.
constexpr size_t kFade = SAMPLE_RATE / 200;

// Stamps a buffer. `gap_flag`: silence gets the GAP flag.
void SetStamp(GstBuffer* buffer, const Stamp& stamp, bool gap_flag) {
  GST_BUFFER_PTS(buffer) = stamp.pts;
  GST_BUFFER_DURATION(buffer) = stamp.duration;
  GST_BUFFER_OFFSET(buffer) = stamp.offset;
  GST_BUFFER_OFFSET_END(buffer) = stamp.offset_end;
  if (stamp.discont) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_DISCONT);
  if (stamp.resync) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_RESYNC);
  if (stamp.silence && gap_flag) GST_BUFFER_FLAG_SET(buffer, GST_BUFFER_FLAG_GAP);
}

}  // namespace

Output::Output(GstBaseSrc* element, Speech& speech, LiveClock& clock, ElementProperties& properties,
               const ElementModel& model, const Input& input, TextPads& text_pads)
    : element_(element),
      speech_(speech),
      clock_(clock),
      properties_(properties),
      model_(model),
      input_(input),
      text_pads_(text_pads),
      wake_(speech.player().waker()) {}

Output::~Output() { gst_clear_buffer(&handed_out_); }

void Output::BufferTaken() {
  gst_clear_buffer(&handed_out_);
  text_pads_.TakeWords(std::exchange(told_, {}), known_);
}

void Output::Begin() {
  Restart();
  const qtts::MutexLock lock(reset_mutex_);
  tagged_language_.reset();
  warnings_.clear();
}

void Output::End() {
  const qtts::MutexLock lock(reset_mutex_);
  DropFrame();
}

void Output::ForgetFrame() {
  frame_.reset();
  placed_ = false;
  silence_due_ = 0;
  in_utterance_ = in_break_ = false;
}

// Drops the frame of speech that waits for its time.
void Output::DropFrame() {
  ForgetFrame();
  gst_clear_buffer(&handed_out_);
  metas_.clear();
  told_ = {};
  text_goes_on_ = false;
  known_ = 0;
  ended_with_ = GST_FLOW_OK;
}

void Output::Restart() {
  const qtts::MutexLock lock(reset_mutex_);
  DropFrame();
  timeline_.Restart();
  shift_ = 0;
}

void Output::Break() {
  const qtts::MutexLock lock(reset_mutex_);
  DropFrame();
  timeline_.Break();
}

// Multiplies the samples, which stay below the limiter's ceiling or, without it, within full scale.
void Output::Amplify(std::vector<float>* pcm) {
  if (limited_) return limiter_.Apply(gain_, pcm);
  if (gain_ == 1) return;
  for (float& sample : *pcm) sample = std::clamp(sample * static_cast<float>(gain_), -1.0F, 1.0F);
}

// Returns a buffer of `pcm`; of silence if that is null.
GstBuffer* Output::NewBuffer(const float* pcm, gsize samples) {
  const bool is_float = format_ == GST_AUDIO_FORMAT_F32;

  GstAllocator* allocator = nullptr;
  GstAllocationParams params;
  gst_base_src_get_allocator(element_, &allocator, &params);
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
    ConvertToS16(pcm, samples, reinterpret_cast<gint16*>(map.data));
  }
  gst_buffer_unmap(buffer, &map);
  return buffer;
}

// Returns the running time of the next buffer.
guint64 Output::NextRunningTime() const {
  return gst_segment_to_running_time(&element_->segment, GST_FORMAT_TIME, timeline_.time());
}

GstFlowReturn Output::Fail(const qtts::Status& status, const char* what) {
  speech_.Fail();
  PostError(GST_ELEMENT(element_), status, what);
  return GST_FLOW_ERROR;
}

// Returns true if the error of this utterance would affect every other: the device is lost, or its settings are those
// of the properties, which the next one has too.
bool Output::AffectsEveryText(const Player::Output& output) const {
  if (output.device_lost || output.status.code() == qtts::StatusCode::kDeviceUnavailable) return true;
  if (!IsAboutSettings(output.status)) return false;
  return output.settings == properties_.utterance();
}

// Reports a failed utterance: an error if it would affect every text, or if there was no other text, so that waiting
// for the end of the stream shows that nothing was spoken; otherwise a warning.
GstFlowReturn Output::FailUtterance(const Player::Output& output, const char* what) {
  if (output.nothing_spoken || AffectsEveryText(output)) {
    return Fail(output.status, what);
  }
  PostWarning(GST_ELEMENT(element_), output.status, what);
  return GST_FLOW_OK;
}

// Ends the text.
GstFlowReturn Output::Finish(const Player::Output& output) {
  if (output.status.ok()) {
    GST_DEBUG_OBJECT(element_, "everything is spoken");
    const Speech::Stats stats = speech_.stats();
    if (stats.unsayable > 0 && stats.unsayable == stats.utterances + stats.interrupted) {
      GST_ELEMENT_WARNING(element_, STREAM, FAILED,
                          ("Nothing was spoken: the text has no letter, number or currency sign. "
                           "speak-anything=true gives it to the model anyway."),
                          (nullptr));
    }
    return GST_FLOW_EOS;
  }
  return Fail({output.status.code(), "None of the texts could be spoken. The last one: " + output.status.message()},
              "every utterance failed");
}

void Output::WarnOfSettings(const std::string& warning) {
  gst_element_message_full(GST_ELEMENT(element_), GST_MESSAGE_WARNING, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_SETTINGS,
                           g_strdup(warning.c_str()), nullptr, __FILE__, GST_FUNCTION, __LINE__);
}

void Output::UtteranceStarted(const Player::Output& output) {
  GST_DEBUG_OBJECT(element_, "the engine took an utterance, seed %" G_GUINT64_FORMAT, output.seed);
  if (!output.language_warning.empty()) WarnOfSettings(output.language_warning);
  // Once for consecutive utterances with the same settings.
  if (output.warnings != warnings_) {
    warnings_ = output.warnings;
    for (const std::string& warning : output.warnings) WarnOfSettings(warning);
  }
  for (const std::string& warning : output.new_warnings) WarnOfSettings(warning);
}

GstFlowReturn Output::UtteranceEnded(const Player::Output& output) {
  if (!output.language_warning.empty()) WarnOfSettings(output.language_warning);
  if (output.end_reason == qtts::EndReason::kError) {
    return FailUtterance(output, "speaking failed");
  }
  if (output.end_reason == qtts::EndReason::kBusy) {
    return FailUtterance(output, "an utterance could not begin within max-wait");
  }
  if (output.end_reason == qtts::EndReason::kMaxDuration) {
    GST_ELEMENT_WARNING(
        element_, RESOURCE, SETTINGS,
        ("The speech was cut at the longest duration allowed. Raise max-duration, or use shorter texts."), (nullptr));
  }
  if (output.end_reason == qtts::EndReason::kRunaway) {
    GST_ELEMENT_WARNING(element_, STREAM, FAILED,
                        ("The model missed the end of its text, and was stopped. Another seed will most likely work; "
                         "runaway-guard=false does not stop it."),
                        (nullptr));
  }
  return GST_FLOW_OK;
}

GstFlowReturn Output::FailWithoutBuffer() {
  return Fail(qtts::Status::ResourceExhausted("Cannot allocate a buffer for a frame of sound."), "no buffer");
}

// Returns the advice for the user if speech is generated too slowly.
std::string Output::SpeedAdvice() const {
  if (!model_.on_cpu()) return "Use a smaller model";
  const qtts::Precision precision = properties_.precision();
  const qtts::Precision faster = qtts::FasterOnCpu(precision);
  if (faster == precision) return "Run the model on a GPU, use a smaller one";
  return "Set precision=" + std::string(qtts::PrecisionName(faster)) + ", run the model on a GPU, use a smaller one";
}

// Reports speech that missed its place in a live stream by `jitter`.
void Output::ReportUnderrun(GstClockTimeDiff jitter) {
  const guint64 underruns = properties_.CountUnderrun();
  const GstClockTime time = timeline_.time();
  GstMessage* message =
      gst_message_new_qos(GST_OBJECT(element_), TRUE, NextRunningTime(), time, time, GST_CLOCK_TIME_NONE);
  gst_message_set_qos_values(message, jitter, 1.0, 0);
  gst_element_post_message(GST_ELEMENT(element_), message);
  if (underruns == 1) {
    GST_ELEMENT_WARNING(
        element_, RESOURCE, BUSY,
        ("Speech is generated more slowly than real time, so it has gaps. %s, speak fewer streams at once, or raise "
         "\"latency\".",
         SpeedAdvice().c_str()),
        ("%" GST_TIME_FORMAT " too late", GST_TIME_ARGS(jitter)));
  } else {
    GST_INFO_OBJECT(element_, "underrun %" G_GUINT64_FORMAT ", %" GST_TIME_FORMAT " too late", underruns,
                    GST_TIME_ARGS(jitter));
  }
}

// Moves the timeline forward if the available speech frame is late for its place. `lag`: delay known in advance.
// Returns false if the wait for the clock was interrupted.
bool Output::FollowClock(GstClockTime* lag) {
  std::optional<GstClockTime> running_time;
  if (!clock_.WaitForNow(&running_time)) return false;
  properties_.Refresh(&settings_);
  const Pacing& pacing = settings_.pacing;
  const GstClockTime now = running_time.value_or(0);
  const GstClockTime time = timeline_.time();
  // Continuous silence up to here leaves no pause in which to move, except a pause that was not filled in time.
  GstClockTime tolerance = 0;
  if (in_utterance_) {
    tolerance = kLateTolerance;
  } else if (pacing.is_live && pacing.idle() == IdleMode::kSilence) {
    tolerance = kSilenceTolerance;
  }
  const bool late = now > time + pacing.latency + tolerance;
  if (pacing.is_live && late && in_utterance_ && !frame_->awaited_text && speech_.player().WaitsForEngine())
    ReportUnderrun(GST_CLOCK_DIFF(time, now));
  if (late || timeline_.broken()) {
    timeline_.MoveTo(now);
  } else if (now > time + pacing.latency + kLateTolerance / 2) {
    *lag = now - time - pacing.latency;
  }
  return true;
}

// Finds the place of the next frame of speech, which is there: moves the timeline of a live stream on if the frame
// is too late for where that is, and notes the silence that has to come before the frame. Where nothing flows before a
// cue, it waits for that, unless the frame is interrupted. False if the wait was.
bool Output::PlaceFrame() {
  GstClockTime lag = 0;
  if ((settings_.pacing.is_live || input_.upstream_live()) && !FollowClock(&lag)) return false;
  silence_due_ = 0;
  if (in_utterance_) {
    placed_ = true;
    return true;
  }
  // Extends the silence before it by the delay, so that all of the speech is on time.
  silence_due_ = SamplesWithin(lag, SAMPLE_RATE);
  const Pacing& pacing = settings_.pacing;
  const TextTiming timing = pacing.text_timing;
  if (timing != TextTiming::kIgnore && cue_.start) {
    const GstClockTime start = *cue_.start + (timing == TextTiming::kShift ? shift_ : 0);
    const GstClockTime time = timeline_.time();
    if (time > start) {
      if (timing == TextTiming::kShift) shift_ += time - start;
    } else if (pacing.is_live && pacing.idle() != IdleMode::kSilence) {
      // The timeline stays where it is until then: what is spoken after an interrupt does not wait for this cue.
      const auto wanted = [this] { return speech_.player().WouldCommit(); };
      if (!clock_.WaitUntil(start, wanted)) return false;
      if (!wanted()) return true;
      timeline_.MoveTo(start);
    } else {
      silence_due_ = std::max(silence_due_, SamplesWithin(start - time, SAMPLE_RATE));
    }
  }
  if (!after_break_) {
    silence_due_ = std::max(silence_due_, timeline_.MissingSilence(pacing.leading_silence, pacing.GapAfter(before_)));
  }
  placed_ = true;
  return true;
}

// Cuts a frame of speech that is placed where its cue ends, if it has to be minded. False if nothing is left of it.
bool Output::ClipFrame(std::vector<float>* pcm) {
  if (settings_.pacing.text_timing != TextTiming::kClip || !cue_.end) return true;
  const GstClockTime time = timeline_.time() + SampleTime(silence_due_, SAMPLE_RATE);
  const guint64 left = *cue_.end > time ? SamplesWithin(*cue_.end - time, SAMPLE_RATE) : 0;
  if (left >= pcm->size()) return true;
  pcm->resize(left);
  const size_t fade = std::min(kFade, pcm->size());
  for (size_t i = 0; i < fade; ++i) (*pcm)[pcm->size() - 1 - i] *= static_cast<float>(i) / static_cast<float>(fade);
  return !pcm->empty();
}

// Returns the time on the timeline at which speech that comes now would begin, but for its cue.
GstClockTime Output::StartOfSpeech() {
  const Pacing& pacing = settings_.pacing;
  const GstClockTime time = timeline_.time();
  GstClockTime start = time;
  std::optional<GstClockTime> now;
  if ((pacing.is_live || input_.upstream_live()) && clock_.WaitForNow(&now) && now) {
    // As FollowClock() will move it.
    const bool silence = pacing.is_live && pacing.idle() == IdleMode::kSilence;
    const GstClockTime on_time = time + pacing.latency;
    const GstClockTime lag = *now - std::min(*now, on_time);
    start = lag > (silence ? kSilenceTolerance : 0) || timeline_.broken() ? std::max(time, *now) : time + lag;
  }
  if (after_break_) return start;
  const guint64 silence = timeline_.MissingSilence(pacing.leading_silence, pacing.GapAfter(before_));
  return std::max(start, time + SampleTime(silence, SAMPLE_RATE));
}

// Returns the number of samples that speech that comes now has until the end of its cue.
guint64 Output::SlotNow() {
  const GstClockTime start = std::max(StartOfSpeech(), cue_.start.value_or(0));
  const guint64 left = *cue_.end > start ? SamplesWithin(*cue_.end - start, SAMPLE_RATE) : 0;
  return cue_.share < 1 ? static_cast<guint64>(static_cast<double>(left) * cue_.share) : left;
}

// Waits for the next frame of speech and keeps it in `frame`. Without one when it is time for silence.
GstFlowReturn Output::NextFrame() {
  Player::Output output;
  GstFlowReturn flow = GST_FLOW_OK;
  while (flow == GST_FLOW_OK) {
    const Pacing& pacing = settings_.pacing;
    const TextAhead ahead = pacing.is_live ? TextAhead::kNone : text_pads_.WantedAhead();
    const Player::Event event = speech_.player().Next(&output, {pacing, ahead, fit_, [this] { return SlotNow(); }});
    properties_.Refresh(&settings_);
    switch (event) {
      case Player::Event::kStarted:
        UtteranceStarted(output);
        in_utterance_ = false;
        cue_ = output.cue;
        before_ = output.before;
        after_break_ = output.after_break;
        gain_ = output.gain;
        limited_ = output.limited;
        limiter_.Restart();
        metas_.clear();
        language_ = output.language;
        fit_ = settings_.pacing.text_timing == TextTiming::kCompress && cue_.end;
        break;
      case Player::Event::kFrame:
        metas_.insert(metas_.end(), output.metas.begin(), output.metas.end());
        Amplify(&output.sound.pcm);
        frame_ = std::move(output);
        return GST_FLOW_OK;
      case Player::Event::kGap:
        if (output.cue.start.value_or(0) > timeline_.time()) {
          silence_due_ = SamplesWithin(*output.cue.start - timeline_.time(), SAMPLE_RATE);
          return GST_FLOW_OK;
        }
        break;
      case Player::Event::kEvent:
        // From this thread, so that it is in order with the buffers.
        gst_pad_push_event(GST_BASE_SRC_PAD(element_), gst_event_ref(static_cast<GstEvent*>(output.event.get())));
        break;
      case Player::Event::kBreak:
        in_utterance_ = false;
        silence_due_ = SamplesWithin(output.silence, SAMPLE_RATE);
        in_break_ = silence_due_ > 0;
        if (in_break_) return GST_FLOW_OK;
        break;
      case Player::Event::kMark:
        speech_.player().CommitMark(output, NextRunningTime());
        break;
      case Player::Event::kEnded:
        in_utterance_ = text_goes_on_ = false;
        fit_ = false;
        known_ = std::max(known_, output.told.known_until);
        text_pads_.TakeWords(output.told, known_);
        flow = UtteranceEnded(output);
        break;
      case Player::Event::kRefused:
        flow = FailUtterance(output, "the engine refused an utterance");
        break;
      case Player::Event::kLoadFailed:
        return GST_FLOW_ERROR;  // the loader's thread has posted it
      case Player::Event::kEndOfText:
        return Finish(output);
      case Player::Event::kIdle:
      case Player::Event::kWoken:
        return GST_FLOW_OK;
      case Player::Event::kHalted:
        return GST_FLOW_FLUSHING;
    }
  }
  return flow;
}

// Sends tags before the first speech and when the language changes.
void Output::UpdateTags() {
  if (tagged_language_ == language_) return;
  tagged_language_ = language_;
  GstTagList* tags = gst_tag_list_new(GST_TAG_COMMENT, "Synthetic speech", nullptr);
  gst_tag_list_set_scope(tags, GST_TAG_SCOPE_STREAM);
  if (!language_.empty()) {
    gst_tag_list_add(tags, GST_TAG_MERGE_REPLACE, GST_TAG_LANGUAGE_CODE, language_.c_str(), nullptr);
  }
  GST_ELEMENT_GET_CLASS(element_)->send_event(GST_ELEMENT(element_), gst_event_new_tag(tags));
}

// Waits for the time of the next buffer if live. Returns false if interrupted.
bool Output::WaitForTime() {
  if (!settings_.pacing.is_live) return true;
  return clock_.WaitUntil(NextRunningTime());
}

// Skips silence that downstream did not take in time: a live stream moves on. Returns false if interrupted.
bool Output::CatchUp() {
  if (!settings_.pacing.is_live) return true;
  std::optional<GstClockTime> now;
  if (!clock_.WaitForNow(&now)) return false;
  properties_.Refresh(&settings_);
  if (now && *now > timeline_.time() + settings_.pacing.latency + kSilenceTolerance) timeline_.MoveTo(*now);
  return true;
}

// In silence there are no words, unless those of the utterance before it are told late.
void Output::NoteSilence() {
  const GstClockTime end = timeline_.time();
  text_goes_on_ = text_goes_on_ && speech_.player().WouldCommit();
  told_ = {};
  told_.over = !text_goes_on_;
  constexpr GstClockTime kTextPatience = SpokenUtterance::kPatience.count();
  known_ = text_goes_on_ ? std::max(known_, end - std::min(end, kTextPatience)) : end;
}

GstFlowReturn Output::MakeSilence(guint64 samples, GstBuffer** buffer) {
  if (!WaitForTime()) return GST_FLOW_FLUSHING;
  if (!CatchUp()) return GST_FLOW_FLUSHING;
  *buffer = NewBuffer(nullptr, samples);
  if (*buffer == nullptr) return FailWithoutBuffer();
  SetStamp(*buffer, timeline_.Silence(samples), settings_.pacing.gap_flag);
  NoteSilence();
  GST_LOG_OBJECT(element_, "silence: %" GST_PTR_FORMAT, static_cast<void*>(*buffer));
  return GST_FLOW_OK;
}

// Returns the time that silence waits for the next frame of continuing speech.
GstClockTime Output::grace() const {
  if (!in_utterance_) return 0;
  return settings_.pacing.latency + kLateTolerance;
}

// Returns the samples until the stop of the segment, which a seek may set.
guint64 Output::SamplesLeft() const {
  const guint64 stop = element_->segment.stop;
  const GstClockTime time = timeline_.time();
  if (!GST_CLOCK_TIME_IS_VALID(stop)) return G_MAXUINT64;
  return stop > time ? SamplesWithin(stop - time, SAMPLE_RATE) : 0;
}

// Returns the next buffer, when its time has come.
GstFlowReturn Output::MakeBuffer(GstBuffer** buffer) {
  properties_.Refresh(&settings_);
  const bool live = settings_.pacing.is_live;
  for (;;) {
    if (!frame_ && silence_due_ == 0) {
      speech_.player().ClearWake();  // before the mode is read: its changes wake
      properties_.Refresh(&settings_);
      const bool fill = settings_.pacing.idle() == IdleMode::kSilence;
      if (fill && live) {
        std::optional<GstClockTime> now;
        if (!clock_.WaitForNow(&now)) return GST_FLOW_FLUSHING;
        if (timeline_.broken()) timeline_.MoveTo(now.value_or(0));
        clock_.SetAlarm(NextRunningTime() + grace(), wake_);
      }
      const GstFlowReturn flow = NextFrame();
      clock_.CancelAlarm();
      if (flow != GST_FLOW_OK) return flow;
      if (!frame_ && silence_due_ == 0) {
        if (!fill) continue;  // woken by a change of the mode
        if (std::exchange(in_utterance_, false) && speech_.player().WaitsForEngine()) ReportUnderrun(0);
        return MakeSilence(kSilencePiece, buffer);
      }
    }

    if (frame_ && !placed_) {
      if (!PlaceFrame()) return GST_FLOW_FLUSHING;
      if (!speech_.player().WouldCommit()) {
        DropFrame();
        continue;
      }
      if (!ClipFrame(&frame_->sound.pcm)) {
        speech_.player().Clip();
        ForgetFrame();
        continue;
      }
    }

    // A gap in the text is no speech, and a break may be interrupted.
    if (!frame_ && (speech_.ending() || (in_break_ && !speech_.player().BreakGoesOn()))) {
      silence_due_ = 0;
      in_break_ = false;
      continue;
    }
    const guint64 left = SamplesLeft();
    if (left == 0) return GST_FLOW_EOS;
    // An interrupted wait leaves the frame where it is: not a frame is lost when a live stream is paused.
    if (silence_due_ > 0 && (!frame_ || speech_.player().WouldCommit())) {
      const guint64 samples = std::min({silence_due_, left, live ? kSilencePiece : guint64{SAMPLE_RATE}});
      const GstFlowReturn flow = MakeSilence(samples, buffer);
      if (flow == GST_FLOW_OK) silence_due_ -= samples;
      in_break_ = in_break_ && silence_due_ > 0;
      return flow;
    }
    if (!WaitForTime()) return GST_FLOW_FLUSHING;
    Player::Output frame = std::move(*frame_);
    ForgetFrame();
    if (frame.sound.pcm.size() > left) frame.sound.pcm.resize(left);
    Told told;
    if (!speech_.player().Commit(frame, {NextRunningTime(), timeline_.time()}, &told)) continue;  // it was interrupted
    const std::vector<float>& pcm = frame.sound.pcm;
    *buffer = NewBuffer(pcm.data(), pcm.size());
    if (*buffer == nullptr) return FailWithoutBuffer();
    UpdateTags();
    for (const std::shared_ptr<void>& metas : std::exchange(metas_, {})) CopyMetas(metas, *buffer);
    SetStamp(*buffer, timeline_.Speech(pcm.size()), settings_.pacing.gap_flag);
    known_ = std::max(known_, told.known_until);
    told_ = std::move(told);
    text_goes_on_ = true;
    GST_LOG_OBJECT(element_, "speech: %" GST_PTR_FORMAT, static_cast<void*>(*buffer));
    in_utterance_ = true;
    return GST_FLOW_OK;
  }
}

GstFlowReturn Output::Create(GstBuffer** buffer) {
  if (ended_with_ != GST_FLOW_OK) return ended_with_;
  if (handed_out_ != nullptr) {
    *buffer = gst_buffer_ref(handed_out_);
    return GST_FLOW_OK;
  }
  GstFlowReturn flow = GST_FLOW_ERROR;
  const qtts::Status status = qtts::CatchExhaustion("go on speaking", [&] {
    flow = MakeBuffer(buffer);
    return qtts::Status::Ok();
  });
  if (!status.ok()) flow = Fail(status, "memory or threads ran out");
  if (flow == GST_FLOW_OK) {
    gst_buffer_replace(&handed_out_, *buffer);
  } else if (flow != GST_FLOW_FLUSHING) {
    ended_with_ = flow;
  }
  return flow;
}

}  // namespace gstqtts
