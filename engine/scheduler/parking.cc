// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/parking.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"

namespace qtts {
namespace {

constexpr std::chrono::seconds kBetweenLogs{10};

}  // namespace

Parking::Parking(PagedContexts* contexts, StreamLists* lists)
    : contexts_(contexts), lists_(lists), forecast_(contexts->pages().positions) {
  Publish();
}

// PagedContexts::pages() may be asked on the scheduler's thread alone; Tell() by anybody.
void Parking::Publish() {
  const ContextPages pages = contexts_->pages();
  pages_ = pages.total;
  free_pages_ = pages.free;
  parked_count_ = static_cast<int>(parked_.size());
  device_bytes_ = contexts_->device_bytes();
  lists_->device.short_of_pages = !parked_.empty() || pages.IsShort();
}

void Parking::Tell(Occupancy* occupancy) const {
  occupancy->pages = pages_;
  occupancy->free_pages = free_pages_;
  occupancy->parked = parked_count_;
  occupancy->parkings = parkings_;
  occupancy->device_bytes = device_bytes_;
}

int64_t Parking::PagesOf(const Running& stream) const {
  return PagePolicy::PagesOf(stream.context(), contexts_->pages().positions);
}

PageForecast::Context Parking::ForecastOf(const Running& stream) const {
  return policy_.Forecast({.prompt = stream.prompt_rows,
                           .submitted = stream.submitted,
                           .expected = lengths_.FramesOf(stream.text_tokens),
                           .max_new_tokens = stream.max_new_tokens},
                          contexts_->pages().positions);
}

bool Parking::HoldsOneMore(const Running& waiting) {
  if (lists_->device.speaking() == 0) return true;
  // Speaking streams come first.
  if (!starved_.empty()) return false;
  const ContextPages pages = contexts_->pages();
  int64_t owed = 0;
  for (const RunningPtr& stream : parked_) owed += PagesOf(*stream);
  if (const std::optional<bool> known = policy_.HoldsPrompt(pages, waiting.prompt_rows, owed)) return *known;
  if (std::exchange(forecast_outdated_, false)) {
    forecast_.Clear();
    for (const RunningPtr& stream : lists_->running) {
      if (stream->open) forecast_.Add(ForecastOf(*stream));
    }
  }
  return policy_.HoldsToTheEnd(pages, forecast_.MostWith(ForecastOf(waiting)));
}

void Parking::AddClosed(const Running& stream) {
  lengths_.AddEnd(stream.text_tokens);
  forecast_outdated_ = true;
}

void Parking::AddFrames(size_t frames) {
  lengths_.AddFrames(static_cast<int64_t>(frames));
  forecast_outdated_ = true;
}

RunningPtr Parking::FurthestAhead(StreamClock::time_point now) {
  std::vector<StreamView> views;
  std::vector<RunningPtr> streams;
  for (const RunningPtr& stream : lists_->running) {
    // One whose first frame is awaited is not parked.
    if (!stream->open || stream->parked || stream->all_delivered() == 0 || stream->stream->ended()) continue;
    views.push_back(stream->View());
    streams.push_back(stream);
  }
  const std::optional<size_t> furthest = policy_.FurthestAhead(views, now);
  return furthest ? streams[*furthest] : nullptr;
}

RunningPtr Parking::NextToReturn(StreamClock::time_point now) {
  std::vector<ParkView> views;
  for (const RunningPtr& stream : parked_) views.push_back({stream->View(), lists_->CanGoOnWithPages(*stream)});
  const std::optional<size_t> next = policy_.NextToReturn(views, now);
  return next ? parked_[*next] : nullptr;
}

// Notes whether the device is lost.
bool Parking::Succeeded(const Status& status) {
  if (status.code() == StatusCode::kDeviceUnavailable) lost_ = status;
  return status.ok();
}

bool Parking::TakePages(const RunningPtr& stream) {
  while (stream->submitted >= stream->room) {
    const auto now = StreamClock::now();
    if (now >= reserve_again_ || contexts_->pages().free > 0) {
      const Result<int64_t> room = contexts_->Reserve(stream->slot);
      if (room.ok()) {
        stream->room = *room;
        return true;
      }
      Succeeded(room.status());
      if (!lost_.ok()) return false;
      reserve_again_ = now + policy_.reserve_again;
    }
    const RunningPtr furthest = Unparked() > 1 ? FurthestAhead(now) : nullptr;
    if (furthest != nullptr && Park(furthest)) {
      if (furthest == stream) return false;
      continue;
    }
    if (!lost_.ok()) return false;
    stream->starved = true;
    starved_.push_back(stream);
    return false;
  }
  return true;
}

// Returns false if the host has no memory for it, or the device was lost.
bool Parking::Park(const RunningPtr& stream) {
  if (!Succeeded(contexts_->Park(stream->slot))) return false;
  stream->parked = true;
  stream->room = 0;
  parked_.push_back(stream);
  ++parkings_;
  Publish();
  const auto now = StreamClock::now();
  if (parked_.size() > 1 || now < log_again_ || !LogEnabled(LogLevel::kInfo)) return true;
  log_again_ = now + kBetweenLogs;
  parking_logged_ = true;
  Log(LogLevel::kInfo, "the device's " + std::to_string(contexts_->pages().total) +
                           " pages are in use: utterances that are ahead of their readers are parked in the host's "
                           "memory, and no other begins");
  return true;
}

// Returns false if there are too few pages, or the device was lost.
bool Parking::Unpark(const RunningPtr& stream) {
  if (!Succeeded(contexts_->Unpark(stream->slot))) return false;
  RemoveFromParked(stream);
  lists_->ListIfReady(stream);
  return true;
}

void Parking::RemoveFromParked(const RunningPtr& stream) {
  stream->parked = false;
  // `stream` may be the entry of parked_.
  const RunningPtr kept = stream;  // NOLINT(performance-unnecessary-copy-initialization)
  std::erase(parked_, kept);
  Publish();
  if (!parked_.empty() || !std::exchange(parking_logged_, false)) return;
  const uint64_t times = parkings_ - std::exchange(parkings_logged_, parkings_);
  Log(LogLevel::kInfo, "no utterance is parked any more; parked since the last such line: " + std::to_string(times));
}

void Parking::Forget(const RunningPtr& stream) {
  if (stream->parked) RemoveFromParked(stream);
  if (stream->starved) std::erase(starved_, stream);
}

void Parking::Clear() {
  parked_.clear();
  starved_.clear();
  parked_count_ = 0;
  free_pages_ = pages_.load();
}

// Parks streams that are further ahead than `ahead` until `pages` are free. Returns false if too few are, or if it is
// too early.
bool Parking::ExchangePages(int64_t pages, StreamClock::duration ahead) {
  const auto now = StreamClock::now();
  if (now < exchange_again_) return false;
  int64_t parked = 0;
  while (contexts_->pages().free < pages) {
    const RunningPtr furthest = FurthestAhead(now);
    if (furthest == nullptr) break;
    if (!policy_.MayExchange({furthest->View(), lists_->CanGoOn(*furthest)}, ahead, now) || !Park(furthest)) break;
    parked += PagesOf(*furthest);
  }
  exchange_again_ = policy_.NextExchange(parked, now);
  return lost_.ok() && contexts_->pages().free >= pages;
}

size_t Parking::RetryStarved() {
  const std::vector<RunningPtr> starved = std::exchange(starved_, {});
  for (const RunningPtr& stream : starved) stream->starved = false;
  for (const RunningPtr& stream : starved) lists_->ListIfReady(stream);
  return starved.size();
}

RunningPtr Parking::ReturnStreams(size_t starved, bool* returned) {
  while (lost_.ok() && !parked_.empty()) {
    const auto now = StreamClock::now();
    const RunningPtr next = NextToReturn(now);
    if (next == nullptr) break;
    const StreamView view = next->View();
    const bool soon = policy_.ReturnsSoon(view, now);
    const ContextPages pages = contexts_->pages();
    const int64_t needed = policy_.PagesToReturn(pages, PagesOf(*next), static_cast<int64_t>(starved), soon);
    if (pages.free < needed && Unparked() > 0 && !(soon && ExchangePages(needed, view.SoundAhead(now)))) {
      // If no other stream has pages, waiting is useless.
      if (!lost_.ok() || Unparked() > 0) break;
    }
    if (!Unpark(next)) return lost_.ok() && Unparked() == 0 ? next : nullptr;
    *returned = true;
  }
  return nullptr;
}

RunningPtr Parking::LastIfAllStarve() const {
  if (starved_.empty() || static_cast<int>(starved_.size()) < Unparked()) return nullptr;
  return *std::max_element(starved_.begin(), starved_.end(),
                           [](const RunningPtr& a, const RunningPtr& b) { return a->arrival < b->arrival; });
}

Status Parking::Shortage() const {
  return Status::ResourceExhausted("the device's memory for contexts, " + std::to_string(contexts_->pages().total) +
                                   " pages, does not hold this utterance any longer, and none can be parked in the "
                                   "host's memory: use shorter texts, fewer at once or a smaller model");
}

}  // namespace qtts
