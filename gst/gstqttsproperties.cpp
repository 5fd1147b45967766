// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsproperties.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "gstqttsguard.h"
#include "gstqttspresets.h"
#include "gstqttspropertytable.h"

using gstqtts::IdleMode;
using gstqtts::Intake;
using gstqtts::Player;
using gstqtts::Speech;

#define GST_CAT_DEFAULT gst_qtts_src_debug

static void gst_qtts_src_take_string(GValue* value, const std::string& string) {
  g_value_set_string(value, string.empty() ? nullptr : string.c_str());
}

static void gst_qtts_src_take_array(GValue* value, const std::vector<std::string>& strings) {
  for (const std::string& string : strings) {
    GValue item = G_VALUE_INIT;
    g_value_init(&item, G_TYPE_STRING);
    g_value_set_string(&item, string.c_str());
    gst_value_array_append_and_take_value(value, &item);
  }
}

static void gst_qtts_src_set_text(GstQttsSrc* self, const gchar* text) {
  GstQttsSrcPrivate* priv = self->priv;
  Intake::Accept accept = Intake::Accept::kAccepted;
  bool offered = false;
  {
    const std::lock_guard lock(priv->lock);
    priv->properties.text = text != nullptr ? std::optional<std::string>(text) : std::nullopt;
    offered = priv->running && priv->properties.text && !gstqtts::IsBlank(*priv->properties.text);
    if (offered) accept = priv->speech.intake().Offer({*priv->properties.text, priv->properties.utterance});
  }
  if (!offered) return;
  switch (accept) {
    case Intake::Accept::kAccepted:
      GST_DEBUG_OBJECT(self, "queued '%s'", text);
      break;
    case Intake::Accept::kFull:
      GST_ELEMENT_WARNING(self, RESOURCE, BUSY,
                          ("Too much text is waiting to be spoken; the last one is dropped. Set texts more slowly."),
                          (nullptr));
      break;
    case Intake::Accept::kFlushing:
    case Intake::Accept::kEnded:
      GST_INFO_OBJECT(self, "this text comes after the end of the stream or during a flush and is not spoken");
      break;
  }
}

void gst_qtts_src_speak_property(GstQttsSrc* self) {
  const std::lock_guard lock(self->priv->lock);
  if (self->priv->properties.text)
    self->priv->speech.intake().Offer({*self->priv->properties.text, self->priv->properties.utterance});
}

static void gst_qtts_src_tell_latency(GstQttsSrc* self) {
  if (gst_base_src_is_live(GST_BASE_SRC(self))) {
    gst_element_post_message(GST_ELEMENT(self), gst_message_new_latency(GST_OBJECT(self)));
  }
}

IdleMode gst_qtts_src_get_idle_mode(GstQttsSrc* self) {
  const std::lock_guard lock(self->priv->lock);
  const IdleMode mode = self->priv->properties.pacing.idle_mode;
  if (mode != IdleMode::kAuto) return mode;
  return gst_base_src_is_live(GST_BASE_SRC(self)) ? IdleMode::kSilence : IdleMode::kEos;
}

static void gst_qtts_src_update_idle_mode(GstQttsSrc* self) {
  switch (gst_qtts_src_get_idle_mode(self)) {
    case IdleMode::kSilence:
      // When live, the alarm of each piece of silence tells in its place.
      self->priv->speech.player().SetIdle(gst_base_src_is_live(GST_BASE_SRC(self)) ? Player::Idle::kWait
                                                                                   : Player::Idle::kTell);
      break;
    case IdleMode::kWait:
      self->priv->speech.player().SetIdle(Player::Idle::kWait);
      break;
    case IdleMode::kEos:
    case IdleMode::kAuto:
      self->priv->speech.player().SetIdle(Player::Idle::kEnd);
      break;
  }
  self->priv->wake();  // a wait that began in the old mode
}

static void gst_qtts_src_set_live(GstQttsSrc* self, gboolean live) {
  bool running = false;
  {
    const std::lock_guard lock(self->priv->lock);
    running = self->priv->running;
  }
  if (live == gst_base_src_is_live(GST_BASE_SRC(self))) return;
  if (running) {
    GST_ELEMENT_WARNING(
        self, RESOURCE, SETTINGS,
        ("is-live=%s is refused while the element runs. Set it in NULL or READY.", live ? "true" : "false"), (nullptr));
    return;
  }
  gst_base_src_set_live(GST_BASE_SRC(self), live);
  gst_qtts_src_update_idle_mode(self);
}

static void gst_qtts_src_set_property(GObject* object, guint prop_id, const GValue* value, GParamSpec* /*pspec*/) {
  GstQttsSrc* self = GST_QTTS_SRC(object);
  GstQttsSrcPrivate* priv = self->priv;
  const gstqtts::Property& property = gstqtts::PropertyTable()[prop_id - 1];

  if (property.effect == gstqtts::Effect::kSpeak) {
    gst_qtts_src_set_text(self, g_value_get_string(value));
    return;
  }
  if (property.effect == gstqtts::Effect::kGoLive) {
    gst_qtts_src_set_live(self, g_value_get_boolean(value));
    return;
  }
  bool changed = false;
  {
    const std::lock_guard lock(priv->lock);
    changed = property.set(value, &priv->properties);
    if (property.effect == gstqtts::Effect::kBoundQueue) {
      priv->speech.intake().SetMaxQueued(priv->properties.text_options.max_queued);
    }
  }
  if (property.effect == gstqtts::Effect::kIdleMode) gst_qtts_src_update_idle_mode(self);
  if (property.effect == gstqtts::Effect::kTellLatency && changed) gst_qtts_src_tell_latency(self);
}

// With the lock held.
static GstStructure* gst_qtts_src_new_stats(const GstQttsSrcPrivate* priv) {
  const Speech::Stats stats = priv->speech.stats();
  const bool spoke = stats.first_frames > 0;
  const auto nanoseconds = [spoke](std::chrono::nanoseconds duration) {
    return spoke ? static_cast<guint64>(duration.count()) : GST_CLOCK_TIME_NONE;
  };
  const auto mean = stats.first_frame_latency_sum / std::max<int64_t>(static_cast<int64_t>(stats.first_frames), 1);
  const double waited = std::chrono::duration<double>(stats.waited).count();
  return gst_structure_new(
      "application/x-qttssrc-stats", "model", G_TYPE_STRING, priv->model ? priv->model->path.c_str() : "", "device",
      G_TYPE_STRING, priv->device_name.c_str(), "utterances", G_TYPE_UINT64, stats.utterances, "interrupted",
      G_TYPE_UINT64, stats.interrupted, "dropped", G_TYPE_UINT64, stats.dropped, "frames", G_TYPE_UINT64, stats.frames,
      "seed", G_TYPE_INT64, stats.seed ? static_cast<gint64>(*stats.seed) : -1, "first-frame-latency", G_TYPE_UINT64,
      nanoseconds(stats.first_frame_latency_last), "first-frame-latency-mean", G_TYPE_UINT64, nanoseconds(mean),
      "first-frame-latency-max", G_TYPE_UINT64, nanoseconds(stats.first_frame_latency_max), "real-time-factor",
      G_TYPE_DOUBLE, stats.sound_seconds > 0 ? waited / stats.sound_seconds : 0.0, "queued-utterances", G_TYPE_UINT64,
      static_cast<guint64>(stats.queued_utterances), "queued-chars", G_TYPE_UINT64,
      static_cast<guint64>(stats.queued_chars), "upstream-waits", G_TYPE_BOOLEAN,
      static_cast<gboolean>(stats.upstream_waits), "underruns", G_TYPE_UINT64, priv->underruns, "trimmed",
      G_TYPE_UINT64, gstqtts::SampleTime(priv->trimmed_samples, SAMPLE_RATE), "slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.slots), "free-slots", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.free_slots), "waiting-utterances", G_TYPE_UINT64,
      static_cast<guint64>(stats.occupancy.waiting), nullptr);
}

static void gst_qtts_src_get_property(GObject* object, guint prop_id, GValue* value, GParamSpec* /*pspec*/) {
  GstQttsSrcPrivate* priv = GST_QTTS_SRC(object)->priv;
  const gstqtts::Property& property = gstqtts::PropertyTable()[prop_id - 1];
  const std::string_view name = property.name;

  const std::lock_guard lock(priv->lock);
  if (property.get) {
    property.get(priv->properties, value);
    const bool unset = G_VALUE_HOLDS_STRING(value) && g_value_get_string(value) == nullptr;
    if (property.of_utterance && unset && gst_qtts_src_saves_preset()) g_value_set_static_string(value, "");
  } else if (name == "is-live") {
    g_value_set_boolean(value, gst_base_src_is_live(GST_BASE_SRC(object)));
  } else if (name == "speakers") {
    if (priv->model) gst_qtts_src_take_array(value, priv->model->speakers);
  } else if (name == "languages") {
    if (priv->model) gst_qtts_src_take_array(value, priv->model->languages);
  } else if (name == "stats") {
    g_value_take_boxed(value, gst_qtts_src_new_stats(priv));
  } else if (name == "current-text") {
    gst_qtts_src_take_string(value, priv->speech.player().current_text());
  }
}

static GParamFlags gst_qtts_src_get_flags(gstqtts::Change change) {
  switch (change) {
    case gstqtts::Change::kReady:
      return static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_READY);
    case gstqtts::Change::kPlaying:
      return static_cast<GParamFlags>(G_PARAM_READWRITE | G_PARAM_STATIC_STRINGS | GST_PARAM_MUTABLE_PLAYING);
    case gstqtts::Change::kReadOnly:
      break;
  }
  return static_cast<GParamFlags>(G_PARAM_READABLE | G_PARAM_STATIC_STRINGS);
}

void gst_qtts_src_install_properties(GObjectClass* klass) {
  klass->set_property = gstqtts::Guarded<gst_qtts_src_set_property>::Call;
  klass->get_property = gstqtts::Guarded<gst_qtts_src_get_property>::Call;
  guint id = 0;
  for (const gstqtts::Property& property : gstqtts::PropertyTable()) {
    g_object_class_install_property(klass, ++id, property.new_spec(gst_qtts_src_get_flags(property.change)));
  }
  for (const GType type : gstqtts::PropertyEnums()) {
    gst_type_mark_as_plugin_api(type, static_cast<GstPluginAPIFlags>(0));
  }
}
