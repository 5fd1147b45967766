// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/step_policy.h"

#include <algorithm>

namespace qtts {
namespace {

int64_t RowsOfGroup(const DeviceView& device, int groups) { return (device.speaking() + groups - 1) / groups; }

}  // namespace

bool StepPolicy::IsBusy(const DeviceView& device) const {
  return device.cost.known && device.SecondsWithPrompts(device.in_time()) > busy_seconds;
}

int64_t StepPolicy::Lead(const DeviceView& device, int64_t lead) const {
  return device.busy && !device.short_of_pages ? std::min(lead, busy_lead) : lead;
}

bool StepPolicy::CanGoOn(const DeviceView& device, const StreamView& stream) const {
  // The step of the last token ends the utterance, so the result of a further one would be discarded.
  if (stream.at_limit || !stream.has_text) return false;
  // Running ahead pays only while there is sound to play. Before that, a second frame would compete with the first for
  // the device. Among many it would come after a large step instead, and the first frame is often silent.
  const bool awaited = stream.submitted > 0 && stream.delivered == 0;
  return !awaited || (device.many && stream.submitted < newcomer_frames);
}

bool StepPolicy::HasTime(const DeviceView& device) const {
  return !device.cost.known || device.cost.SecondsOf(device.in_time()) <= time_seconds;
}

StreamClock::time_point StepPolicy::NeedsFrame(const DeviceView& device, const StreamView& stream,
                                               StreamClock::time_point now) const {
  if (stream.unread > 0) {
    return std::max<StreamClock::time_point>(now + (stream.ahead() - 1) * kFrameTime, stream.SoundEnd());
  }
  const bool taken_lasts = stream.real_time && HasTime(device);
  return taken_lasts ? std::max<StreamClock::time_point>(now, stream.SoundEnd() - taken_reserve) : now;
}

bool StepPolicy::IsCrowded(const DeviceView& device) const {
  return device.many && device.cost.known && device.SecondsWithPrompts(device.in_time()) > join_seconds;
}

bool StepPolicy::IsSettled(const StreamView& stream) const {
  return stream.plays && stream.has_text && !stream.at_limit && stream.submitted >= settled_frames;
}

bool StepPolicy::RunsLow(const DeviceView& device, const StreamView& stream, StreamClock::time_point now) const {
  return stream.ahead() < Lead(device, stream.lead) && IsLow(device, stream, now);
}

bool StepPolicy::AreLow(size_t low, size_t settled) const {
  return static_cast<double>(low) > low_share * static_cast<double>(settled);
}

int StepPolicy::FirstFramesTogether(const DeviceView& device) const {
  if (!device.many || !device.cost.known) return 1;
  // A newcomer that joins has its next frame a step of all later, and in such a step it may take longer than a frame is
  // played.
  if (device.low && IsCrowded(device)) return 3;
  return device.read_ahead && !HasTime(device) ? 2 : 1;
}

bool StepPolicy::HasOwnStep(const DeviceView& device, const StreamView& stream) const {
  if (stream.submitted >= newcomer_frames) return false;
  if (!stream.real_time && device.real_time > 0) return false;
  // A stream whose first frame was delivered alone needs its second one now, even if the rule has changed since.
  return stream.plays || FirstFramesTogether(device) == 1;
}

bool StepPolicy::ComesAlong(const DeviceView& device, const StreamView& stream, size_t rows,
                            StreamClock::time_point now) const {
  return stream.plays &&
         NeedsFrame(device, stream, now) - TimeAhead(device, rows, device.busy ? busy_reserve : reserve, now) <= now;
}

bool StepPolicy::MakesWay(const DeviceView& device) const {
  return device.many && device.cost.known && device.real_time > 0 && device.real_time == device.speaking() &&
         !(device.low && IsCrowded(device));
}

size_t StepPolicy::WayRows(const DeviceView& device) const {
  const auto all = static_cast<size_t>(device.in_time());
  const double prompts = device.SecondsWithPrompts(0) - device.cost.SecondsOf(0);
  size_t rows = way_rows;
  while (rows < all) {
    const double steps = static_cast<double>(all) / static_cast<double>(rows);
    if (prompts + steps * device.cost.SecondsOf(static_cast<int64_t>(rows)) <= max_busy_seconds) break;
    rows += way_multiple;
  }
  return rows;
}

bool StepPolicy::IsLow(const DeviceView& device, const StreamView& stream, StreamClock::time_point now) const {
  return !stream.plays || NeedsFrame(device, stream, now) < now + low_store;
}

int StepPolicy::Groups(const DeviceView& device) const {
  int groups = max_groups;
  while (groups > 1 && groups * device.cost.SecondsOf(RowsOfGroup(device, groups)) > max_busy_seconds) --groups;
  return groups;
}

bool StepPolicy::IsEnough(const DeviceView& device, size_t ready) const {
  return !device.cost.known || static_cast<int64_t>(ready) >= RowsOfGroup(device, Groups(device));
}

StreamClock::duration StepPolicy::TimeAhead(const DeviceView& device, size_t rows, StreamClock::duration spare,
                                            StreamClock::time_point now) {
  const std::chrono::duration<double> step(device.cost.SecondsOf(static_cast<int64_t>(rows)));
  return spare + std::max(device.done_at - now, StreamClock::duration::zero()) +
         std::chrono::duration_cast<StreamClock::duration>(step);
}

StreamClock::time_point StepPolicy::GatherUntil(const DeviceView& device, std::span<const StreamView> ready,
                                                StreamClock::time_point since, StreamClock::time_point now) const {
  const auto ahead = TimeAhead(device, ready.size(), device.busy ? busy_reserve : reserve, now);
  // A device that has time makes frames in store.
  StreamClock::time_point until = device.busy ? now + kFrameTime : since + kFrameTime / Groups(device);
  for (const StreamView& stream : ready) {
    // A newcomer for whose own step there is no time does not play. Its reader waits for nothing yet.
    const auto due = stream.plays ? NeedsFrame(device, stream, now) - ahead : since + kFrameTime;
    until = std::min<StreamClock::time_point>(until, due);
  }
  return until;
}

bool StepPolicy::IsReadAhead(const StreamView& stream, StreamClock::time_point now) const {
  const int64_t taken = stream.delivered - stream.unread;
  return taken > 0 && taken * kFrameTime > now - stream.first_sound + read_ahead;
}

bool StepPolicy::AreReadAhead(size_t streams, size_t rows) const {
  return static_cast<double>(streams) > read_ahead_share * static_cast<double>(rows);
}

}  // namespace qtts
