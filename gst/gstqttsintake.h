// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_INTAKE_H_
#define GST_QTTS_INTAKE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttsmonitor.h"
#include "gstqttsreports.h"
#include "gstqttssettings.h"
#include "gstqttsspoken.h"
#include "gstqttsspokentext.h"
#include "gstqttstext.h"
#include "qtts/markup.h"
#include "qtts/mutex.h"
#include "qtts/segmenter.h"

namespace gstqtts {

// Returns true if the text so far has nothing to say, and its settings do not give it to the model nevertheless.
bool HasNothingToSay(const Utterance& utterance);

// Properties of a chunk of text beside its settings.
struct ChunkNotes {
  std::shared_ptr<void> metas = {};  // for the first frame of its speech
  bool whole = false;                // it ends a sentence, whatever its text looks like
};

// Accepts text from the application and the sink pad, makes numbered utterances of it and queues them for the Player.
//
// Text of the sink pad comes in chunks. Depending on the segmentation, a chunk is an utterance, a piece of text that is
// split into sentences here, or text appended to the newest utterance, in the queue or while it is spoken. A sentence
// or a growing utterance ends by a call, an event, or the time-out of TextOptions.
//
// Owned by the Speech. The first group of functions is thread-safe and takes the monitor's mutex; the second is for
// Speech and Player, which hold it.
class Intake {
 public:
  enum class Accept {
    kAccepted,
    kFull,      // Offer() only
    kFlushing,  // not running, flushing, or the pad is being released
    kEnded,     // the end of the text was handed out before, or EndAfterCurrent() or Fail() was called
  };

  // `spoken`: the current utterance, if any.
  Intake(Monitor& monitor, Reports& reports, std::optional<SpokenUtterance>& spoken)
      : monitor_(monitor), reports_(reports), spoken_(spoken) {}
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // --- by any thread

  // Changes the bound of the queue, in characters.
  void SetMaxQueued(uint64_t characters) QTTS_EXCLUDES(monitor_held);
  // Queues an utterance without waiting. `id`, when given, receives the number by which reports name it:
  // 1, 2, … over the life of the Intake.
  // A document with markup is several utterances, of which reports tell as of one.
  Accept Offer(Utterance utterance, uint64_t* id = nullptr) QTTS_EXCLUDES(monitor_held);
  // Accepts a chunk of text from the sink pad: an utterance, or a part of one or of several, depending on the run's
  // options. Waits for space in the queue; an interrupt during the wait drops the rest of the chunk, which counts as
  // accepted. Blank text is accepted and dropped. `repaired` receives the number of ill-formed UTF-8 sequences. `cue`:
  // when the chunk is to be heard; used if each chunk is an utterance.
  Accept PushChunk(std::string_view chunk, const Settings& settings, int* repaired, const Cue& cue = {},
                   const ChunkNotes& notes = {});
  // Lets no text from the sink pad be heard before `until` (running time).
  void PushGap(uint64_t until) QTTS_EXCLUDES(monitor_held);
  // Queues `event` and returns it as kEvent in its turn: after the text before it, and after the sentence or growing
  // utterance that this text has begun. Waits for space like PushChunk(). Returns false after a flush, the end or an
  // error. An interrupt keeps the event.
  bool PushEvent(std::shared_ptr<void> event) QTTS_EXCLUDES(monitor_held);
  // Ends the sentence or the growing utterance that the chunks so far have begun, if any.
  void EndUtterance() QTTS_EXCLUDES(monitor_held);
  // Ends it and waits until everything is spoken. Returns false after a flush, a stop, an error or the release of the
  // pad.
  bool Drain() QTTS_EXCLUDES(monitor_held);
  // Ends the chunks. Drops the bytes of an incomplete character.
  void EndText() QTTS_EXCLUDES(monitor_held);
  // Returns the warnings about the markup of texts since the last call.
  std::vector<std::string> TakeWarnings() QTTS_EXCLUDES(monitor_held);
  // Returns true if the chunks so far end inside a character.
  bool InMidCharacter() const QTTS_EXCLUDES(monitor_held);
  // Begins a segment. `pieces`: the following chunks are parts of a text, which end anywhere. Segmentation::kAuto then
  // splits by sentence.
  void BeginSegment(bool pieces) QTTS_EXCLUDES(monitor_held);
  // Takes more chunks after EndText(), if that has not been handed out as kEndOfText yet.
  void BeginText() QTTS_EXCLUDES(monitor_held);
  // Sets whether the sink pad exists: while it does, only EndText() ends the text.
  void SetPad(bool exists) QTTS_EXCLUDES(monitor_held);

  // --- with the monitor's mutex held

  // Begins a run with `first`, if any, as its first utterance.
  void Start(const TextOptions& options, std::optional<Utterance> first) QTTS_REQUIRES(monitor_held);
  // Accepts more chunks, after a flush.
  void Resume() QTTS_REQUIRES(monitor_held) { text_ended_ = false; }
  // Drops the bytes of an incomplete character.
  void DropMidCharacter() QTTS_REQUIRES(monitor_held) { joiner_ = Utf8Joiner(); }
  // Drops queued text and reports it. Keeps events unless `with_events`.
  void DropQueue(bool with_events) QTTS_REQUIRES(monitor_held);
  // Ends the sentence or the growing utterance that has begun, and with it a document with markup.
  void CloseUtterance() QTTS_REQUIRES(monitor_held);
  // Does the same because no more text has arrived: a document goes on.
  void CloseLateUtterance() QTTS_REQUIRES(monitor_held);
  // Returns the time at which the streaming thread must call CloseLateUtterance() if no more text arrives.
  std::optional<Monitor::Clock::time_point> UtteranceDeadline() const QTTS_REQUIRES(monitor_held);

  // Functions of the queue; Next() and Pop() require that it is not empty:
  bool empty() const QTTS_REQUIRES(monitor_held) { return queue_.empty(); }
  const Utterance& Next() const QTTS_REQUIRES(monitor_held) { return queue_.front(); }
  Utterance Pop() QTTS_REQUIRES(monitor_held);
  // Returns a queued utterance: the one with this id, the first one with a larger id; null if there is none.
  const Utterance* Find(uint64_t id) QTTS_REQUIRES(monitor_held) { return queue_.Find(id); }
  const Utterance* FindAfter(uint64_t id) const QTTS_REQUIRES(monitor_held) { return queue_.FindAfter(id); }
  // Returns true if the next utterance is growing and has no sayable text yet. Its first word or its end decides
  // whether it is spoken.
  bool AwaitsWords() const QTTS_REQUIRES(monitor_held);
  // Returns true if no text is queued and none can come. `wait_for_application`: the application may still send text.
  bool TextIsOver(bool wait_for_application) const QTTS_REQUIRES(monitor_held);
  // Drops the text that the current utterance, if any, would still have received: it has failed.
  void NoteFailure() QTTS_REQUIRES(monitor_held) { growing_failed_ = spoken_.Is(growing_id_); }
  void ForgetFailure() QTTS_REQUIRES(monitor_held) { growing_failed_ = false; }

  // Counts of the run, and what waits now.
  struct Counts {
    uint64_t dropped = 0;  // utterances that were accepted but never began
    size_t queued_utterances = 0;
    size_t queued_chars = 0;
    bool upstream_waits = false;  // PushChunk() waits for room
  };
  Counts counts() const QTTS_REQUIRES(monitor_held) {
    return {dropped_, queue_.size(), queue_.characters(), upstream_waits_};
  }

 private:
  // Text of the sink pad of which `taken` bytes have been queued.
  struct Chunk {
    std::string text;
    size_t taken = 0;

    std::string_view rest() const { return std::string_view(text).substr(taken); }
  };

  Segmentation segmentation() const QTTS_REQUIRES(monitor_held);
  bool QueueText(Chunk* chunk) QTTS_REQUIRES(monitor_held);
  bool QueueWhole(Chunk* chunk) QTTS_REQUIRES(monitor_held);
  bool QueueDocument(Chunk* chunk) QTTS_REQUIRES(monitor_held);
  bool ReadDocumentText(Chunk* chunk) QTTS_REQUIRES(monitor_held);
  void BeginDocument(qtts::Markup markup) QTTS_REQUIRES(monitor_held);
  void EndDocument() QTTS_REQUIRES(monitor_held);
  bool QueueParts(bool wait) QTTS_REQUIRES(monitor_held);
  bool QueuePart(qtts::MarkupPart* part, bool wait) QTTS_REQUIRES(monitor_held);
  void EndGrowing() QTTS_REQUIRES(monitor_held);
  void TakeDocumentWarnings(qtts::MarkupSplitter* splitter) QTTS_REQUIRES(monitor_held);
  bool HoldsText() const QTTS_REQUIRES(monitor_held);
  qtts::Segmenter::Options SentenceOptions() const QTTS_REQUIRES(monitor_held);
  bool QueueSentences() QTTS_REQUIRES(monitor_held);
  bool GrowUtterance(Chunk* chunk) QTTS_REQUIRES(monitor_held);
  std::optional<size_t> BeginGrowing(std::string_view line) QTTS_REQUIRES(monitor_held);
  void EnqueueSentence() QTTS_REQUIRES(monitor_held);
  void Enqueue(Utterance utterance) QTTS_REQUIRES(monitor_held);
  uint64_t EnqueueText(std::vector<Utterance> parts) QTTS_REQUIRES(monitor_held);
  void QueueEvents() QTTS_REQUIRES(monitor_held);
  void KeepMetas(const std::shared_ptr<void>& metas) QTTS_REQUIRES(monitor_held);
  void AppendToSentences(std::string_view text) QTTS_REQUIRES(monitor_held);
  void WaitForRoom() QTTS_REQUIRES(monitor_held);

  Monitor& monitor_;
  Reports& reports_;
  SpokenText spoken_;

  bool pad_exists_ QTTS_GUARDED_BY(monitor_held) = false;
  bool text_ended_ QTTS_GUARDED_BY(monitor_held) = false;  // by the upstream of the pad
  uint64_t last_id_ QTTS_GUARDED_BY(monitor_held) = 0;
  TextOptions text_options_ QTTS_GUARDED_BY(monitor_held);
  bool pieces_ QTTS_GUARDED_BY(monitor_held) = false;  // the chunks are pieces of text
  Utf8Joiner joiner_ QTTS_GUARDED_BY(monitor_held);
  qtts::Segmenter segmenter_ QTTS_GUARDED_BY(monitor_held);               // the sentence that has begun
  std::optional<qtts::Sentence> sentence_ QTTS_GUARDED_BY(monitor_held);  // waits for room
  // State of the text of the sink pad: its markup, empty before that is known; its reader if it has markup; the text
  // that may be the beginning of markup; a part that waits for room.
  std::optional<qtts::Markup> pad_markup_ QTTS_GUARDED_BY(monitor_held);
  std::optional<qtts::MarkupSplitter> document_ QTTS_GUARDED_BY(monitor_held);
  std::string undecided_ QTTS_GUARDED_BY(monitor_held);
  std::optional<qtts::MarkupPart> part_ QTTS_GUARDED_BY(monitor_held);
  std::vector<std::string> warnings_ QTTS_GUARDED_BY(monitor_held);  // for the user
  std::vector<std::shared_ptr<void>> events_
      QTTS_GUARDED_BY(monitor_held);                           // wait for the end of the sentence that has begun
  uint64_t growing_id_ QTTS_GUARDED_BY(monitor_held) = 0;      // the utterance that grows, if it is still there
  bool growing_failed_ QTTS_GUARDED_BY(monitor_held) = false;  // it failed: the rest of its text is dropped
  Settings pad_settings_ QTTS_GUARDED_BY(monitor_held);        // of the last chunk
  Cue pad_cue_ QTTS_GUARDED_BY(monitor_held);                  // of the last chunk
  // Metas of chunks whose text no utterance has yet.
  std::vector<std::shared_ptr<void>> pad_metas_ QTTS_GUARDED_BY(monitor_held);
  // Metas of text that the segmenter has, and the place of their first word in it.
  struct PlacedMetas {
    size_t begin = 0;
    std::shared_ptr<void> metas;
  };
  std::deque<PlacedMetas> sentence_metas_ QTTS_GUARDED_BY(monitor_held);
  size_t segmented_ QTTS_GUARDED_BY(monitor_held) = 0;                  // bytes that were given to the segmenter
  Monitor::Clock::time_point last_text_ QTTS_GUARDED_BY(monitor_held);  // when it came
  uint64_t pad_stream_ QTTS_GUARDED_BY(monitor_held) = 1;               // number of the text that the chunks are of
  TextQueue queue_ QTTS_GUARDED_BY(monitor_held);
  bool upstream_waits_ QTTS_GUARDED_BY(monitor_held) = false;
  uint64_t dropped_ QTTS_GUARDED_BY(monitor_held) = 0;
};

}  // namespace gstqtts

#endif  // GST_QTTS_INTAKE_H_
