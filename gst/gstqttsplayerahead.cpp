// SPDX-License-Identifier: LGPL-2.1-or-later
// The Player's part for the property "parallel": speech that is made while its utterance waits in the queue.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttsahead.h"
#include "gstqttsmarkup.h"
#include "gstqttsplayer.h"
#include "gstqttspreparation.h"
#include "gstqttstext.h"
#include "qtts/engine.h"

namespace gstqtts {

// The first queued utterance that was not considered yet and can be made as a whole; null if there is none.
const Utterance* Player::NextToMake() const {
  const Utterance* next = intake_.FindAfter(ahead_.last_id());
  while (next != nullptr && !next->more_text && HasNothingToSay(*next)) next = intake_.FindAfter(next->id);
  return next != nullptr && !next->more_text ? next : nullptr;
}

// Has the engine make one more queued utterance if a slot is free. Returns true if the caller should try the next.
bool Player::StartAhead() {
  const std::shared_ptr<qtts::Engine> engine = engine_;
  const qtts::Occupancy occupancy = engine->occupancy();  // takes no lock
  if (occupancy.free_slots == 0 || !ahead_.HasRoom(occupancy.slots)) return false;
  std::shared_ptr<AheadSpeech> speech = ahead_.FindRetry();
  const Utterance* next = speech != nullptr ? intake_.Find(speech->id) : NextToMake();
  if (next == nullptr) return false;
  Utterance utterance = *next;
  std::vector<std::string> told_later;  // when its turn comes
  ApplyMarkup(engine->info(), &utterance, &told_later);
  std::optional<VoiceStore::Voice> voice;
  {
    const MonitorUnlock unlock(*monitor_);
    voice = voices_.Get(engine, utterance.settings);
  }
  if (!voice) return false;
  if (intake_.Find(utterance.id) == nullptr) return true;
  if (speech == nullptr) {
    speech = std::make_shared<AheadSpeech>();
    speech->id = utterance.id;
    speech->retries = NewRetries(utterance, engine->info());
    ahead_.Add(speech);
  }
  speech->retry = false;
  auto callback = ahead_.NewCallback(*speech, [monitor = monitor_] { monitor->LockAndAnnounce(); });
  {
    const MonitorUnlock unlock(*monitor_);
    if (voice->ok()) {
      speech->request = NewRequest(utterance, engine->info(), speech->retries.made());
      speech->seed = speech->request.seed;
      speech->request.voice = **std::move(voice);
      AdaptToVoice(utterance.settings, &speech->request);
      auto preparation = PrepareUtterance(utterance, engine->info());
      if (preparation.ok()) speech->request.text = std::move(preparation->text.spoken);
      qtts::Request request = speech->request;
      request.max_wait = std::chrono::nanoseconds(0);  // it must not come before the utterances of others
      if (speech->retries.made() == 0) speech->start = Monitor::Clock::now();
      // An error is found again, and told, when the turn of the utterance comes.
      if (preparation.ok()) {
        auto started = engine->Start(request, std::move(callback));
        if (started.ok()) speech->stream = *std::move(started);
      }
    }
    // If the queue was dropped meanwhile, this is the last reference: the stream ends here.
    speech.reset();
  }
  ahead_.Count();
  return true;
}

void Player::ReadAheadStreams() {
  const auto next_read = ahead_.next_read();
  if (!next_read || Monitor::Clock::now() < *next_read) return;
  AheadList::Speeches speeches = ahead_.BeginRead();
  // The current utterance may be waiting for the slot of one that is made ahead, which must come to its end then.
  const bool waits_for_slot = spoken_->first_frame_latency.count() == 0 && engine_->occupancy().waiting > 0;
  const size_t max_bytes = waits_for_slot ? SIZE_MAX : ahead_.max_bytes();
  bool all_read = false;
  {
    const MonitorUnlock unlock(*monitor_);
    all_read = ReadAhead(speeches, max_bytes);
    speeches.clear();
  }
  ahead_.EndRead(all_read);
}

// Asks for the current utterance again, by its request: because no slot was free when it was asked for ahead of its
// turn, in which it waits for as long as its settings say, or because it was faulty. Releases `old`. Returns false,
// with the error in `end`, if the engine refuses.
bool Player::RepeatStream(SpeechEnd* end, std::shared_ptr<qtts::Stream>* old) {
  const std::shared_ptr<qtts::Engine> engine = engine_;
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
