// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsstarter.h"

#include <glib.h>

#include <algorithm>
#include <utility>

#include "gstqttsdocument.h"
#include "gstqttspreparation.h"
#include "gstqttssettings.h"
#include "qtts/engine.h"
#include "qtts/text_check.h"

namespace gstqtts {

UtteranceStarter::UtteranceStarter(std::function<void()> announce)
    : announce_(std::move(announce)),
      random_(uint64_t{g_random_int()} << 32U | g_random_int()),  // not std::random_device, which may throw
      voices_(announce_) {}

UtteranceStarter::~UtteranceStarter() = default;

void UtteranceStarter::Start(bool in_parallel) {
  in_parallel_ = in_parallel;
  told_once_.clear();
}

qtts::Request UtteranceStarter::NewRequest(const Utterance& utterance, const qtts::ModelInfo& model,
                                           int attempt) const {
  // Below 2^53: a seed is told, and every reader of JSON keeps so large a number exactly.
  const uint64_t number = utterance.document != nullptr ? utterance.document->id() : utterance.id;
  const uint64_t random_seed = SeedOfAttempt(MixBits(random_ + MixBits(number)) >> 11U, attempt);
  qtts::Request request = MakeRequest(utterance.settings, model, utterance.text, random_seed);
  request.more_text = utterance.more_text;
  // Speech that is made in parallel is for files: its first utterance must not get ahead of the others.
  if (in_parallel_) request.real_time = false;
  if (utterance.streamed && request.layout == qtts::PromptLayout::kDefault) {
    request.layout = qtts::PromptLayout::kStreaming;
  }
  return request;
}

Retries UtteranceStarter::NewRetries(const Utterance& utterance, const qtts::ModelInfo& model) const {
  const Settings& settings = utterance.settings;
  if (settings.seed >= 0 || utterance.streamed || utterance.more_text) return {};
  if (settings.real_time && !in_parallel_) return {};
  if (!settings.runaway_guard && !model.description.alignment) return {};
  if (settings.retry != Settings::kAutoRetry) return Retries(settings.retry);
  return Retries(in_parallel_ ? Settings::kRetriesAhead : 0);
}

UtteranceStarter::Asked UtteranceStarter::Ask(qtts::Engine* engine, const Utterance& utterance, VoiceStore::Voice voice,
                                              const std::shared_ptr<AheadSpeech>& ahead, TextPosition position) {
  Asked asked;
  asked.retries = ahead != nullptr ? std::move(ahead->retries) : NewRetries(utterance, engine->info());
  qtts::Request request = NewRequest(utterance, engine->info(), asked.retries.made());
  asked.seed = request.seed;
  asked.start = Clock::now();
  qtts::Result<Preparation> preparation = PrepareUtterance(utterance, engine->info());
  std::shared_ptr<const qtts::ClonedVoice> cloned;
  if (ahead != nullptr && ahead->stream != nullptr && preparation.ok()) {
    *ahead->turn_came = true;  // before the stream is read again
    asked.start = ahead->start;
    asked.first_frame_latency = ahead->first_frame_latency;
    asked.stream = std::move(ahead->stream);
    asked.made = std::move(ahead->frames);
    asked.end = std::move(ahead->end);
    cloned = ahead->request.voice;
    asked.request = std::move(ahead->request);
    asked.seed = ahead->seed;
    asked.asked_ahead = true;
  } else {
    const auto start_stream = [&]() -> qtts::Result<std::unique_ptr<qtts::Stream>> {
      QTTS_ASSIGN_OR_RETURN(request.voice, std::move(voice));
      cloned = request.voice;
      AdaptToVoice(utterance.settings, &request);
      QTTS_RETURN_IF_ERROR(preparation.status());
      request.text = preparation->text.spoken;
      return engine->Start(request, announce_);
    };
    auto started = start_stream();
    asked.status = started.status();
    if (started.ok()) asked.stream = *std::move(started);
    if (asked.retries.on()) asked.request = std::move(request);
  }
  asked.device_lost = engine->device_lost();
  if (asked.stream != nullptr) {
    asked.level = LevelOf(utterance.settings, engine->info(), cloned.get());
    // The engine is computing the first frame now, so this delays no frame.
    position.Append(preparation->text.spoken, preparation->text.map);
    position.FindWords();
    asked.preparer = std::move(preparation->preparer);
    // The beginning of a growing text is not enough for the check.
    if (!utterance.streamed) asked.language_warning = LanguageWarningOf(utterance, engine->info());
  }
  asked.position = std::move(position);
  return asked;
}

std::string UtteranceStarter::LanguageWarningOf(const Utterance& utterance, const qtts::ModelInfo& model) {
  std::string warning = qtts::LanguageWarning(utterance.text, model.languages, utterance.settings.language);
  if (warning.empty() || utterance.stream == 0) return warning;
  if (std::exchange(warned_stream_, utterance.stream) != utterance.stream) language_warnings_.clear();
  return language_warnings_.insert(warning).second ? warning : "";
}

std::vector<std::string> UtteranceStarter::NewWarnings(std::vector<std::string> warnings) {
  std::erase_if(warnings, [this](const std::string& warning) { return !told_once_.insert(warning).second; });
  return warnings;
}

}  // namespace gstqtts
