// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/stream_state.h"

#include <tuple>
#include <utility>

#include "qtts/language.h"
#include "qtts/resources.h"
#include "scheduler/announcer.h"

namespace qtts {

StreamState::StreamState(std::shared_ptr<const PromptBuilder> prompts, std::shared_ptr<const Tokenizer> tokenizer,
                         const Request& request, size_t lead_frames, std::function<void()> on_change)
    : prompts_(std::move(prompts)),
      tokenizer_(std::move(tokenizer)),
      request_(request),
      lead_frames_(lead_frames),
      on_change_(std::move(on_change)) {
  if (request_.parts.max > 0) splitter_.emplace(request_.parts, std::string(ResolveLanguage(request_.language).tag));
  part_.emplace(prompts_, tokenizer_);
}

Status StreamState::Begin() {
  const MutexLock lock(mutex_);
  QTTS_RETURN_IF_ERROR(CheckLengthLocked(request_.text));
  QTTS_RETURN_IF_ERROR(AddTextLocked(request_.text, !request_.more_text));
  if (!request_.more_text && part_->blank()) {
    return Status::InvalidArgument("the text is empty: there is nothing to speak");
  }
  return part_->Take(request_);
}

Status StreamState::Append(std::string_view text) {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone) return Status::Cancelled("the utterance has already ended");
    if (text_finished_) return Status::InvalidArgument("the text of the utterance has already ended");
    if (Status status = CheckLengthLocked(text); !status.ok()) {
      EndLocked(EndReason::kError, status);
      return status;
    }
    Status refused;  // none of the text was added
    Status status = CatchExhaustion("take the text", [&] {
      mutex_.AssertHeld();
      refused = AddTextLocked(text, false);
      return refused.ok() ? part_->Take(request_) : Status::Ok();
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
    if (end_reason_ != EndReason::kNone || text_finished_) return Status::Ok();
    Status status = CatchExhaustion("take the text", [&] {
      mutex_.AssertHeld();
      QTTS_RETURN_IF_ERROR(AddTextLocked({}, true));
      if (!part_->blank() || part_->has_prompt()) return part_->Take(request_);
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

// Adds text to the part, or to what waits behind it. Without parts, nothing was added after an error.
Status StreamState::AddTextLocked(std::string_view text, bool last) {
  text_finished_ = last;
  if (!splitter_) return last ? part_->AppendLast(text) : part_->Append(text);
  splitter_->Append(text);
  if (last) splitter_->Finish();
  return FillPartLocked();
}

// Moves text into the part until it is complete, or no more is decided.
Status StreamState::FillPartLocked() {
  while (!part_->finished()) {
    const std::optional<PartSplitter::Piece> piece = NextPieceLocked();
    if (!piece) break;
    QTTS_RETURN_IF_ERROR(piece->ends_part ? part_->AppendLast(piece->text, piece->begin)
                                          : part_->Append(piece->text, piece->begin));
  }
  return Status::Ok();
}

std::optional<PartSplitter::Piece> StreamState::NextPieceLocked() {
  if (pieces_.empty()) return splitter_->Next();
  PartSplitter::Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  return piece;
}

std::optional<TextPart::News> StreamState::PartBehind(size_t distance) {
  const MutexLock lock(mutex_);
  if (end_reason_ != EndReason::kNone || !splitter_ || !part_->finished()) return std::nullopt;
  std::optional<TextPart::News> news;
  // The error of a text that makes no prompt is found again, and told, in the part's turn.
  std::ignore = CatchExhaustion("take the text", [&] {
    mutex_.AssertHeld();
    TextPart part(prompts_, tokenizer_);
    size_t number = 1;  // of the part that the next piece belongs to
    for (size_t i = 0; number <= distance; ++i) {
      if (i == pieces_.size()) {
        std::optional<PartSplitter::Piece> piece = splitter_->Next();
        if (!piece) return Status::Ok();
        pieces_.push_back(*std::move(piece));
      }
      const PartSplitter::Piece& piece = pieces_[i];
      if (number == distance) {
        QTTS_RETURN_IF_ERROR(piece.ends_part ? part.AppendLast(piece.text, piece.begin)
                                             : part.Append(piece.text, piece.begin));
      }
      if (piece.ends_part) ++number;
    }
    if (part.blank()) return Status::Ok();
    QTTS_RETURN_IF_ERROR(part.Take(request_));
    news = part.TakeNews();
    return Status::Ok();
  });
  return news;
}

bool StreamState::BeginNextPart(EndReason reason) {
  const MutexLock lock(mutex_);
  if (end_reason_ != EndReason::kNone || !splitter_ || !part_->finished()) return false;
  if (pieces_.empty() && splitter_->done()) return false;
  missed_end_ = missed_end_ || reason != EndReason::kComplete;
  guard_ = RunawayGuard();
  Status status = CatchExhaustion("take the text", [&] {
    mutex_.AssertHeld();
    part_.emplace(prompts_, tokenizer_);
    QTTS_RETURN_IF_ERROR(FillPartLocked());
    return part_->blank() ? Status::Ok() : part_->Take(request_);
  });
  if (!status.ok()) EndLocked(EndReason::kError, std::move(status));
  return true;
}

// Checks the length before tokenizing, which takes time. Parts are short enough.
Status StreamState::CheckLengthLocked(std::string_view more) {
  if (splitter_) return Status::Ok();
  text_bytes_ += more.size();
  if (text_bytes_ <= prompts_->max_text_bytes()) return Status::Ok();
  return Status::ResourceExhausted("a text of " + std::to_string(text_bytes_) +
                                   " bytes is too long for one utterance: " + "this model takes up to " +
                                   std::to_string(prompts_->max_text_bytes()) +
                                   "; split it, or pass it through the sink pad with segmentation=sentence");
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

std::vector<SpokenWord> StreamState::last_words() const {
  const MutexLock lock(mutex_);
  return last_words_;
}

SpeechReport StreamState::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

std::unique_ptr<SpeechAligner> StreamState::MakeAligner() const {
  const ModelConfig& config = prompts_->config();
  if (!config.description.alignment) return nullptr;
  return std::make_unique<SpeechAligner>(SpeechAligner::Options{.sample_rate = config.codec.sample_rate,
                                                                .samples_per_frame = config.codec.samples_per_frame,
                                                                .offset_ms = config.description.alignment->offset_ms});
}

TextPart::News StreamState::TakeNews() {
  const MutexLock lock(mutex_);
  return part_->TakeNews();
}

bool StreamState::HasRoom(size_t frames) {
  const MutexLock lock(mutex_);
  if (frames_.size() < frames) return true;
  awaited_room_ = frames;
  return false;
}

bool StreamState::Deliver(Frame frame, const SpeechReport* report) {
  bool missed_end = false;
  const bool first = frame.index == 0;
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone) return false;
    missed_end =
        request_.runaway_guard && guard_.Trips(frame.pcm, part_->text_tokens(), request_.runaway_frames_per_token);
    if (report != nullptr) report_ = *report;
    frames_.push_back(std::move(frame));
    unread_ = frames_.size();
  }
  readable_.NotifyAll();
  Announce(first);
  return missed_end;
}

void StreamState::End(EndReason reason, Status status, std::vector<SpokenWord> words, const SpeechReport* report) {
  {
    const MutexLock lock(mutex_);
    if (end_reason_ != EndReason::kNone) return;
    last_words_ = std::move(words);
    if (report != nullptr) report_ = *report;
    EndLocked(reason, std::move(status));
  }
  Announce(false);
}

void StreamState::Announce(bool first) {
  if (!on_change_) return;
  if (announcer_ == nullptr) return CallReader();
  announcer_->Announce(shared_from_this(), first);
}

void StreamState::EndLocked(EndReason reason, Status status) {
  end_reason_ = reason == EndReason::kComplete && missed_end_ ? EndReason::kRunaway : reason;
  status_ = std::move(status);
  ended_ = true;
  readable_.NotifyAll();
}

}  // namespace qtts
