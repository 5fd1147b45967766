// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_CONTROL_H_
#define GST_QTTS_CONTROL_H_

#include <gst/base/gstbasesrc.h>
#include <gst/gst.h>

#include <atomic>

#include "gstqttsclock.h"
#include "gstqttsinput.h"
#include "gstqttsoutput.h"
#include "gstqttsproperties.h"
#include "gstqttsspeech.h"

namespace gstqtts {

// Requests to the running element by events and signals: to interrupt, to flush, to seek, to end. Thread-safe, as
// events come from any thread.
class Control {
 public:
  // `base` is the class above the element's; the rest outlives this.
  Control(GstBaseSrc* element, GstElementClass* base, Speech& speech, LiveClock& clock, ElementProperties& properties,
          Input& input, Output& output);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Stops speaking. Returns the number of frames of the interrupted utterance that left the element.
  guint64 Interrupt();

  // Handles an event that is sent to the element. Takes it.
  gboolean SendEvent(GstEvent* event);
  // Handles an event that comes upstream through the src pad or a text pad. A seek that reaches several of them, as
  // that of a pipeline does, is made once. Returns false if that is left to the base class.
  bool TakeUpstreamEvent(GstEvent* event, gboolean* result);

  // Returns true if the current text can be spoken again. Speech is not stored: without a sink pad the property `text`
  // can be spoken again, from its beginning, and that is all that can be sought. The base class does the rest: flush or
  // none, stop, segment.
  bool CanSpeakAgain();
  // Begins again if the base class calls do_seek() for a seek, and not for the start of the element.
  void DoSeek();
  // Answers the seeking query; with a sink pad upstream does. Without one the range has no length.
  void AnswerSeeking(GstQuery* query);

  // Returns true if a flush, a stop or an end-of-stream wants create() to return. A call of unlock_stop() from a pause
  // may have overridden its unlock(), so each registers here before it calls unlock().
  bool IsUnlocked() const;
  // Sends the application's own end-of-stream, if there is one: the text is over.
  void TextEnded();
  // Drops the end-of-stream that waits for the utterance to be over.
  void DropEndOfStream() { KeepEndOfStream(nullptr); }

 private:
  gboolean SendToBase(GstEvent* event);
  gboolean FlushStop(GstEvent* event);
  gboolean Seek(GstEvent* event);
  gboolean EndByApplication(GstEvent* event);
  gboolean EndNow(GstEvent* event);
  void KeepEndOfStream(GstEvent* event);

  GstBaseSrc* const element_;
  GstElementClass* const base_;
  Speech& speech_;
  LiveClock& clock_;
  ElementProperties& properties_;
  Input& input_;
  Output& output_;
  // Events being passed to the base class, which calls unlock() for them while the src pad is not flushing.
  std::atomic<int> unlocking_events_ = 0;
  std::atomic<guint32> last_seek_ = GST_SEQNUM_INVALID;  // sequence number of the last seek that was made
  std::atomic<GstEvent*> end_of_stream_ = nullptr;       // of the application, for when the utterance is over
};

}  // namespace gstqtts

#endif  // GST_QTTS_CONTROL_H_
