// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_INTAKE_H_
#define GST_QTTS_INTAKE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gstqttsmonitor.h"
#include "gstqttsreports.h"
#include "gstqttssegmenter.h"
#include "gstqttssettings.h"
#include "gstqttsspoken.h"
#include "gstqttstext.h"

namespace gstqtts {

// Takes text, from the application and from the sink pad, makes utterances of it and queues them for the Player. Gives
// them their numbers.
//
// Text of the sink pad comes in chunks. What a chunk is depends on the segmentation: an utterance, a piece of sentences
// that are cut here, or what the newest utterance grows by, in the queue or while it is being spoken. What has begun, a
// sentence or a growing utterance, ends by a call, an event, or the time-out of TextOptions.
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

  // `spoken` is what is being spoken, if anything.
  Intake(Monitor& monitor, Reports& reports, std::optional<SpokenUtterance>& spoken)
      : monitor_(monitor), reports_(reports), spoken_(spoken) {}
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // --- by any thread

  // Changes the bound of the queue, in characters.
  void SetMaxQueued(uint64_t characters);
  // Queues an utterance without waiting. `id`, when given, receives the number by which reports name it:
  // 1, 2, … over the life of the Intake.
  Accept Offer(Utterance utterance, uint64_t* id = nullptr);
  // Takes a chunk of text from the sink pad: an utterance, or a part of one or of several, as the options
  // of the run say. Waits for room; an interrupt meanwhile drops what is left, which counts as accepted. Blank
  // text is accepted and dropped. `repaired` receives the number of ill-formed UTF-8 sequences.
  // `cue` is when the chunk is meant to be heard; it holds where each chunk is an utterance.
  Accept PushChunk(std::string_view chunk, const Settings& settings, int* repaired, const Cue& cue = {});
  // There will be no text from the sink pad that is meant to be heard before `until` (running time).
  void PushGap(uint64_t until);
  // Hands `event` out in its turn, as kEvent: after the text that came before it, and where that has begun a sentence
  // or a growing utterance, after the end of that. Waits for room as PushChunk() does. False if it cannot be, after a
  // flush, the end or an error. An interrupt leaves it.
  bool PushEvent(std::shared_ptr<void> event);
  // Ends the sentence or the growing utterance that the chunks so far have begun, if any.
  void EndUtterance();
  // Ends it, and waits until everything is spoken. False if that cannot be: after a flush, a stop, an
  // error or the release of the pad.
  bool Drain();
  // No more chunks. What a cut character leaves is dropped.
  void EndText();
  // Whether the chunks so far end within a character.
  bool InMidCharacter() const;
  // Whether the chunks that come are `pieces` of a text, which end anywhere: with Segmentation::kAuto they are taken by
  // sentence then.
  void BeginSegment(bool pieces);
  // More chunks after EndText(), if that has not been handed out as kEndOfText yet.
  void BeginText();
  // Whether the sink pad exists: while it does, only EndText() ends the text.
  void SetPad(bool exists);

  // --- with the monitor's mutex held

  // Begins a run with `first`, if any, as its first utterance.
  void Start(const TextOptions& options, std::optional<Utterance> first);
  // More chunks may come, after a flush.
  void Resume() { text_ended_ = false; }
  // Forgets what a cut character has left.
  void DropMidCharacter() { joiner_ = Utf8Joiner(); }
  // Drops the text that waits, and reports it. Events stay, unless `with_events`.
  void DropQueue(bool with_events);
  // Ends the sentence or the growing utterance that has begun.
  void CloseUtterance();
  // When the streaming thread has to call CloseUtterance(), unless more text comes.
  std::optional<Monitor::Clock::time_point> UtteranceDeadline() const;

  // What waits. Next() and Pop() need that something does.
  bool empty() const { return queue_.empty(); }
  const Utterance& Next() const { return queue_.front(); }
  Utterance Pop();
  // Whether the next utterance grows, and there is nothing to say in it so far: whether it will be spoken shows with
  // the first word or at its end.
  bool AwaitsWords() const;
  // Whether no text waits, and none can come. `wait_for_application`: text of the application counts.
  bool TextIsOver(bool wait_for_application) const;
  // The utterance that is being spoken has failed, or no utterance: text that it would have grown by is dropped.
  void NoteFailure() { growing_failed_ = spoken_ && growing_id_ != 0 && growing_id_ == spoken_->utterance.id; }
  void ForgetFailure() { growing_failed_ = false; }

  // Counts of the run, and what waits now.
  struct Counts {
    uint64_t dropped = 0;  // utterances that were accepted but never began
    size_t queued_utterances = 0;
    size_t queued_chars = 0;
    bool upstream_waits = false;  // PushChunk() waits for room
  };
  Counts counts() const { return {dropped_, queue_.size(), queue_.characters(), upstream_waits_}; }

 private:
  // Text of the sink pad of which `taken` bytes have been queued.
  struct Chunk {
    std::string text;
    size_t taken = 0;

    std::string_view rest() const { return std::string_view(text).substr(taken); }
  };

  Segmentation segmentation() const;
  bool QueueText(Chunk* chunk);
  bool QueueWhole(Chunk* chunk);
  bool QueueSentences();
  bool GrowUtterance(Chunk* chunk);
  std::optional<size_t> BeginGrowing(std::string_view line);
  void Enqueue(Utterance utterance);
  void QueueEvents();
  void WaitForRoom();

  Monitor& monitor_;
  Reports& reports_;
  std::optional<SpokenUtterance>& spoken_;

  bool pad_exists_ = false;
  bool text_ended_ = false;  // by the upstream of the pad
  uint64_t last_id_ = 0;
  TextOptions text_options_;
  bool pieces_ = false;  // what the chunks are
  Utf8Joiner joiner_;
  Segmenter segmenter_;                        // the sentence that has begun
  std::optional<std::string> sentence_;        // waits for room
  std::vector<std::shared_ptr<void>> events_;  // that wait for the end of the sentence that has begun
  uint64_t growing_id_ = 0;                    // the utterance that grows, if it is still there
  bool growing_failed_ = false;                // it failed: what it would have grown by is dropped
  Settings pad_settings_;                      // of the last chunk
  Cue pad_cue_;                                // of the last chunk
  Monitor::Clock::time_point last_text_;       // when it came
  uint64_t pad_stream_ = 1;                    // number of the text that the chunks are of
  TextQueue queue_;
  bool upstream_waits_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace gstqtts

#endif  // GST_QTTS_INTAKE_H_
