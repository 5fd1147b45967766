// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_OUTPUT_H_
#define GST_QTTS_OUTPUT_H_

#include <gst/audio/audio.h>
#include <gst/base/gstbasesrc.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gstqttsclock.h"
#include "gstqttsinput.h"
#include "gstqttsloudness.h"
#include "gstqttsmodel.h"
#include "gstqttspcm.h"
#include "gstqttsproperties.h"
#include "gstqttsspeech.h"
#include "gstqttstextpads.h"
#include "gstqttstimeline.h"
#include "qtts/mutex.h"
#include "qtts/status.h"

namespace gstqtts {

// The streaming thread: turns the Player's output into buffers of sound and places them on the timeline.
//
// Its settings are a copy (PacingSnapshot), renewed only after the thread has waited, so that each buffer is made with
// one set of settings. Renewing takes a lock only if a property has been set.
//
// Owned by the element. Used by the streaming thread, or while that is stopped. Functions that begin anew are called by
// the thread that changes states and by that of a flush, maybe at once; they take turns.
class Output {
 public:
  Output(GstBaseSrc* element, Speech& speech, LiveClock& clock, ElementProperties& properties,
         const ElementModel& model, const Input& input, TextPads& text_pads);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Returns the next buffer, or the flow return that ends the stream (and the same again on later calls). Since 1.24
  // GstBaseSrc drops the result if a live source was paused meanwhile, and calls again in PLAYING. The same buffer is
  // returned until BufferTaken(), and no sound is lost.
  GstFlowReturn Create(GstBuffer** buffer);
  // Returns true if Create() has ended the stream.
  bool ended() const { return ended_with_ != GST_FLOW_OK; }
  // Tells that the src pad has received the last buffer: its words go to the text pads.
  void BufferTaken();

  void SetFormat(GstAudioFormat format) { format_ = format; }
  // Begins a run.
  void Begin() QTTS_EXCLUDES(reset_mutex_);
  // Ends a run: drops the frame of speech that waits for its time.
  void End() QTTS_EXCLUDES(reset_mutex_);
  // Does the same, and the stream of sound begins anew.
  void Restart() QTTS_EXCLUDES(reset_mutex_);
  // Does the same, and the stream continues with a discontinuity.
  void Break() QTTS_EXCLUDES(reset_mutex_);

 private:
  void DropFrame();
  GstFlowReturn MakeBuffer(GstBuffer** buffer);
  GstFlowReturn NextFrame();
  GstFlowReturn MakeSilence(guint64 samples, GstBuffer** buffer);
  bool PlaceFrame();
  bool FollowClock(GstClockTime* lag);
  bool ClipFrame(std::vector<float>* pcm);
  void ForgetFrame();
  GstClockTime StartOfSpeech();
  guint64 SlotNow();
  bool WaitForTime();
  bool CatchUp();
  GstClockTime grace() const;
  guint64 SamplesLeft() const;
  guint64 NextRunningTime() const;
  void Amplify(std::vector<float>* pcm);
  GstBuffer* NewBuffer(const float* pcm, gsize samples);
  void UpdateTags();
  void NoteSilence();

  GstFlowReturn Fail(const qtts::Status& status, const char* what);
  GstFlowReturn FailWithoutBuffer();
  bool AffectsEveryText(const Player::Output& output) const;
  GstFlowReturn FailUtterance(const Player::Output& output, const char* what);
  GstFlowReturn Finish(const Player::Output& output);
  void WarnOfSettings(const std::string& warning);
  void UtteranceStarted(const Player::Output& output);
  GstFlowReturn UtteranceEnded(const Player::Output& output);
  std::string SpeedAdvice() const;
  void ReportUnderrun(GstClockTimeDiff jitter);

  GstBaseSrc* const element_;
  Speech& speech_;
  LiveClock& clock_;
  ElementProperties& properties_;
  const ElementModel& model_;
  const Input& input_;
  TextPads& text_pads_;
  const std::function<void()> wake_;
  qtts::Mutex reset_mutex_;  // held while the rest begins anew

  PacingSnapshot settings_;
  Timeline timeline_{SAMPLE_RATE};
  std::optional<Player::Output> frame_;                      // a speech frame that waits for its time
  bool placed_ = false;                                      // whether that frame has its place on the timeline
  guint64 silence_due_ = 0;                                  // samples of silence before that frame
  bool in_utterance_ = false;                                // the last buffer was speech of an unfinished utterance
  Cue cue_;                                                  // of the utterance
  bool fit_ = false;                                         // the utterance is to be fitted into its cue
  qtts::SentenceGap before_ = qtts::SentenceGap::kSentence;  // of the utterance
  bool after_break_ = false;                                 // no gap before the utterance
  bool in_break_ = false;                                    // the silence that is due is a break
  double gain_ = 1;                                          // of the utterance's samples
  bool limited_ = false;                                     // the limiter comes behind the gain
  Limiter limiter_{SAMPLE_RATE};
  std::vector<std::shared_ptr<void>> metas_;    // for the next buffer of speech
  GstClockTime shift_ = 0;                      // by which cues are late, for TextTiming::kShift
  std::string language_;                        // tag of the utterance's; empty: unknown
  std::optional<std::string> tagged_language_;  // of the last tags sent
  GstAudioFormat format_ = GST_AUDIO_FORMAT_UNKNOWN;
  std::vector<std::string> warnings_;       // of the last utterance
  GstBuffer* handed_out_ = nullptr;         // by Create(), and not seen on the src pad yet
  Told told_;                               // with that buffer
  bool text_goes_on_ = false;               // more words of an utterance that was heard may be told
  GstClockTime known_ = 0;                  // timestamp before which all words were told
  GstFlowReturn ended_with_ = GST_FLOW_OK;  // flow return with which Create() ended the stream
};

}  // namespace gstqtts

#endif  // GST_QTTS_OUTPUT_H_
