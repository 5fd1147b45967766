// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PROPERTIES_H_
#define GST_QTTS_PROPERTIES_H_

#include <gst/base/gstbasesrc.h>
#include <gst/gst.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "gstqttsmodel.h"
#include "gstqttssettings.h"
#include "gstqttsspeakermap.h"
#include "gstqttsspeech.h"
#include "qtts/mutex.h"
#include "qtts/status.h"

namespace gstqtts {

struct Property;

// A copy of the settings that the streaming thread needs, with its version.
struct PacingSnapshot {
  Pacing pacing;
  uint64_t version = 0;
};

// The settings of the element: the values of its properties (gstqttspropertytable.h), the immediate effect of a change,
// and the settings that a qtts/set-voice event has put over them.
//
// Owned by the element. Thread-safe. Its mutex is the first in the order of gstqttsmonitor.h, and is not held while
// posting or notifying.
class ElementProperties {
 public:
  ElementProperties(GstBaseSrc* element, Speech& speech, const ElementModel& model);
  ~ElementProperties();
  ElementProperties(const ElementProperties&) = delete;
  ElementProperties& operator=(const ElementProperties&) = delete;

  // Installs all properties in the class. Set() and Get() use their numbers.
  static void Install(GObjectClass* klass);
  void Set(guint number, const GValue* value);
  void Get(guint number, GValue* value) const;

  // --- the run

  // Checks the settings for a run.
  qtts::Status CheckRun() const;
  // Begins a run: `text` is its first utterance, and texts set later are queued.
  void BeginRun();
  void EndRun();
  // Returns true if a run can restart with its text.
  bool CanSpeakAgain() const;
  // Queues `text` again.
  void SpeakAgain();

  // --- values

  // Copies the settings changed since `snapshot`. Takes no lock if there are none.
  void Refresh(PacingSnapshot* snapshot) const;
  Pacing pacing() const;
  Settings utterance() const;
  Segmentation segmentation() const;
  qtts::EngineOptions engine() const;
  qtts::Precision precision() const;

  // --- settings over the properties

  // Applies fields of speak or of "speaker-map" to `settings` and checks the result without the engine. The error
  // kInvalidArgument names the wrong field.
  qtts::Status Override(const GstStructure* overrides, Settings* settings) const;
  // Does the same for fields of qtts/set-voice: `settings` receives those that text of the sink pad would have with
  // them, the voice of the transcript's speaker among them.
  qtts::Status OverridePad(const GstStructure* overrides, Settings* settings) const;
  // Queues an utterance with its own settings, for the signal. Returns its number; 0 if it is refused.
  uint64_t Speak(const gchar* text, const GstStructure* params);
  // Sets the fields of a qtts/set-voice event for the following text of the sink pad. Takes ownership; null: none.
  // They are valid until the next such event, a stream-start, a flush, the release of the pad or READY.
  void SetVoice(GstStructure* voice);
  // Uses the voice that "speaker-map" gives to a speaker of the transcript for the following text of the sink pad;
  // null: nobody known. Valid as long as a SetVoice() and as that property is set. kInvalidArgument names the wrong
  // field of the map; the voice is then that of the properties.
  qtts::Status SetTranscriptSpeaker(const gchar* name);
  // Returns true if "speaker-map" is set.
  bool maps_speakers() const;
  // Returns the current settings for text of the sink pad.
  Settings PadSettings() const;
  // Posts what was found about the markup of texts.
  void WarnOfMarkup() const;

  // Counts of the run, for `stats`:
  uint64_t CountUnderrun() { return ++underruns_; }

 private:
  void SetText(const gchar* text);
  void SetLive(bool live);
  void UpdateIdleMode(const Pacing& pacing);
  GstStructure* NewStats() const;
  qtts::Status Check(const Settings& settings) const;
  void ApplyTranscriptVoice(Settings* settings) const QTTS_REQUIRES(mutex_);

  GstBaseSrc* const element_;
  Speech& speech_;
  const ElementModel& model_;
  const std::function<void()> wake_;

  std::atomic<uint64_t> underruns_ = 0;
  std::atomic<uint64_t> version_ = 1;  // of properties_; written with the mutex held

  mutable qtts::Mutex mutex_;
  Properties properties_ QTTS_GUARDED_BY(mutex_);
  GstStructure* voice_ QTTS_GUARDED_BY(mutex_) = nullptr;
  SpeakerMap speaker_map_ QTTS_GUARDED_BY(mutex_);
  GstStructure* transcript_voice_ QTTS_GUARDED_BY(mutex_) = nullptr;  // over `voice_`
  bool running_ QTTS_GUARDED_BY(mutex_) = false;                      // between BeginRun() and EndRun()
};

}  // namespace gstqtts

#endif  // GST_QTTS_PROPERTIES_H_
