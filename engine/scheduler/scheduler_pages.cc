// SPDX-License-Identifier: LGPL-2.1-or-later
// The scheduler's part that deals with pages: which utterance may begin, which stream is parked, and which one returns.
#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "scheduler/running.h"
#include "scheduler/scheduler.h"

namespace qtts {
namespace {

// One in so many pages is a margin for the forecast's errors. As many stay free when a
// parked stream returns whose reader still has sound.
constexpr int64_t kShare = 20;
// A parked stream returns, if need be in exchange for another, when its reader has no more sound than this.
constexpr auto kSoon = 4 * kFrameTime;
// The other stream must have so much more. With less, the same pages would move back and forth.
constexpr auto kMargin = 3 * kFrameTime;
// Such exchanges delay all streams by copies. The next exchange may come only this time later, for each page that was
// moved: a page's copy takes about as long where the bus is fast.
constexpr std::chrono::microseconds kExchangeTime{300};
constexpr std::chrono::milliseconds kReserveAgain{20};
constexpr std::chrono::seconds kBetweenLogs{10};

}  // namespace

int64_t Scheduler::PagesOf(int64_t positions) const {
  const int64_t page = paged_->pages().positions;
  return (positions + page - 1) / page;
}

// The stream's context now and at its expected end. A stream that outlives the estimate is expected to last a page
// more.
PageForecast::Context Scheduler::ForecastOf(const Running& running) const {
  const int64_t positions = running.prompt_rows + running.submitted;
  const int64_t estimate = running.prompt_rows + lengths_.FramesOf(running.text_tokens);
  const int64_t most = running.prompt_rows + running.max_new_tokens;
  const int64_t last = std::min(std::max(estimate, positions + paged_->pages().positions), most);
  return {positions + PagedContexts::kPositionsAhead, last + PagedContexts::kPositionsAhead};
}

// True if there are pages for the prompt and its first frames, beside those of the streams that are parked, and if all
// contexts are expected to fit until their streams end, with a share of all pages left. True also for a prompt that
// needs more than all pages: the backend refuses it with an error.
bool Scheduler::HasPagesFor(const Running& waiting) {
  if (paged_ == nullptr || free_slots_ == slots_) return true;
  const ContextPages pages = paged_->pages();
  // Speaking streams come first.
  if (!starved_.empty()) return false;
  int64_t needed = PagesOf(waiting.prompt_rows + PagedContexts::kPositionsAhead);
  if (needed > pages.total) return true;
  for (const RunningPtr& running : parked_) needed += PagesOf(running->prompt_rows + running->submitted);
  if (needed > pages.free) return false;
  if (std::exchange(forecast_outdated_, false)) {
    forecast_.Clear();
    for (const RunningPtr& running : running_) {
      if (running->open) forecast_.Add(ForecastOf(*running));
    }
  }
  return forecast_.MostWith(ForecastOf(waiting)) <= pages.total - pages.total / kShare;
}

// While pages are short, streams of a busy device get ahead of their readers too: who is far ahead can be parked for
// long, and so is copied less often.
bool Scheduler::IsShortOfPages() const { return !parked_.empty() || ContextPages{0, pages_, free_pages_}.IsShort(); }

// How long the reader has sound, of what has been submitted. A stream without its next text has a frame's time, since
// it can't use what it keeps from others.
Scheduler::Clock::duration Scheduler::SoundAhead(const Running& running, Clock::time_point now) const {
  const auto frames = static_cast<int64_t>(running.stream->unread() + running.in_flight());
  int32_t text_id = 0;
  const auto in_hand = std::max<int64_t>(frames, running.NextText(&text_id) ? 0 : 1) * kFrameTime;
  return std::max<Clock::duration>(in_hand, running.first_sound + running.all_submitted() * kFrameTime - now);
}

// The stream to park. One whose first frame is awaited is not parked.
Scheduler::RunningPtr Scheduler::FurthestAhead(Clock::time_point now) const {
  RunningPtr furthest;
  Clock::duration most{0};
  for (const RunningPtr& running : running_) {
    if (!running->open || running->parked || running->all_delivered() == 0 || running->stream->ended()) continue;
    const Clock::duration ahead = SoundAhead(*running, now);
    if (furthest != nullptr && ahead <= most) continue;
    furthest = running;
    most = ahead;
  }
  return furthest;
}

// Takes pages for the next frame of a stream. If none is free, parks the stream that is furthest ahead, perhaps this
// one. Returns false if the stream can't go on now.
bool Scheduler::TakePages(const RunningPtr& running) {
  while (running->submitted >= running->room) {
    const auto now = Clock::now();
    if (now >= reserve_again_ || paged_->pages().free > 0) {
      const Result<int64_t> room = paged_->Reserve(running->slot);
      if (room.ok()) {
        running->room = *room;
        return true;
      }
      if (room.status().code() == StatusCode::kDeviceUnavailable) {
        FailAll(room.status());
        return false;
      }
      reserve_again_ = now + kReserveAgain;
    }
    const RunningPtr furthest = Unparked() > 1 ? FurthestAhead(now) : nullptr;
    if (furthest != nullptr && Park(furthest)) {
      if (furthest == running) return false;
      continue;
    }
    if (device_lost_) return false;
    running->starved = true;
    starved_.push_back(running);
    return false;
  }
  return true;
}

// Returns false if the host has no memory for it, or the device was lost.
bool Scheduler::Park(const RunningPtr& running) {
  const Status status = paged_->Park(running->slot);
  if (status.code() == StatusCode::kDeviceUnavailable) FailAll(status);
  if (!status.ok()) return false;
  running->parked = true;
  running->room = 0;
  parked_.push_back(running);
  ++parkings_;
  PublishPages();
  const auto now = Clock::now();
  if (parked_.size() > 1 || now < log_again_ || !LogEnabled(LogLevel::kInfo)) return true;
  log_again_ = now + kBetweenLogs;
  parking_logged_ = true;
  Log(LogLevel::kInfo, "the device's " + std::to_string(paged_->pages().total) +
                           " pages are in use: utterances that are ahead of their readers are parked in the host's "
                           "memory, and no other begins");
  return true;
}

// Returns false if there are too few pages, or the device was lost.
bool Scheduler::Unpark(const RunningPtr& running) {
  const Status status = paged_->Unpark(running->slot);
  if (status.code() == StatusCode::kDeviceUnavailable) FailAll(status);
  if (!status.ok()) return false;
  RemoveFromParked(running);
  ListIfReady(running);
  return true;
}

void Scheduler::RemoveFromParked(const RunningPtr& running) {
  running->parked = false;
  // `running` may be the entry of parked_.
  const RunningPtr kept = running;  // NOLINT(performance-unnecessary-copy-initialization)
  std::erase(parked_, kept);
  PublishPages();
  if (!parked_.empty() || !std::exchange(parking_logged_, false)) return;
  const uint64_t times = parkings_ - std::exchange(parkings_logged_, parkings_);
  Log(LogLevel::kInfo, "no utterance is parked any more; parked since the last such line: " + std::to_string(times));
}

// Parks streams that are further ahead than `ahead` until `pages` are free. Returns false if too few are, or if it is
// too early.
bool Scheduler::ExchangePages(int64_t pages, Clock::duration ahead) {
  const auto now = Clock::now();
  if (now < exchange_again_) return false;
  int64_t parked = 0;
  while (paged_->pages().free < pages) {
    const RunningPtr furthest = FurthestAhead(now);
    if (furthest == nullptr || (CanGoOn(*furthest) && SoundAhead(*furthest, now) < ahead + kMargin)) break;
    if (!Park(furthest)) break;
    parked += PagesOf(furthest->prompt_rows + furthest->submitted);
  }
  // As many will come back.
  exchange_again_ = now + 2 * parked * kExchangeTime;
  return !device_lost_ && paged_->pages().free >= pages;
}

// Lets streams without a page try again, and brings parked streams back: those that can go on, the one with the least
// sound in hand first. Returns true if any came back.
bool Scheduler::UnparkStreams() {
  if (parked_.empty() && starved_.empty()) return false;
  auto starved = static_cast<int64_t>(starved_.size());
  for (const RunningPtr& running : starved_) running->starved = false;
  for (const RunningPtr& running : std::exchange(starved_, {})) ListIfReady(running);
  bool returned = false;
  while (!parked_.empty()) {
    const auto now = Clock::now();
    RunningPtr next;
    for (const RunningPtr& running : parked_) {
      if (!CanGoOnWithPages(*running)) continue;
      if (next == nullptr || SoundAhead(*running, now) < SoundAhead(*next, now)) next = running;
    }
    if (next == nullptr) break;
    const Clock::duration ahead = SoundAhead(*next, now);
    // Its reader may also be faster than the sound is played.
    const bool soon = ahead < kSoon || next->stream->unread() + next->in_flight() == 0;
    const ContextPages pages = paged_->pages();
    const int64_t spare = soon ? 0 : std::max<int64_t>(1, pages.total / kShare);
    const int64_t needed = PagesOf(next->prompt_rows + next->submitted) + 1 + starved + spare;
    if (pages.free < needed && Unparked() > 0 && !(soon && ExchangePages(needed, ahead))) {
      // If no other stream has pages, waiting is useless.
      if (device_lost_ || Unparked() > 0) break;
    }
    if (!Unpark(next)) {
      if (device_lost_ || Unparked() > 0) break;
      EndForWantOfPages(next);
    }
    returned = true;
  }
  return returned;
}

// If all streams with pages need more, and none can be parked, the one that came last ends, so that others go on.
bool Scheduler::FailIfAllStarve() {
  if (starved_.empty() || !outstanding_.empty() || static_cast<int>(starved_.size()) < Unparked()) return false;
  EndForWantOfPages(*std::max_element(starved_.begin(), starved_.end(), [](const RunningPtr& a, const RunningPtr& b) {
    return a->arrival < b->arrival;
  }));
  return true;
}

// A copy, because the caller's may be an entry of starved_.
void Scheduler::EndForWantOfPages(RunningPtr running) {  // NOLINT(performance-unnecessary-value-param)
  const int64_t total = paged_->pages().total;
  running->End(EndReason::kError,
               Status::ResourceExhausted("the device's memory for contexts, " + std::to_string(total) +
                                         " pages, does not hold this utterance any longer, and none can be parked in "
                                         "the host's memory: use shorter texts, fewer at once or a smaller model"),
               running->all_delivered());
  Remove(running);
}

}  // namespace qtts
