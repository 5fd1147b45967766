// SPDX-License-Identifier: LGPL-2.1-or-later
// The part of the scheduler that makes parts of long texts ahead of their turn (Request::parallel_parts).
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "scheduler/scheduler.h"

namespace qtts {

std::vector<LongTextView> Scheduler::ViewLongTexts() const {
  std::vector<LongTextView> views;
  views.reserve(long_texts_.size());
  for (const RunningPtr& text : long_texts_) {
    const size_t held = text->parts_ahead.size();
    const auto open = std::count_if(text->parts_ahead.begin(), text->parts_ahead.end(),
                                    [](const auto& numbered) { return numbered.second->open; });
    const bool begun = text->all_delivered() >= look_ahead_.first_frames;
    const bool room = held + 1 < static_cast<size_t>(text->stream->request().parallel_parts);
    views.push_back(
        {.arrival = text->arrival,
         .wants_more = begun && room && !text->no_part_behind && !text->ahead_failed && !text->stream->ended(),
         .held = held,
         .open = static_cast<size_t>(open)});
  }
  return views;
}

// Begins parts ahead of their turn in slots that nobody waits for. Returns true if anything changed.
bool Scheduler::BeginPartsAhead() {
  if (long_texts_.empty() || device_lost_) return false;
  bool changed = false;
  // Before streams have to be parked.
  while (lists_.device.short_of_pages && GiveWay()) changed = true;
  while (!device_lost_) {
    const std::vector<LongTextView> views = ViewLongTexts();
    const std::optional<size_t> next = look_ahead_.NextToBegin(views);
    if (!next) break;
    size_t held = 0;
    for (const LongTextView& view : views) held += view.held;
    if (!look_ahead_.MayBegin(lists_.device, held, !waiting_.empty(), lists_.AwaitsFirstFrame())) break;
    if (BeginPartAhead(long_texts_[*next])) {
      changed = true;
    } else if (!device_lost_) {
      long_texts_[*next]->no_part_behind = true;
    }
  }
  return changed;
}

// Returns false if the next part is not complete, or can't begin now.
bool Scheduler::BeginPartAhead(const RunningPtr& owner) {
  int number = owner->part + 1;
  while (owner->parts_ahead.contains(number)) ++number;
  std::optional<TextPart::News> news = owner->stream->PartBehind(static_cast<size_t>(number - owner->part));
  if (!news || !news->prompt) return false;
  const auto part = std::make_shared<Running>(owner->stream);
  part->ahead = std::make_unique<PartAhead>();
  part->ahead->owner = owner;
  part->ahead->max_frames = look_ahead_.max_frames;
  part->arrival = owner->arrival;
  part->part = number;
  // The part may have fewer frames, with Request::max_frames, as those of the parts before it are not known.
  part->earlier_frames = owner->all_delivered();
  part->first_sound = owner->first_sound;
  part->AddText(*news);
  part->SetPrompt(*std::move(news->prompt));
  if (parking_ && !parking_->HoldsOneMore(*part)) return false;
  lists_.MakeRoom();
  owner->parts_ahead.emplace(number, part);
  lists_.Add(part);
  if (!Open(part) && !device_lost_) DropPartAhead(owner, part);
  if (part->open) ++ahead_parts_;
  return part->open;
}

// Gives back a slot of a part that is made ahead. Returns false if there is none. The speech of such a part is lost and
// will be made again: all of it comes from the state that the slot has.
bool Scheduler::GiveWay() {
  const std::optional<size_t> next = look_ahead_.NextToGiveWay(ViewLongTexts());
  if (!next) return false;
  const RunningPtr owner = long_texts_[*next];
  // The last of its parts, whose turn comes last.
  const auto last = std::find_if(owner->parts_ahead.rbegin(), owner->parts_ahead.rend(),
                                 [](const auto& numbered) { return numbered.second->open; });
  const RunningPtr part = last->second;
  Log(LogLevel::kDebug, "slot " + std::to_string(part->slot) + ": part " + std::to_string(part->part) + " gives way, " +
                            std::to_string(part->delivered) + " frames ahead of its turn");
  ++preempted_parts_;
  DropPartAhead(owner, part);
  return true;
}

void Scheduler::DropPartsAhead(const RunningPtr& owner) {
  while (!owner->parts_ahead.empty()) DropPartAhead(owner, owner->parts_ahead.begin()->second);
  if (owner->part_in_turn) DropPartAhead(owner, owner->part_in_turn);
}

// Forgets a part and what was made of it. `part` may be an entry of the owner's.
void Scheduler::DropPartAhead(const RunningPtr& owner, const RunningPtr& part) {
  const RunningPtr kept = part;  // NOLINT(performance-unnecessary-copy-initialization)
  ClosePartAhead(kept);
  if (owner->part_in_turn == kept) {
    owner->part_in_turn.reset();
  } else {
    owner->parts_ahead.erase(kept->part);
  }
}

// Takes a part out of the lists. Its results stay.
void Scheduler::ClosePartAhead(const RunningPtr& part) {
  if (part->removed) return;
  CloseSlot(part.get());
  if (parking_) parking_->Forget(part);
  lists_.Remove(part);
}

// Forgets a part that failed. It is made again in its turn, when the error is found again, and told.
void Scheduler::FailPartAhead(const RunningPtr& part, const Status& status) {
  const RunningPtr owner = part->ahead->owner.lock();
  if (owner == nullptr) return;
  if (part->ahead->in_turn) return EndPartAhead(part, EndReason::kError, status);
  Log(LogLevel::kDebug, "part " + std::to_string(part->part) + ", ahead of its turn: " + status.message());
  owner->ahead_failed = true;
  DropPartAhead(owner, part);
}

// Keeps the result of a frame until the part's turn.
void Scheduler::KeepResult(const RunningPtr& part, FrameResult result) {
  PartAhead& ahead = *part->ahead;
  if (part->stream->ended()) return;  // its owner is about to be removed
  if (result.end == EndReason::kError) return FailPartAhead(part, result.status);
  if (result.end != EndReason::kNone) return EndPartAhead(part, result.end, std::move(result.status));
  ++part->delivered;
  const TextWindow window = part->windows.empty() ? TextWindow() : part->windows.front();
  Frame frame{.pcm = result.pcm};
  bool runaway = part->Align(result.text_scores, &frame);
  const Request& request = part->stream->request();
  if (request.runaway_guard && ahead.guard.Trips(result.pcm, part->text_tokens, request.runaway_frames_per_token)) {
    runaway = true;
  }
  ahead.results.push_back({std::move(result), window});
  if (runaway) return EndPartAhead(part, EndReason::kRunaway, Status::Ok());
  lists_.ListIfReady(part);
  if (const RunningPtr owner = ahead.owner.lock(); ahead.in_turn && owner != nullptr) TakeResults(owner);
}

void Scheduler::EndPartAhead(const RunningPtr& part, EndReason reason, Status status) {
  PartAhead& ahead = *part->ahead;
  ahead.ended = true;
  ahead.end = reason;
  ahead.status = std::move(status);
  ClosePartAhead(part);
  if (const RunningPtr owner = ahead.owner.lock(); ahead.in_turn && owner != nullptr) TakeResults(owner);
}

// Continues with the part whose turn has come if it was begun ahead.
void Scheduler::TakeTurn(const RunningPtr& owner) {
  const auto found = owner->parts_ahead.find(owner->part);
  if (found == owner->parts_ahead.end()) return;
  owner->part_in_turn = std::move(found->second);
  owner->parts_ahead.erase(found);
  if (owner->part_in_turn->open) --lists_.device.ahead;
  owner->part_in_turn->ahead->in_turn = true;
  PublishSlots();
}

// Gives the reader what was made of the part whose turn has come, as far as there is room for it.
void Scheduler::TakeResults(const RunningPtr& owner) {
  const RunningPtr part = owner->part_in_turn;
  PartAhead& ahead = *part->ahead;
  while (!owner->stream->ended()) {
    if (ahead.results.empty()) {
      if (!ahead.ended) return;
      return EndPart(owner, ahead.end, std::move(ahead.status));
    }
    if (!owner->HasRoom(static_cast<int64_t>(owner->stream->lead_frames()))) return;
    // Where the backend would have ended a part with this limit.
    if (owner->delivered + 1 >= owner->max_new_tokens) return EndPart(owner, EndReason::kMaxDuration, Status::Ok());
    PartAhead::Result result = std::move(ahead.results.front());
    ahead.results.pop_front();
    ++owner->submitted;
    owner->windows.push_back(result.window);
    if (DeliverFrame(owner, std::move(result.frame))) return EndPart(owner, EndReason::kRunaway, Status::Ok());
    lists_.ListIfReady(part);
  }
  Remove(owner);
}

}  // namespace qtts
