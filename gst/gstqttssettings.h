// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SETTINGS_H_
#define GST_QTTS_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/status.h"

namespace gstqtts {

// What an application set on the element for its next utterance. Plain values; a copy travels with
// each text, so that a later change does not touch what was accepted before.
struct Settings {
  // Value of every numeric setting that was left alone: the model's own value holds.
  static constexpr int kModel = -1;

  std::string speaker;
  std::string language;
  std::string instruct;
  std::string voice_file;       // a cloned voice that was saved
  std::string reference_audio;  // a recording to clone
  std::string reference_text;   // what it says; empty: only its timbre is cloned
  bool pad_reference = false;   // CloneOptions::pad_reference
  qtts::PromptLayout layout = qtts::PromptLayout::kDefault;
  int64_t seed = -1;            // -1: a new one for every utterance
  double temperature = kModel;  // 0: greedy
  int top_k = kModel;
  double top_p = kModel;
  double repetition_penalty = kModel;
  double subtalker_temperature = kModel;  // 0: greedy
  int subtalker_top_k = kModel;
  double subtalker_top_p = kModel;
  bool runaway_guard = true;
  bool speak_anything = false;   // also what IsSayable() finds nothing in
  uint64_t max_duration = 0;     // nanoseconds; 0: the model's own cap
  uint64_t max_wait = kForever;  // nanoseconds; 0: it does not wait

  static constexpr uint64_t kForever = UINT64_MAX;

  bool operator==(const Settings&) const = default;

  bool names_voice() const { return !voice_file.empty() || !reference_audio.empty(); }
};

// How text from the sink pad becomes utterances.
enum class Segmentation {
  kAuto,      // kSentence where buffers are pieces of a file, else kNone
  kNone,      // each buffer is one
  kSentence,  // each sentence is one
  kStream,    // one that grows with each buffer until it is ended
};

struct TextOptions {
  Segmentation segmentation = Segmentation::kAuto;
  bool newline_ends = false;         // whether a line end ends a sentence or a growing utterance
  uint64_t timeout = 1'000'000'000;  // nanoseconds without text that end one; kNever
  uint32_t max_chars = 4000;         // longest utterance
  uint32_t max_queued = 65536;       // characters that may wait

  static constexpr uint64_t kNever = UINT64_MAX;
};

// What leaves the element when there is no text to speak.
enum class IdleMode { kAuto, kEos, kWait, kSilence };

// What timestamps of text mean.
enum class TextTiming { kIgnore, kStart, kShift, kClip };

// When sound leaves the element. Times in nanoseconds.
struct Pacing {
  bool is_live = false;
  IdleMode idle_mode = IdleMode::kAuto;
  uint64_t latency = 0;
  uint64_t leading_silence = 0;
  uint64_t utterance_gap = 0;
  bool trim_leading_silence = false;
  TextTiming text_timing = TextTiming::kIgnore;

  // What fills the time without text; never kAuto.
  IdleMode idle() const {
    if (idle_mode != IdleMode::kAuto) return idle_mode;
    return is_live ? IdleMode::kSilence : IdleMode::kEos;
  }
};

// The values of the element's properties, by who uses them; the initial ones are the defaults. gstqttspropertytable.h
// says which property is kept where.
struct Properties {
  qtts::EngineOptions engine;  // no model_path: the bundled voice
  std::optional<std::string> text;
  TextOptions text_options;
  Settings utterance;
  Pacing pacing;
};

// BCP-47 tag of the language that is asked for; empty: that of the text, which nobody knows.
std::string LanguageTag(const Settings& settings);

// What can be said of settings without a model: kInvalidArgument for a voice that is named twice or by half.
qtts::Status CheckSettings(const Settings& settings);
// And with what is known of one from READY on: a speaker or a language that it has not, a kind of voice that it cannot
// speak with. What is left for the engine to judge: whether a voice's files are there and any good, and the text.
qtts::Status CheckSettings(const Settings& settings, const qtts::ModelInfo& model);

// The engine's request for `text`: the settings over the defaults of the model. `random_seed` is
// taken where the settings name no seed. Values out of range are passed on: the engine refuses them.
qtts::Request MakeRequest(const Settings& settings, const qtts::ModelInfo& model, std::string text,
                          uint64_t random_seed);

}  // namespace gstqtts

#endif  // GST_QTTS_SETTINGS_H_
