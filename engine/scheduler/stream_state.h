// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SCHEDULER_STREAM_STATE_H_
#define QTTS_SCHEDULER_STREAM_STATE_H_

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
// Thread-safe. Owned by the Stream and, while the utterance runs, by the scheduler.
class StreamState {
 public:
  // `wake` notifies the scheduler that this stream may be able to continue. It is called without locks held.
  StreamState(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer,
              const Request& request, size_t lead_frames, std::function<void()> on_change, std::function<void()> wake);

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
  // The prompt, as soon as there is enough text for it. Returned once.
  std::optional<Prompt> TakePrompt();
  // True if frame `index` can be made now: the frame queue has space and the frame's text is known. Sets the text id
  // before it (FrameStep::text_id). `in_flight`: frames submitted and not delivered.
  bool NextStep(int64_t index, size_t in_flight, int32_t* text_id) const;
  // Number of unread frames.
  size_t unread() const;
  void Deliver(Frame frame);
  // Ends the utterance. Only the first call has an effect.
  void End(EndReason reason, Status status);
  bool ended() const;

 private:
  Status CheckLengthLocked(std::string_view more) QTTS_REQUIRES(mutex_);
  Status TakeTextLocked() QTTS_REQUIRES(mutex_);
  void EndLocked(EndReason reason, Status status) QTTS_REQUIRES(mutex_);

  const std::shared_ptr<const PromptBuilder> prompts_;
  const Request request_;
  const size_t lead_frames_;
  const std::function<void()> on_change_;
  const std::function<void()> wake_;

  mutable Mutex mutex_;
  Condition readable_;
  size_t text_bytes_ QTTS_GUARDED_BY(mutex_) = 0;  // so far
  TextFeed feed_ QTTS_GUARDED_BY(mutex_);
  std::vector<int32_t> first_ids_ QTTS_GUARDED_BY(mutex_);  // decided ids, until the prompt is built
  bool prompt_made_ QTTS_GUARDED_BY(mutex_) = false;
  std::optional<Prompt> prompt_ QTTS_GUARDED_BY(mutex_);
  std::vector<int32_t> text_queue_ QTTS_GUARDED_BY(mutex_);  // entry n precedes frame n + 1
  bool text_complete_ QTTS_GUARDED_BY(mutex_) = false;
  int32_t pad_text_id_ QTTS_GUARDED_BY(mutex_) = 0;
  size_t text_tokens_ QTTS_GUARDED_BY(mutex_) = 0;  // so far
  RunawayGuard guard_ QTTS_GUARDED_BY(mutex_);
  std::deque<Frame> frames_ QTTS_GUARDED_BY(mutex_);
  EndReason end_reason_ QTTS_GUARDED_BY(mutex_) = EndReason::kNone;
  Status status_ QTTS_GUARDED_BY(mutex_);
};

}  // namespace qtts

#endif  // QTTS_SCHEDULER_STREAM_STATE_H_
