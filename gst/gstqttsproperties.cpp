// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsproperties.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gstqttslog.h"
#include "gstqttsoverrides.h"
#include "gstqttspcm.h"
#include "gstqttspresets.h"
#include "gstqttspropertytable.h"
#include "gstqttstimeline.h"
#include "qtts/bundled_voice.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {
namespace {

// Sets `value`, a GStrv, which every language binding reads without GStreamer's own types.
void SetStrings(GValue* value, const std::vector<std::string>& strings) {
  gchar** list = g_new0(gchar*, strings.size() + 1);
  for (size_t i = 0; i < strings.size(); ++i) list[i] = g_strdup(strings[i].c_str());
  g_value_take_boxed(value, list);
}

GParamFlags FlagsOf(Change change) {
  switch (change) {
    case Change::kReady:
      return static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
    case Change::kPlaying:
      return static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);
    case Change::kReadOnly:
      break;
  }
  return static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
}

}  // namespace

ElementProperties::ElementProperties(GstBaseSrc* element, Speech& speech, const ElementModel& model)
    : element_(element), speech_(speech), model_(model), wake_(speech.player().waker()) {}

ElementProperties::~ElementProperties() { SetVoice(nullptr); }

void ElementProperties::Install(GObjectClass* klass) {
  guint number = 0;
  for (const Property& property : PropertyTable()) {
    g_object_class_install_property(klass, ++number, property.new_spec(FlagsOf(property.change)));
  }
  for (const GType type : PropertyEnums()) gst_type_mark_as_plugin_api(type, static_cast<GstPluginAPIFlags>(0));
}

// --- setting

void ElementProperties::Set(guint number, const GValue* value) {
  const Property& property = PropertyTable()[number - 1];
  if (property.effect == Effect::kSpeak) return SetText(g_value_get_string(value));
  if (property.effect == Effect::kGoLive) return SetLive(g_value_get_boolean(value) != FALSE);
  bool changed = false;
  Pacing pacing;
  {
    const qtts::MutexLock lock(mutex_);
    changed = property.set(value, &properties_);
    properties_.utterance.rate.reset();  // the property holds for all text that has no rate of its own
    ++version_;
    pacing = properties_.pacing;
    if (property.effect == Effect::kBoundQueue) speech_.intake().SetMaxQueued(properties_.text_options.max_queued);
  }
  if (property.effect == Effect::kIdleMode) UpdateIdleMode(pacing);
  if (property.effect == Effect::kTellLatency && changed && pacing.is_live) {
    gst_element_post_message(GST_ELEMENT(element_), gst_message_new_latency(GST_OBJECT(element_)));
  }
}

void ElementProperties::SetText(const gchar* text) {
  Intake::Accept accept = Intake::Accept::kAccepted;
  bool offered = false;
  {
    const qtts::MutexLock lock(mutex_);
    properties_.text = text != nullptr ? std::optional<std::string>(text) : std::nullopt;
    offered = running_ && properties_.text && !IsBlank(*properties_.text);
    if (offered) accept = speech_.intake().Offer({*properties_.text, properties_.utterance});
  }
  if (!offered) return;
  WarnOfMarkup();
  switch (accept) {
    case Intake::Accept::kAccepted:
      GST_DEBUG_OBJECT(element_, "queued '%s'", text);
      break;
    case Intake::Accept::kFull:
      GST_ELEMENT_WARNING(element_, RESOURCE, BUSY,
                          ("Too much text is waiting to be spoken; the last one is dropped. Set texts more slowly."),
                          (nullptr));
      break;
    case Intake::Accept::kFlushing:
    case Intake::Accept::kEnded:
      GST_INFO_OBJECT(element_, "this text comes after the end of the stream or during a flush and is not spoken");
      break;
  }
}

void ElementProperties::WarnOfMarkup() const {
  for (const std::string& warning : speech_.intake().TakeWarnings()) {
    GST_ELEMENT_WARNING(element_, STREAM, FORMAT, ("%s", warning.c_str()), ("the markup of a text"));
  }
}

void ElementProperties::SetLive(bool live) {
  Pacing pacing;
  bool refused = false;
  {
    const qtts::MutexLock lock(mutex_);
    if (live == properties_.pacing.is_live) return;
    refused = running_;
    if (!refused) {
      properties_.pacing.is_live = live;
      ++version_;
    }
    pacing = properties_.pacing;
  }
  if (refused) {
    GST_ELEMENT_WARNING(
        element_, RESOURCE, SETTINGS,
        ("is-live=%s is refused while the element runs. Set it in NULL or READY.", live ? "true" : "false"), (nullptr));
    return;
  }
  gst_base_src_set_live(element_, static_cast<gboolean>(live));
  UpdateIdleMode(pacing);
}

void ElementProperties::UpdateIdleMode(const Pacing& pacing) {
  switch (pacing.idle()) {
    case IdleMode::kSilence:
      // When live, the alarm of each piece of silence tells in its place.
      speech_.player().SetIdle(pacing.is_live ? Player::Idle::kWait : Player::Idle::kTell);
      break;
    case IdleMode::kWait:
      speech_.player().SetIdle(Player::Idle::kWait);
      break;
    case IdleMode::kEos:
    case IdleMode::kAuto:
      speech_.player().SetIdle(Player::Idle::kEnd);
      break;
  }
  wake_();  // a wait that began in the old mode
}

// --- getting

void ElementProperties::Get(guint number, GValue* value) const {
  const Property& property = PropertyTable()[number - 1];
  const std::string_view name = property.name;
  if (property.get) {
    const qtts::MutexLock lock(mutex_);
    property.get(properties_, value);
    const bool unset = G_VALUE_HOLDS_STRING(value) && g_value_get_string(value) == nullptr;
    if (property.of_utterance && unset && gst_qtts_src_saves_preset()) g_value_set_static_string(value, "");
  } else if (name == "speakers") {
    const auto model = model_.info();
    SetStrings(value, model ? model->speakers : std::vector<std::string>());
  } else if (name == "default-speaker") {
    const auto model = model_.info();
    if (!model || model->speakers.empty()) return;
    g_value_set_string(value, DefaultSpeaker(*model).c_str());
  } else if (name == "languages") {
    const auto model = model_.info();
    SetStrings(value, model ? model->languages : std::vector<std::string>());
  } else if (name == "supports-instruct") {
    const auto model = model_.info();
    g_value_set_boolean(value, static_cast<gboolean>(model && model->supports_instruct));
  } else if (name == "stats") {
    g_value_take_boxed(value, NewStats());
  } else if (name == "current-text") {
    const std::string text = speech_.player().current_text();
    g_value_set_string(value, text.empty() ? nullptr : text.c_str());
  }
}

GstStructure* ElementProperties::NewStats() const {
  const Speech::Stats stats = speech_.stats();
  const std::optional<qtts::ModelInfo> model = model_.info();
  const std::string device_name = model_.device_name();
  const bool spoke = stats.first_frames > 0;
  const auto nanoseconds = [spoke](std::chrono::nanoseconds duration) {
    return spoke ? static_cast<guint64>(duration.count()) : GST_CLOCK_TIME_NONE;
  };
  const auto mean = stats.first_frame_latency_sum / std::max<int64_t>(static_cast<int64_t>(stats.first_frames), 1);
  const double waited = std::chrono::duration<double>(stats.waited).count();
  GstStructure* structure = gst_structure_new(
      "application/x-qttssrc-stats", "model", G_TYPE_STRING, model ? model->path.c_str() : "", "device", G_TYPE_STRING,
      device_name.c_str(), "cuda-device-id", G_TYPE_INT, model_.gpu(), "utterances", G_TYPE_UINT64, stats.utterances,
      "interrupted", G_TYPE_UINT64, stats.interrupted, "dropped", G_TYPE_UINT64, stats.dropped, "frames", G_TYPE_UINT64,
      stats.frames, "seed", G_TYPE_INT64, stats.seed ? static_cast<gint64>(*stats.seed) : -1, "first-frame-latency",
      G_TYPE_UINT64, nanoseconds(stats.first_frame_latency_last), "first-frame-latency-mean", G_TYPE_UINT64,
      nanoseconds(mean), "first-frame-latency-max", G_TYPE_UINT64, nanoseconds(stats.first_frame_latency_max),
      "real-time-factor", G_TYPE_DOUBLE, stats.sound_seconds > 0 ? waited / stats.sound_seconds : 0.0,
      "queued-utterances", G_TYPE_UINT64, static_cast<guint64>(stats.queued_utterances), "queued-chars", G_TYPE_UINT64,
      static_cast<guint64>(stats.queued_chars), "upstream-waits", G_TYPE_BOOLEAN,
      static_cast<gboolean>(stats.upstream_waits), "underruns", G_TYPE_UINT64, underruns_.load(), "trimmed",
      G_TYPE_UINT64, SampleTime(stats.trimmed, SAMPLE_RATE), "slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.slots), "free-slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.free_slots), "waiting-utterances", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.waiting), "pages", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.pages), "free-pages", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.free_pages), "steps", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.steps), "step-frames", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.step_frames), "step-time", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.step_nanoseconds), "parked-utterances", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.parked), "device-memory", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.device_bytes), "ahead-slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.ahead_slots), "ahead-parts", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.ahead_parts), "preempted-parts", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.preempted_parts), nullptr);
  const double measured = static_cast<double>(std::max<uint64_t>(stats.measured, 1));
  gst_structure_set(structure, "runaways", G_TYPE_UINT64, stats.runaways, "retries", G_TYPE_UINT64, stats.retries,
                    "measured", G_TYPE_UINT64, stats.measured, "incomplete", G_TYPE_UINT64, stats.incomplete,
                    "coverage", G_TYPE_DOUBLE, stats.measured > 0 ? stats.coverage_sum / measured : 1.0,
                    "words-skipped", G_TYPE_UINT64, stats.words_skipped, "words-repeated", G_TYPE_UINT64,
                    stats.words_repeated, nullptr);
  return structure;
}

// --- the run

qtts::Status ElementProperties::CheckRun() const {
  const qtts::MutexLock lock(mutex_);
  const uint32_t parallel = properties_.text_options.parallel;
  if (parallel == 1 || !properties_.pacing.is_live) return qtts::Status::Ok();
  return qtts::Status::InvalidArgument("parallel=" + std::to_string(parallel) +
                                       " makes speech before its time, and is-live=true speaks in time: set parallel=1 "
                                       "or is-live=false.");
}

void ElementProperties::BeginRun() {
  {
    const qtts::MutexLock lock(mutex_);
    std::optional<Utterance> first;
    if (properties_.text && !IsBlank(*properties_.text)) first = {*properties_.text, properties_.utterance};
    speech_.Start(properties_.text_options, std::move(first));
    running_ = true;
    speaker_map_.Restart();
    underruns_ = 0;
  }
  WarnOfMarkup();
}

void ElementProperties::EndRun() {
  {
    const qtts::MutexLock lock(mutex_);
    running_ = false;
  }
  SetVoice(nullptr);
}

bool ElementProperties::CanSpeakAgain() const {
  const qtts::MutexLock lock(mutex_);
  return running_ && properties_.text && !IsBlank(*properties_.text) && !properties_.pacing.is_live;
}

void ElementProperties::SpeakAgain() {
  const qtts::MutexLock lock(mutex_);
  if (properties_.text) speech_.intake().Offer({*properties_.text, properties_.utterance});
}

// --- values

void ElementProperties::Refresh(PacingSnapshot* snapshot) const {
  if (snapshot->version == version_) return;
  const qtts::MutexLock lock(mutex_);
  *snapshot = {properties_.pacing, version_};
}

Pacing ElementProperties::pacing() const {
  const qtts::MutexLock lock(mutex_);
  return properties_.pacing;
}

Settings ElementProperties::utterance() const {
  const qtts::MutexLock lock(mutex_);
  return properties_.utterance;
}

Segmentation ElementProperties::segmentation() const {
  const qtts::MutexLock lock(mutex_);
  return properties_.text_options.segmentation;
}

qtts::Precision ElementProperties::precision() const {
  const qtts::MutexLock lock(mutex_);
  return properties_.engine.precision;
}

qtts::EngineOptions ElementProperties::engine() const {
  qtts::EngineOptions options;
  {
    const qtts::MutexLock lock(mutex_);
    options = properties_.engine;
  }
  if (options.model_path.empty()) options.model_path = qtts::BundledVoicePath();
  return options;
}

// --- settings over the properties

qtts::Status ElementProperties::Override(const GstStructure* overrides, Settings* settings) const {
  std::string error;
  if (!ApplyOverrides(G_OBJECT_GET_CLASS(element_), overrides, settings, &error)) {
    return qtts::Status::InvalidArgument(error);
  }
  return Check(*settings);
}

qtts::Status ElementProperties::OverridePad(const GstStructure* overrides, Settings* settings) const {
  {
    const qtts::MutexLock lock(mutex_);
    *settings = properties_.utterance;
    std::string error;
    if (!ApplyOverrides(G_OBJECT_GET_CLASS(element_), overrides, settings, &error)) {
      return qtts::Status::InvalidArgument(error);
    }
    ApplyTranscriptVoice(settings);
  }
  return Check(*settings);
}

qtts::Status ElementProperties::Check(const Settings& settings) const {
  const std::optional<qtts::ModelInfo> model = model_.info();
  return model ? CheckSettings(settings, *model) : CheckSettings(settings);
}

uint64_t ElementProperties::Speak(const gchar* text, const GstStructure* params) {
  Settings settings = utterance();
  const qtts::Status status = Override(params, &settings);
  if (!status.ok()) {
    GST_ELEMENT_WARNING(element_, RESOURCE, SETTINGS, ("%s", status.message().c_str()), ("speak refuses its settings"));
    return 0;
  }
  if (text == nullptr || IsBlank(RepairUtf8(text))) {
    GST_WARNING_OBJECT(element_, "speak: there is no text");
    return 0;
  }
  guint64 id = 0;
  const Intake::Accept accept = speech_.intake().Offer({text, settings}, &id);
  WarnOfMarkup();
  switch (accept) {
    case Intake::Accept::kAccepted:
      GST_DEBUG_OBJECT(element_, "utterance %" G_GUINT64_FORMAT ": queued '%s'", id, text);
      break;
    case Intake::Accept::kFull:
      GST_ELEMENT_WARNING(element_, RESOURCE, BUSY,
                          ("Too much text is waiting to be spoken; the last one is dropped. Speak more slowly."),
                          ("speak found the queue full"));
      break;
    case Intake::Accept::kFlushing:
      GST_WARNING_OBJECT(element_, "speak: the element is below PAUSED, or flushing");
      break;
    case Intake::Accept::kEnded:
      GST_WARNING_OBJECT(element_, "speak: the end of the stream was sent");
      break;
  }
  return id;
}

void ElementProperties::SetVoice(GstStructure* voice) {
  GstStructure* transcript = nullptr;
  {
    const qtts::MutexLock lock(mutex_);
    if (voice == nullptr) std::swap(transcript, transcript_voice_);
    std::swap(voice, voice_);
  }
  if (voice != nullptr) gst_structure_free(voice);
  if (transcript != nullptr) gst_structure_free(transcript);
}

bool ElementProperties::maps_speakers() const {
  const qtts::MutexLock lock(mutex_);
  return properties_.speaker_map != nullptr;
}

qtts::Status ElementProperties::SetTranscriptSpeaker(const gchar* name) {
  const std::optional<qtts::ModelInfo> model = model_.info();
  std::unique_ptr<GstStructure, void (*)(GstStructure*)> voice(nullptr, gst_structure_free);
  Settings settings;
  {
    const qtts::MutexLock lock(mutex_);
    const auto* map = static_cast<const GstStructure*>(properties_.speaker_map.get());
    if (map != nullptr && name != nullptr) {
      voice.reset(speaker_map_.SettingsOf(map, name, model ? model->speakers : std::vector<std::string>()));
    }
    settings = properties_.utterance;
    std::string error;  // none: it was tried when the event came
    ApplyOverrides(G_OBJECT_GET_CLASS(element_), voice_, &settings, &error);
  }
  // Without a voice of the map there is nothing of the event's to check: a text says what is wrong with its settings.
  qtts::Status status = voice != nullptr ? Override(voice.get(), &settings) : qtts::Status::Ok();
  GstStructure* old = status.ok() ? voice.release() : nullptr;
  {
    const qtts::MutexLock lock(mutex_);
    std::swap(old, transcript_voice_);
  }
  if (old != nullptr) gst_structure_free(old);
  if (status.ok() || name == nullptr) return status;
  return {status.code(), "\"speaker-map\" for the speaker \"" + RepairUtf8(name) + "\": " + status.message()};
}

Settings ElementProperties::PadSettings() const {
  const qtts::MutexLock lock(mutex_);
  Settings settings = properties_.utterance;
  std::string error;  // none: it was tried when the event came
  ApplyOverrides(G_OBJECT_GET_CLASS(element_), voice_, &settings, &error);
  ApplyTranscriptVoice(&settings);
  return settings;
}

// Applies the speaker's voice, with the mutex held. It is that of the map: without a map there is none.
void ElementProperties::ApplyTranscriptVoice(Settings* settings) const {
  std::string error;  // none: it was tried when the event came
  if (properties_.speaker_map == nullptr) return;
  ApplyOverrides(G_OBJECT_GET_CLASS(element_), transcript_voice_, settings, &error);
}

}  // namespace gstqtts
