// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STREAM_STATE_H_
#define QTTS_SCHEDULER_STREAM_STATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alignment/speech_aligner.h"
#include "prompt/prompt.h"
#include "qtts/frame.h"
#include "qtts/mutex.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "scheduler/runaway_guard.h"
#include "scheduler/text_part.h"
#include "text/part_splitter.h"

namespace qtts {

class Announcer;

// State shared by a Stream and the scheduler: incoming text, a bounded queue of outgoing frames, and the end of the
// utterance.
//
// With Request::parts the text is split into parts, which the model speaks one after the other, each from a prompt of
// its own. Only the part that is spoken has been tokenized; the rest waits as text. PartBehind() tokenizes a later one.
//
// New text, the end, and a read that makes room for which the scheduler waits wake the scheduler. Other reads do not.
// Per frame the scheduler takes the lock once.
//
// Thread-safe. Owned by the Stream and, while the utterance runs, by the scheduler.
class StreamState : public std::enable_shared_from_this<StreamState> {
 public:
  StreamState(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer,
              const Request& request, size_t lead_frames, std::function<void()> on_change);

  // Adds the request's text. Errors: a complete text that makes no prompt; a text that is too long.
  Status Begin();

  // Functions of the reader, documented in Stream:
  Status Append(std::string_view text);
  Status FinishText();
  ReadState Read(Frame* frame, bool wait);
  void Cancel();
  EndReason end_reason() const;
  Status status() const;
  std::vector<SpokenWord> last_words() const;
  SpeechReport report() const;
  void SetPlayTime(std::chrono::nanoseconds time) { play_time_ = time.count(); }

  // Functions of the scheduler:
  const Request& request() const { return request_; }
  // Returns an aligner of the text with the frames; null if the model has no alignment head.
  std::unique_ptr<SpeechAligner> MakeAligner() const;
  // Returns the maximum number of frames ahead of the reader.
  size_t lead_frames() const { return lead_frames_; }
  // Sets `wake`, which tells the scheduler that this stream may be able to continue. It is called without locks held.
  // Set once, before any function of the reader may be called.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }
  // Sets who calls the reader for Deliver() and End(), which else do so themselves. It outlives their last call. Set
  // once, before them.
  void SetAnnouncer(Announcer* announcer) { announcer_ = announcer; }
  // Calls the reader's `on_change`, if there is one.
  void CallReader() const {
    if (on_change_) on_change_();
  }
  // Takes the news of the part that is spoken, or will be next.
  TextPart::News TakeNews();
  // Returns the text and the prompt of a complete part, `distance` parts behind the one that is spoken; none if its
  // text is not known, or makes no prompt. May be called again; the part's turn comes as ever.
  std::optional<TextPart::News> PartBehind(size_t distance);
  // Returns the number of unread frames. Takes no lock.
  size_t unread() const { return unread_; }
  // Returns true if fewer than `frames` frames are unread. Otherwise the read that makes it so wakes the scheduler.
  bool HasRoom(size_t frames);
  // Adds a frame, and what has been spoken up to it unless `report` is null. Returns true if the model has missed the
  // end of the part, which should end with kRunaway.
  bool Deliver(Frame frame, const SpeechReport* report = nullptr);
  // Ends the part that is spoken: the model has ended it, for `reason`. Returns true if another part follows:
  // TakeNews() returns its text from now on. Otherwise the caller ends the utterance.
  bool BeginNextPart(EndReason reason);
  // Ends the utterance. Only the first call has an effect. kComplete becomes kRunaway if the end of any part was
  // missed. `words`: those that no frame had. `report`: null leaves that of the last frame.
  void End(EndReason reason, Status status, std::vector<SpokenWord> words = {}, const SpeechReport* report = nullptr);
  bool ended() const { return ended_; }  // takes no lock
  // Returns the time that SetPlayTime() was last told, if it was. Takes no lock.
  std::optional<std::chrono::nanoseconds> play_time() const {
    const int64_t time = play_time_;
    return time >= 0 ? std::optional(std::chrono::nanoseconds(time)) : std::nullopt;
  }

 private:
  Status CheckLengthLocked(std::string_view more) QTTS_REQUIRES(mutex_);
  Status AddTextLocked(std::string_view text, bool last) QTTS_REQUIRES(mutex_);
  Status FillPartLocked() QTTS_REQUIRES(mutex_);
  std::optional<PartSplitter::Piece> NextPieceLocked() QTTS_REQUIRES(mutex_);
  void EndLocked(EndReason reason, Status status) QTTS_REQUIRES(mutex_);
  void Announce(bool first);

  const std::shared_ptr<const PromptBuilder> prompts_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const Request request_;
  const size_t lead_frames_;
  const std::function<void()> on_change_;
  std::function<void()> wake_ = [] {};
  Announcer* announcer_ = nullptr;

  mutable Mutex mutex_;
  Condition readable_;
  size_t text_bytes_ QTTS_GUARDED_BY(mutex_) = 0;  // of the text that has come
  bool text_finished_ QTTS_GUARDED_BY(mutex_) = false;
  std::optional<PartSplitter> splitter_ QTTS_GUARDED_BY(mutex_);    // the text behind `part_`; none: there is one part
  std::deque<PartSplitter::Piece> pieces_ QTTS_GUARDED_BY(mutex_);  // of later parts, taken for PartBehind()
  std::optional<TextPart> part_ QTTS_GUARDED_BY(mutex_);            // the part that is spoken, or will be next
  RunawayGuard guard_ QTTS_GUARDED_BY(mutex_);                      // of this part
  bool missed_end_ QTTS_GUARDED_BY(mutex_) = false;                 // of an earlier part
  std::deque<Frame> frames_ QTTS_GUARDED_BY(mutex_);
  size_t awaited_room_ QTTS_GUARDED_BY(mutex_) = 0;  // see HasRoom(); 0: the scheduler waits for none
  EndReason end_reason_ QTTS_GUARDED_BY(mutex_) = EndReason::kNone;
  Status status_ QTTS_GUARDED_BY(mutex_);
  std::vector<SpokenWord> last_words_ QTTS_GUARDED_BY(mutex_);
  SpeechReport report_ QTTS_GUARDED_BY(mutex_);
  std::atomic<int64_t> play_time_ = -1;  // in ns; below 0: the reader has not told it
  // Written with `mutex_` held.
  std::atomic<size_t> unread_ = 0;
  std::atomic<bool> ended_ = false;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STREAM_STATE_H_
