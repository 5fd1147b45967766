// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_TEXT_PAD_H_
#define GST_QTTS_TEXT_PAD_H_

#include <gst/gst.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "gstqttscues.h"
#include "gstqttswordtrack.h"
#include "qtts/mutex.h"

// A pad `text_%u`: the words that are spoken, as a sparse stream of text on the clock of the sound.
#define GST_TYPE_QTTS_TEXT_PAD (gst_qtts_text_pad_get_type())
G_DECLARE_FINAL_TYPE(GstQttsTextPad, gst_qtts_text_pad, GST, QTTS_TEXT_PAD, GstPad)

namespace gstqtts {

// The stream of a text pad. It mirrors the stream of sound: its group, segments, flushes and end.
//
// Text is pushed by a task of the pad, so that a consumer that blocks, such as textoverlay, which waits for the video,
// or one that fails never stops the sound. The number of waiting buffers is bounded.
//
// Owned by its pad. The thread that streams or flushes the sound calls the functions of the second group, the pad's
// activation the first; all are thread-safe.
class TextStream {
 public:
  // Beyond so many waiting buffers and events, text is dropped: some hours of speech.
  static constexpr size_t kMaxWaiting = 65536;

  explicit TextStream(GstPad* pad) : pad_(pad) {}
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  // --- the pad

  bool SetActive(bool active) QTTS_EXCLUDES(mutex_);
  // From the next text on.
  void SetGranularity(Granularity granularity) QTTS_EXCLUDES(mutex_);
  Granularity granularity() const QTTS_EXCLUDES(mutex_);
  // True while downstream holds what the task has pushed.
  bool pushing() const QTTS_EXCLUDES(mutex_);

  // --- the sound

  // A run of the element begins or ends: takes nothing more and forgets all.
  void SetRunning(bool running) QTTS_EXCLUDES(mutex_);
  // An event of the stream of sound, which keeps its reference. Those that were seen already have no effect.
  void Mirror(GstEvent* event) QTTS_EXCLUDES(mutex_);
  // Words were told; until `known` all are.
  void Take(const Told& told, GstClockTime known) QTTS_EXCLUDES(mutex_);
  // Ends the push that goes on, and drops what waits. Until EndFlush() nothing is taken.
  void BeginFlush(GstEvent* event) QTTS_EXCLUDES(mutex_);
  void EndFlush(GstEvent* event) QTTS_EXCLUDES(mutex_);

 private:
  static void Run(gpointer stream);
  void PushNext() QTTS_EXCLUDES(mutex_);
  void Push(GstMiniObject* item) QTTS_EXCLUDES(mutex_);
  void Queue(GstMiniObject* item) QTTS_REQUIRES(mutex_);
  void QueueTexts(const std::vector<TimedText>& texts) QTTS_REQUIRES(mutex_);
  void QueueGap(GstClockTime until) QTTS_REQUIRES(mutex_);
  void QueueStart(GstEvent* stream_start) QTTS_REQUIRES(mutex_);
  void Forget() QTTS_REQUIRES(mutex_);
  void ForgetSegment() QTTS_REQUIRES(mutex_);

  GstPad* const pad_;

  mutable qtts::Mutex mutex_;
  qtts::Condition changed_;
  bool active_ QTTS_GUARDED_BY(mutex_) = false;    // the pad
  bool running_ QTTS_GUARDED_BY(mutex_) = false;   // the element
  bool flushing_ QTTS_GUARDED_BY(mutex_) = false;  // the stream
  bool pushing_ QTTS_GUARDED_BY(mutex_) = false;
  bool ended_ QTTS_GUARDED_BY(mutex_) = false;    // downstream wants no more
  bool dropped_ QTTS_GUARDED_BY(mutex_) = false;  // a warning about that was logged
  std::deque<GstMiniObject*> waiting_ QTTS_GUARDED_BY(mutex_);

  // The events of the sound that were mirrored last.
  GstEvent* stream_start_ QTTS_GUARDED_BY(mutex_) = nullptr;
  GstEvent* segment_ QTTS_GUARDED_BY(mutex_) = nullptr;
  GstEvent* tags_ QTTS_GUARDED_BY(mutex_) = nullptr;
  bool end_queued_ QTTS_GUARDED_BY(mutex_) = false;
  bool discont_ QTTS_GUARDED_BY(mutex_) = true;
  GstClockTime earliest_ QTTS_GUARDED_BY(mutex_) = 0;  // start of the next buffer at the earliest
  GstClockTime covered_ QTTS_GUARDED_BY(mutex_) = 0;   // end of what buffers and gaps have covered
  Granularity granularity_ QTTS_GUARDED_BY(mutex_) = Granularity::kWord;
  std::optional<CueMaker> cues_ QTTS_GUARDED_BY(mutex_);
};

// The stream of a pad of GST_TYPE_QTTS_TEXT_PAD.
TextStream& StreamOf(GstPad* pad);

}  // namespace gstqtts

#endif  // GST_QTTS_TEXT_PAD_H_
