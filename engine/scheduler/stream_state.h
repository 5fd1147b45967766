// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STREAM_STATE_H_
#define QTTS_SCHEDULER_STREAM_STATE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prompt/prompt.h"
#include "qtts/frame.h"
#include "qtts/mutex.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "scheduler/runaway_guard.h"
#include "text/text_feed.h"

namespace qtts {

// State shared by a Stream and the scheduler: incoming text, a bounded queue of outgoing frames, and the end of the
// utterance.
//
// Text, the end, and a read that makes awaited room wake the scheduler. So a stream whose reader keeps up, and one that
// is not read, do not wake it. Per frame the scheduler takes the lock once.
//
// Thread-safe. Owned by the Stream and, while the utterance runs, by the scheduler.
class StreamState {
 public:
  StreamState(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer,
              const Request& request, size_t lead_frames, std::function<void()> on_change);

  // Adds the request's text. Errors: a complete text that makes no prompt; a text that is too long.
  Status Begin();

  // Functions of the reader, documented in Stream.
  Status Append(std::string_view text);
  Status FinishText();
  ReadState Read(Frame* frame, bool wait);
  void Cancel();
  EndReason end_reason() const;
  Status status() const;

  // Functions of the scheduler.
  const Request& request() const { return request_; }
  // Maximum number of frames ahead of the reader.
  size_t lead_frames() const { return lead_frames_; }
  // `wake` tells the scheduler that this stream may be able to continue. It is called without locks held. Set once,
  // before any function of the reader may be called.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }
  // Text that has become known since the last call.
  struct News {
    std::optional<Prompt> prompt;  // as soon as there is enough text for it; once
    std::vector<int32_t> text;     // further ids; id n of all of them precedes frame n + 1
    bool text_complete = false;    // `pad_text_id` precedes all further frames
    int32_t pad_text_id = 0;
    size_t text_tokens = 0;  // of the text so far, those in the prompt included
  };
  News TakeNews();
  // Number of unread frames. Takes no lock.
  size_t unread() const { return unread_; }
  // True if fewer than `frames` frames are unread. Otherwise the read that makes it so wakes the scheduler.
  bool HasRoom(size_t frames);
  void Deliver(Frame frame);
  // Ends the utterance. Only the first call has an effect.
  void End(EndReason reason, Status status);
  bool ended() const { return ended_; }  // takes no lock

 private:
  Status CheckLengthLocked(std::string_view more) QTTS_REQUIRES(mutex_);
  Status TakeTextLocked() QTTS_REQUIRES(mutex_);
  void EndLocked(EndReason reason, Status status) QTTS_REQUIRES(mutex_);

  const std::shared_ptr<const PromptBuilder> prompts_;
  const Request request_;
  const size_t lead_frames_;
  const std::function<void()> on_change_;
  std::function<void()> wake_ = [] {};

  mutable Mutex mutex_;
  Condition readable_;
  size_t text_bytes_ QTTS_GUARDED_BY(mutex_) = 0;  // so far
  TextFeed feed_ QTTS_GUARDED_BY(mutex_);
  std::vector<int32_t> first_ids_ QTTS_GUARDED_BY(mutex_);  // decided ids, until the prompt is built
  bool prompt_made_ QTTS_GUARDED_BY(mutex_) = false;
  std::optional<Prompt> prompt_ QTTS_GUARDED_BY(mutex_);
  std::vector<int32_t> text_queue_ QTTS_GUARDED_BY(mutex_);  // ids that TakeNews() has not returned
  bool text_complete_ QTTS_GUARDED_BY(mutex_) = false;
  int32_t pad_text_id_ QTTS_GUARDED_BY(mutex_) = 0;
  size_t text_tokens_ QTTS_GUARDED_BY(mutex_) = 0;  // so far
  RunawayGuard guard_ QTTS_GUARDED_BY(mutex_);
  std::deque<Frame> frames_ QTTS_GUARDED_BY(mutex_);
  size_t awaited_room_ QTTS_GUARDED_BY(mutex_) = 0;  // see HasRoom(); 0: the scheduler waits for none
  EndReason end_reason_ QTTS_GUARDED_BY(mutex_) = EndReason::kNone;
  Status status_ QTTS_GUARDED_BY(mutex_);
  // Written with `mutex_` held.
  std::atomic<size_t> unread_ = 0;
  std::atomic<bool> ended_ = false;
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STREAM_STATE_H_
