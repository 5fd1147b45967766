// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_STARTER_H_
#define GST_QTTS_STARTER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gstqttsahead.h"
#include "gstqttsloudness.h"
#include "gstqttsposition.h"
#include "gstqttsretry.h"
#include "gstqttstext.h"
#include "gstqttsvoices.h"
#include "qtts/frame.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "qtts/text_preparer.h"

namespace qtts {
class Engine;
class Stream;
}  // namespace qtts

namespace gstqtts {

// Asks the engine to speak an utterance: makes its voice, its request, the text as the model is to read it, and the
// warnings about it.
//
// Owned by the Player. Used by the streaming thread without the monitor's mutex, except NewRequest() and NewRetries(),
// which may be called with it. Start(), CancelVoice() are for the thread that changes states, while that one is
// stopped.
class UtteranceStarter {
 public:
  using Clock = std::chrono::steady_clock;

  // The engine's answer to an utterance.
  struct Asked {
    qtts::Status status;
    std::shared_ptr<qtts::Stream> stream;  // null if it refused
    uint64_t seed = 0;
    bool device_lost = false;
    Clock::time_point start;
    std::chrono::nanoseconds first_frame_latency{0};
    std::deque<qtts::Frame> made;  // these five: as in SpokenUtterance
    std::optional<SpeechEnd> end;
    Retries retries;
    std::optional<qtts::Request> request;
    bool asked_ahead = false;
    TextPosition position;
    std::shared_ptr<qtts::TextPreparer> preparer;
    std::string language_warning;
    VoiceLevel level;
  };

  // `announce` is called on any thread when a stream or a voice has changed.
  explicit UtteranceStarter(std::function<void()> announce);
  ~UtteranceStarter();
  UtteranceStarter(const UtteranceStarter&) = delete;
  UtteranceStarter& operator=(const UtteranceStarter&) = delete;

  // Begins a run. `in_parallel`: several utterances are made at once.
  void Start(bool in_parallel);
  void CancelVoice() { voices_.Cancel(); }

  VoiceStore& voices() { return voices_; }

  // Asks the engine for an utterance. `ahead`: the speech of the utterance that was made ahead, if any. `position` is
  // that of an empty text.
  Asked Ask(qtts::Engine* engine, const Utterance& utterance, VoiceStore::Voice voice,
            const std::shared_ptr<AheadSpeech>& ahead, TextPosition position);
  // Returns the request for an utterance, without its voice and with its text as it is written. The random seed depends
  // on the utterance alone, not on those before it, so it does not matter when or how often it is asked for.
  qtts::Request NewRequest(const Utterance& utterance, const qtts::ModelInfo& model, int attempt) const;
  // Returns how often an utterance may be made again: only if all of it is made before any of it leaves the element,
  // and if a fault would be seen.
  Retries NewRetries(const Utterance& utterance, const qtts::ModelInfo& model) const;
  // Returns the warning if the language that is set does not fit the text: once for a text of the sink pad.
  std::string LanguageWarningOf(const Utterance& utterance, const qtts::ModelInfo& model);
  // Returns those of `warnings` that are new in this run.
  std::vector<std::string> NewWarnings(std::vector<std::string> warnings);

 private:
  const std::function<void()> announce_;
  const uint64_t random_;     // base of the seeds of this element
  bool in_parallel_ = false;  // option of the run

  uint64_t warned_stream_ = 0;  // the text of the sink pad that had a warning last
  std::set<std::string> language_warnings_;
  std::set<std::string> told_once_;  // warnings of this run
  VoiceStore voices_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_STARTER_H_
