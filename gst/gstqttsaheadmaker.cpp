// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsaheadmaker.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttsmarkup.h"
#include "gstqttspreparation.h"
#include "gstqttssettings.h"
#include "qtts/engine.h"

namespace gstqtts {

// Returns the first queued utterance that was not considered yet and can be made as a whole; null if there is none.
const Utterance* AheadMaker::NextToMake() const {
  const Utterance* next = intake_.FindAfter(speeches_.last_id());
  while (next != nullptr && !next->more_text && HasNothingToSay(*next)) next = intake_.FindAfter(next->id);
  return next != nullptr && !next->more_text ? next : nullptr;
}

bool AheadMaker::StartOne(const std::shared_ptr<qtts::Engine>& engine) {
  const qtts::Occupancy occupancy = engine->occupancy();  // takes no lock
  if (occupancy.free_slots == 0 || !speeches_.HasRoom(occupancy.slots)) return false;
  std::shared_ptr<AheadSpeech> speech = speeches_.FindRetry();
  const Utterance* next = speech != nullptr ? intake_.Find(speech->id) : NextToMake();
  if (next == nullptr) return false;
  Utterance utterance = *next;
  std::vector<std::string> told_later;  // when its turn comes
  ApplyMarkup(engine->info(), &utterance, &told_later);
  std::optional<VoiceStore::Voice> voice;
  {
    const MonitorUnlock unlock(*monitor_);
    voice = starter_.voices().Get(engine, utterance.settings);
  }
  if (!voice) return false;
  if (intake_.Find(utterance.id) == nullptr) return true;
  if (speech == nullptr) {
    speech = std::make_shared<AheadSpeech>();
    speech->id = utterance.id;
    speech->retries = starter_.NewRetries(utterance, engine->info());
    speeches_.Add(speech);
  }
  speech->retry = false;
  auto callback = speeches_.NewCallback(*speech, [monitor = monitor_] { monitor->LockAndAnnounce(); });
  {
    const MonitorUnlock unlock(*monitor_);
    if (voice->ok()) {
      speech->request = starter_.NewRequest(utterance, engine->info(), speech->retries.made());
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
  speeches_.Count();
  return true;
}

void AheadMaker::Read(bool slot_wanted) {
  const auto next_read = speeches_.next_read();
  if (!next_read || Monitor::Clock::now() < *next_read) return;
  AheadList::Speeches speeches = speeches_.BeginRead();
  const size_t max_bytes = slot_wanted ? SIZE_MAX : speeches_.max_bytes();
  bool all_read = false;
  {
    const MonitorUnlock unlock(*monitor_);
    all_read = ReadAhead(speeches, max_bytes);
    speeches.clear();
  }
  speeches_.EndRead(all_read);
}

}  // namespace gstqtts
