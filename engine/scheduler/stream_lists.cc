// SPDX-License-Identifier: LGPL-2.1-or-later
#include "scheduler/stream_lists.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace qtts {

void StreamLists::MakeRoom() {
  if (running.size() == running.capacity()) running.reserve(2 * running.size() + 16);
}

void StreamLists::Add(const RunningPtr& stream) {
  stream->place = running.size();
  running.push_back(stream);
  stream->known = true;
}

void StreamLists::Remove(const RunningPtr& stream) {
  stream->removed = true;
  const size_t place = stream->place;  // `stream` may be the entry of `running`
  running.back()->place = place;
  std::swap(running[place], running.back());
  running.pop_back();
}

bool StreamLists::CanGoOn(const Running& stream) const {
  return !stream.parked && !stream.starved && CanGoOnWithPages(stream);
}

bool StreamLists::CanGoOnWithPages(const Running& stream) const {
  if (!stream.prefilled || !stream.open || stream.stream->ended()) return false;
  const StreamView view = stream.View();
  if (!step.CanGoOn(device, view)) return false;
  const int64_t lead = step.Lead(device, view.lead);
  if (view.in_flight > 0) return view.ahead() < lead;
  return stream.HasRoom(lead);
}

bool StreamLists::AwaitsFirstFrame() const {
  return std::any_of(running.begin(), running.end(), [this](const RunningPtr& stream) {
    if (!stream->open || stream->ahead || stream->all_delivered() > 0 || stream->stream->ended()) return false;
    return !stream->prefilled || stream->in_flight() > 0 || CanGoOn(*stream);
  });
}

void StreamLists::ListIfReady(const RunningPtr& stream) {
  if (stream->ready || !CanGoOn(*stream)) return;
  ready.push_back(stream);
  stream->ready = true;
}

}  // namespace qtts
