// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsahead.h"

#include <algorithm>
#include <utility>

#include "qtts/end_reason.h"
#include "qtts/engine.h"

namespace gstqtts {

std::shared_ptr<AheadSpeech> AheadList::FindRetry() const {
  const auto found = std::find_if(speeches_.begin(), speeches_.end(), [](const auto& speech) { return speech->retry; });
  return found != speeches_.end() ? *found : nullptr;
}

void AheadList::Add(std::shared_ptr<AheadSpeech> speech) {
  last_id_ = speech->id;
  speeches_.push_back(std::move(speech));
}

// Utterances leave the queue from the front, and so does their speech.

bool AheadList::IsMaking(uint64_t id) const {
  return !speeches_.empty() && speeches_.front()->id == id && speeches_.front()->stream != nullptr;
}

std::shared_ptr<AheadSpeech> AheadList::Take(uint64_t id) {
  if (speeches_.empty() || speeches_.front()->id != id) return nullptr;
  std::shared_ptr<AheadSpeech> speech = std::move(speeches_.front());
  speeches_.pop_front();
  Count();
  return speech;
}

AheadList::Speeches AheadList::TakeAll() {
  Speeches all(std::make_move_iterator(speeches_.begin()), std::make_move_iterator(speeches_.end()));
  speeches_.clear();
  running_ = 0;
  return all;
}

void AheadList::Count() {
  running_ = static_cast<int>(
      std::count_if(speeches_.begin(), speeches_.end(), [](const auto& speech) { return speech->running(); }));
}

std::optional<AheadList::Clock::time_point> AheadList::next_read() const {
  if (full_) return last_read_ + kBetweenReadsFull;
  return *readable_ ? std::optional(last_read_ + kBetweenReads) : std::nullopt;
}

AheadList::Speeches AheadList::BeginRead() {
  *readable_ = false;  // before the read, so that a change during it is seen
  return {speeches_.begin(), speeches_.end()};
}

void AheadList::EndRead(bool all_read) {
  full_ = !all_read;
  last_read_ = Clock::now();
  Count();
}

std::function<void()> AheadList::NewCallback(const AheadSpeech& speech, std::function<void()> announce) const {
  // It must not own the speech, which owns the stream that has this callback.
  return [turn_came = speech.turn_came, readable = readable_, announce = std::move(announce)] {
    if (*turn_came || !readable->exchange(true)) announce();
  };
}

// Keeps the speech, all of which was made, or has it made again.
static void TakeEnd(AheadSpeech* speech) {
  Attempt attempt = {std::exchange(speech->frames, {}), EndOf(*speech->stream), speech->seed};
  if (speech->retries.on() && speech->retries.Judge(&attempt)) {
    speech->stream.reset();
    speech->retry = true;
    return;
  }
  speech->frames = std::move(attempt.frames);
  speech->end = std::move(attempt.end);
  speech->seed = attempt.seed;
  speech->ended = true;
}

bool ReadAhead(const AheadList::Speeches& speeches, size_t max_bytes) {
  const auto bytes = [](const qtts::Frame& frame) { return frame.pcm.size() * sizeof(float); };
  size_t held = 0;
  for (const auto& speech : speeches) {
    for (const qtts::Frame& frame : speech->frames) held += bytes(frame);
    held += speech->retries.held_bytes();
  }
  for (const auto& speech : speeches) {
    while (speech->running()) {
      if (held >= max_bytes) return false;
      qtts::Frame frame;
      const qtts::ReadState state = speech->stream->TryRead(&frame);
      if (state == qtts::ReadState::kPending) break;
      if (state == qtts::ReadState::kEnd) {
        if (speech->stream->end_reason() == qtts::EndReason::kBusy) {
          speech->stream.reset();
          speech->retry = true;
        } else {
          TakeEnd(speech.get());
        }
        break;
      }
      if (speech->first_frame_latency.count() == 0) {
        speech->first_frame_latency = AheadList::Clock::now() - speech->start;
      }
      held += bytes(frame);
      speech->frames.push_back(std::move(frame));
    }
  }
  return true;
}

}  // namespace gstqtts
