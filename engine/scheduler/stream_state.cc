// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/stream_state.h"

#include <utility>

#include "qtts/resources.h"

namespace qtts {

StreamState::StreamState(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer,
                         const Request& request, size_t lead_frames, std::function<void()> on_change)
    : prompts_(std::move(prompts)),
      request_(request),
      lead_frames_(lead_frames),
      on_change_(std::move(on_change)),
      feed_(std::move(tokenizer), prompts_->max_text_tokens()) {}

Status StreamState::Begin() {
  const MutexLock lock(mutex_);
  QTTS_RETURN_IF_ERROR(CheckLengthLocked(request_.text));
  if (request_.more_text) {
    QTTS_RETURN_IF_ERROR(feed_.Append(request_.text));
  } else {
    QTTS_RETURN_IF_ERROR(feed_.AppendLast(request_.text));
    if (feed_.blank()) return Status::InvalidArgument("the text is empty: there is nothing to speak");
  }
  return TakeTextLocked();
}

Status StreamState::Append(std::string_view text) {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone) return Status::Cancelled("the utterance has already ended");
    if (!feed_.finished()) {
      if (Status status = CheckLengthLocked(text); !status.ok()) {
        EndLocked(EndReason::kError, status);
        return status;
      }
    }
    Status refused;  // none of the text was added
    Status status = CatchExhaustion("take the text", [&] {
      mutex_.AssertHeld();
      refused = feed_.Append(text);
      return refused.ok() ? TakeTextLocked() : Status::Ok();
    });
    if (!refused.ok()) return refused;
    if (!status.ok()) {
      EndLocked(EndReason::kError, status);
      return status;
    }
  }
  wake_();
  return Status::Ok();
}

Status StreamState::FinishText() {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone || feed_.finished()) return Status::Ok();
    Status status = CatchExhaustion("take the text", [&] {
      mutex_.AssertHeld();
      QTTS_RETURN_IF_ERROR(feed_.Finish());
      if (!feed_.blank() || prompt_made_) return TakeTextLocked();
      EndLocked(EndReason::kComplete, Status::Ok());
      return Status::Ok();
    });
    if (!status.ok()) {
      EndLocked(EndReason::kError, status);
      return status;
    }
  }
  wake_();
  return Status::Ok();
}

// Checked before tokenizing, which takes time.
Status StreamState::CheckLengthLocked(std::string_view more) {
  text_bytes_ += more.size();
  if (text_bytes_ <= prompts_->max_text_bytes()) return Status::Ok();
  return Status::ResourceExhausted("a text of " + std::to_string(text_bytes_) +
                                   " bytes is too long for one utterance: " + "this model takes up to " +
                                   std::to_string(prompts_->max_text_bytes()) +
                                   "; split it, or pass it through the sink pad with segmentation=sentence");
}

// Moves decided ids to first_ids_ until the prompt is built, then to text_queue_.
Status StreamState::TakeTextLocked() {
  std::vector<int32_t> ids = feed_.TakeIds();
  text_tokens_ += ids.size();
  if (prompt_made_) {
    text_queue_.insert(text_queue_.end(), ids.begin(), ids.end());
    if (feed_.finished() && !text_complete_) {
      text_queue_.push_back(prompts_->eos_text_id());
      text_complete_ = true;
    }
    return Status::Ok();
  }
  first_ids_.insert(first_ids_.end(), ids.begin(), ids.end());
  if (!feed_.finished()) {
    QTTS_ASSIGN_OR_RETURN(const size_t needed, prompts_->TextIdsNeeded(request_));
    if (first_ids_.size() < needed) return Status::Ok();
  }
  QTTS_ASSIGN_OR_RETURN(Prompt prompt, prompts_->Build(request_, first_ids_, feed_.finished()));
  first_ids_.clear();
  text_queue_ = std::move(prompt.trailing_text);
  text_complete_ = prompt.text_complete;
  pad_text_id_ = prompt.pad_text_id;
  prompt_ = std::move(prompt);
  prompt_made_ = true;
  return Status::Ok();
}

ReadState StreamState::Read(Frame* frame, bool wait) {
  bool makes_room = false;
  {
    const MutexLock lock(mutex_);
    while (wait && frames_.empty() && end_reason_ == EndReason::kNone) readable_.Wait(mutex_);
    if (frames_.empty()) return end_reason_ == EndReason::kNone ? ReadState::kPending : ReadState::kEnd;
    *frame = std::move(frames_.front());
    frames_.pop_front();
    unread_ = frames_.size();
    makes_room = frames_.size() < awaited_room_;
    if (makes_room) awaited_room_ = 0;
  }
  if (makes_room) wake_();
  return ReadState::kFrame;
}

void StreamState::Cancel() {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone && frames_.empty()) return;
    frames_.clear();
    unread_ = 0;
    EndLocked(EndReason::kCancelled, Status::Ok());
  }
  wake_();
}

EndReason StreamState::end_reason() const {
  const MutexLock lock(mutex_);
  return end_reason_;
}

Status StreamState::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

StreamState::News StreamState::TakeNews() {
  const MutexLock lock(mutex_);
  return {std::exchange(prompt_, std::nullopt), std::exchange(text_queue_, {}), text_complete_, pad_text_id_,
          text_tokens_};
}

bool StreamState::HasRoom(size_t frames) {
  const MutexLock lock(mutex_);
  if (frames_.size() < frames) return true;
  awaited_room_ = frames;
  return false;
}

void StreamState::Deliver(Frame frame) {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone) return;
    const bool runaway = request_.runaway_guard && guard_.Trips(frame.pcm, text_tokens_);
    frames_.push_back(std::move(frame));
    unread_ = frames_.size();
    if (runaway) EndLocked(EndReason::kRunaway, Status::Ok());
  }
  readable_.NotifyAll();
  if (on_change_) on_change_();
}

void StreamState::End(EndReason reason, Status status) {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone) return;
    EndLocked(reason, std::move(status));
  }
  if (on_change_) on_change_();
}

void StreamState::EndLocked(EndReason reason, Status status) {
  end_reason_ = reason;
  status_ = std::move(status);
  ended_ = true;
  readable_.NotifyAll();
}

}  // namespace qtts
