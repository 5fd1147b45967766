// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsstreamreader.h"

#include <chrono>
#include <deque>
#include <iterator>
#include <string>
#include <utility>

#include "gstqttspreparation.h"
#include "qtts/engine.h"

namespace gstqtts {

bool StreamReader::Read() {
  std::shared_ptr<qtts::Stream> stream = spoken_->stream;
  const std::shared_ptr<qtts::Engine> engine = holder_.engine();
  const uint64_t epoch = monitor_->run.epoch;
  const std::string more = std::exchange(spoken_->more, {});
  const bool finish = spoken_->growing && !spoken_->utterance.more_text;
  if (finish) spoken_->growing = false;
  const std::shared_ptr<qtts::TextPreparer> preparer = spoken_->preparer;
  const size_t wanted = spoken_->frames_wanted() - spoken_->made.size();
  qtts::PreparedText prepared;
  std::deque<qtts::Frame> frames;
  std::optional<SpeechEnd> end;
  bool device_lost = false;
  {
    const MonitorUnlock unlock(*monitor_);
    qtts::Status status;
    if (!more.empty() || finish) status = PrepareMore(more, finish, preparer.get(), &prepared);
    if (!prepared.spoken.empty() && status.ok()) status = stream->Append(prepared.spoken);
    if (finish && status.ok()) status = stream->FinishText();
    // Text that comes after the model has ended the utterance is no fault.
    if (status.code() == qtts::StatusCode::kCancelled) status = qtts::Status::Ok();
    if (!status.ok()) end = SpeechEnd{qtts::EndReason::kError, status, {}, {}};
    while (!end && frames.size() < wanted) {
      qtts::Frame frame;
      const qtts::ReadState state = stream->TryRead(&frame);
      if (state == qtts::ReadState::kPending) break;
      if (state == qtts::ReadState::kEnd) {
        end = EndOf(*stream);
      } else {
        frames.push_back(std::move(frame));
      }
    }
    device_lost = engine->device_lost();
  }
  if (epoch != monitor_->run.epoch) {
    const MonitorUnlock unlock(*monitor_);
    stream.reset();
    return false;
  }
  if (!prepared.spoken.empty()) spoken_->position.Append(prepared.spoken, prepared.map);
  if (!frames.empty() && spoken_->first_frame_latency.count() == 0) {
    spoken_->first_frame_latency = Monitor::Clock::now() - spoken_->start;
  }
  spoken_->made.insert(spoken_->made.end(), std::make_move_iterator(frames.begin()),
                       std::make_move_iterator(frames.end()));
  spoken_->device_lost = device_lost;
  if (!end && spoken_->holding && spoken_->retries.made() > 0 && spoken_->made.size() >= spoken_->frames_wanted()) {
    // The attempts before came to their end, far earlier.
    end = SpeechEnd{qtts::EndReason::kRunaway, {}, {}, {}};
    const MonitorUnlock unlock(*monitor_);
    stream->Cancel();
  }
  if (epoch != monitor_->run.epoch) return false;
  return !end || TakeEnd(*std::move(end), &stream);
}

// Takes the end of the current stream. Returns false if its utterance is asked for once more; `old` is then released.
bool StreamReader::TakeEnd(SpeechEnd end, std::shared_ptr<qtts::Stream>* old) {
  const bool found_no_slot = end.reason == qtts::EndReason::kBusy && std::exchange(spoken_->asked_ahead, false);
  if (found_no_slot && Repeat(&end, old)) return false;
  if (spoken_->holding) {
    const uint64_t first = starter_.NewRequest(spoken_->utterance, holder_.engine()->info(), 0).seed;
    Attempt attempt = {std::exchange(spoken_->made, {}), std::move(end), spoken_->seed};
    bool again = spoken_->retries.Judge(&attempt);
    while (again) {
      spoken_->seed = spoken_->request->seed = SeedOfAttempt(first, spoken_->retries.made());
      attempt.seed = spoken_->seed;
      if (Repeat(&attempt.end, old)) return false;
      again = spoken_->retries.Judge(&attempt);
    }
    spoken_->made = std::move(attempt.frames);
    spoken_->seed = attempt.seed;
    end = std::move(attempt.end);
  }
  spoken_->end = std::move(end);
  return true;
}

// Asks for the current utterance again, by its request: because no slot was free when it was asked for ahead of its
// turn, in which it waits for as long as its settings say, or because it was faulty. Releases `old`. Returns false,
// with the error in `end`, if the engine refuses.
bool StreamReader::Repeat(SpeechEnd* end, std::shared_ptr<qtts::Stream>* old) {
  const std::shared_ptr<qtts::Engine> engine = holder_.engine();
  const uint64_t epoch = monitor_->run.epoch;
  const qtts::Request request = *spoken_->request;
  std::shared_ptr<qtts::Stream> stream;
  if (spoken_->retries.made() == 0) spoken_->start = Monitor::Clock::now();
  spoken_->first_frame_latency = std::chrono::nanoseconds(0);  // it may wait for a slot again
  {
    const MonitorUnlock unlock(*monitor_);
    auto started = engine->Start(request, [monitor = monitor_] { monitor->LockAndAnnounce(); });
    end->status = started.status();
    end->reason = qtts::EndReason::kError;
    if (started.ok()) stream = *std::move(started);
  }
  if (stream == nullptr && epoch == monitor_->run.epoch) return false;
  if (epoch == monitor_->run.epoch) std::swap(spoken_->stream, stream);
  const MonitorUnlock unlock(*monitor_);
  stream.reset();
  old->reset();
  return true;
}

}  // namespace gstqtts
