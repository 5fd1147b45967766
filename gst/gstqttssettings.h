// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SETTINGS_H_
#define GST_QTTS_SETTINGS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "qtts/engine_options.h"
#include "qtts/markup.h"
#include "qtts/model_info.h"
#include "qtts/request.h"
#include "qtts/sampling_numbers.h"
#include "qtts/segmenter.h"
#include "qtts/status.h"
#include "qtts/text_preparer.h"

namespace gstqtts {

// Settings of the next utterance. Plain values. Each text carries a copy, so a later change does not affect accepted
// text.
struct Settings {
  // Value of a number that is not set: the model's own value is used.
  static constexpr int kModel = -1;
  // Value of `retry`: kRetriesAhead with TextOptions::parallel above 1, else 0.
  static constexpr int kAutoRetry = -1;
  static constexpr int kRetriesAhead = 2;

  std::string speaker;
  std::string language;
  std::string instruct;
  std::string voice_file;          // a cloned or designed voice that was saved
  std::string style;               // which of its takes, by its manner
  std::string reference_audio;     // a recording to clone
  std::string reference_text;      // its transcript; empty: only the timbre is cloned
  bool pad_reference = false;      // CloneOptions::pad_reference
  bool prepare_reference = false;  // CloneOptions::prepare
  qtts::PromptLayout layout = qtts::PromptLayout::kDefault;
  // Rate of the speech: 2 is twice as fast. Nothing: Pacing::rate, also while it is spoken.
  std::optional<double> rate;
  int64_t seed = -1;                                                          // -1: a new one for every utterance
  std::array<double, qtts::kSamplingNumberCount> sampling = ModelSampling();  // by index in kSamplingNumbers
  int part_length = kModel;                                                   // characters; 0: one part
  qtts::Normalize normalize = qtts::Normalize::kModel;
  qtts::Emoji emoji = qtts::Emoji::kSilent;
  std::string lexicon;  // files, as for qtts::Lexicon::Load()
  qtts::Markup markup = qtts::Markup::kAuto;
  std::string markup_rules;  // as for qtts::ParseMarkdownRules()
  bool runaway_guard = true;
  int runaway_frames = 12;       // Request::runaway_frames_per_token
  bool speak_anything = false;   // speaks also text that fails IsSayable()
  uint64_t max_duration = 0;     // nanoseconds; 0: the model's own cap
  uint64_t max_wait = kForever;  // nanoseconds; 0: it does not wait
  bool real_time = true;         // Request::real_time
  int parallel_parts = 1;        // Request::parallel_parts
  // Maximum number of times that a faulty utterance is made again. Not once its sound has begun to leave the element.
  int retry = kAutoRetry;

  double target_loudness = kAnyLoudness;  // LUFS

  static constexpr uint64_t kForever = UINT64_MAX;
  // Value of `target_loudness`: the sound stays as the model makes it.
  static constexpr double kAnyLoudness = 0;

  bool operator==(const Settings&) const = default;

  bool names_voice() const { return !voice_file.empty() || !reference_audio.empty(); }

 private:
  static constexpr std::array<double, qtts::kSamplingNumberCount> ModelSampling() {
    std::array<double, qtts::kSamplingNumberCount> sampling{};
    sampling.fill(kModel);
    return sampling;
  }
};

// Division of text from the sink pad into utterances.
enum class Segmentation {
  kAuto,      // kSentence where buffers are pieces of a file, else kNone
  kNone,      // each buffer is one
  kSentence,  // each sentence is one
  kStream,    // one that grows with each buffer until it is ended
};

struct TextOptions {
  Segmentation segmentation = Segmentation::kAuto;
  bool newline_ends = false;         // whether a line end ends a sentence or a growing utterance
  bool skip_footnote_marks = false;  // of sentences
  uint64_t timeout = 1'000'000'000;  // nanoseconds without text that end a sentence or a growing utterance; kNever
  uint32_t max_chars = 4000;         // longest utterance
  uint32_t max_queued = 65536;       // characters that may wait
  uint32_t parallel = 1;             // utterances that are made at once

  static constexpr uint64_t kNever = UINT64_MAX;
};

// Output of the element when there is no text to speak.
enum class IdleMode { kAuto, kEos, kWait, kSilence };

// Meaning of timestamps of text.
enum class TextTiming { kIgnore, kStart, kShift, kClip, kCompress };

// Choice whether the silence at the beginning of utterances is cut. The values of false and true are those of a
// boolean, which applications may set.
enum class TrimSilence {
  kNever = 0,
  kAlways = 1,
  kAuto = 2,  // for growing text alone
};

// Timing of the sound. Times in nanoseconds.
struct Pacing {
  static constexpr int64_t kAutoGap = -1;
  // Silence that kAutoGap adds to `utterance_gap`.
  static constexpr uint64_t kParagraphPause = 300'000'000;
  static constexpr uint64_t kHeadingPause = 500'000'000;

  bool is_live = false;
  IdleMode idle_mode = IdleMode::kAuto;
  uint64_t latency = 0;
  uint64_t leading_silence = 0;
  uint64_t utterance_gap = 0;
  int64_t paragraph_gap = kAutoGap;  // after a paragraph and a heading, instead of it
  int64_t heading_gap = kAutoGap;
  TrimSilence trim_leading_silence = TrimSilence::kAuto;
  bool gap_flag = false;
  TextTiming text_timing = TextTiming::kIgnore;
  double rate = 1;               // of speech whose settings have none
  double max_compression = 1.5;  // of TextTiming::kCompress
  uint64_t max_silence = 0;      // within an utterance; 0: unlimited

  // Returns the output during times without text; never kAuto.
  IdleMode idle() const {
    if (idle_mode != IdleMode::kAuto) return idle_mode;
    return is_live ? IdleMode::kSilence : IdleMode::kEos;
  }

  // Returns the silence before an utterance, by what ended before it.
  uint64_t GapAfter(qtts::SentenceGap before) const {
    switch (before) {
      case qtts::SentenceGap::kSentence:
        break;
      case qtts::SentenceGap::kParagraph:
        return paragraph_gap >= 0 ? static_cast<uint64_t>(paragraph_gap) : utterance_gap + kParagraphPause;
      case qtts::SentenceGap::kHeading:
        return heading_gap >= 0 ? static_cast<uint64_t>(heading_gap) : utterance_gap + kHeadingPause;
    }
    return utterance_gap;
  }
  // Returns true if leading silence is cut from an utterance whose text does (not) grow.
  bool trims(bool growing) const {
    if (trim_leading_silence == TrimSilence::kAuto) return growing;
    return trim_leading_silence == TrimSilence::kAlways;
  }
};

// The values of the element's properties, grouped by their users. Initial values are the defaults. The table in
// gstqttspropertytable.h maps properties to members.
struct Properties {
  qtts::EngineOptions engine;  // no model_path: the bundled voice
  std::optional<std::string> text;
  TextOptions text_options;
  Settings utterance;
  Pacing pacing;
  std::shared_ptr<const void> speaker_map;  // a GstStructure; null: unset
};

// Returns the BCP-47 tag of the requested language; empty if the text decides, since its language is unknown.
std::string LanguageTag(const Settings& settings);

// Checks settings without a model: kInvalidArgument for a voice that is specified twice or incompletely.
qtts::Status CheckSettings(const Settings& settings);
// Checks the settings also against the model, known from READY on: unknown speaker or language, a kind of voice that it
// does not support. The engine checks the rest: the voice's files and the text.
qtts::Status CheckSettings(const Settings& settings, const qtts::ModelInfo& model);

// Returns the preset voice that speaks where none is set; empty if the model has none.
std::string DefaultSpeaker(const qtts::ModelInfo& model);

// Returns the engine's request for `text`: the settings over the defaults of the model. `random_seed` is
// taken where the settings name no seed. Values out of range are passed on: the engine refuses them.
qtts::Request MakeRequest(const Settings& settings, const qtts::ModelInfo& model, std::string text,
                          uint64_t random_seed);

// Adapts a request of MakeRequest() to its voice: the code predictor's temperature for a designed one, unless it is
// set; an instruction that has chosen a take is for nothing else.
void AdaptToVoice(const Settings& settings, qtts::Request* request);

}  // namespace gstqtts

#endif  // GST_QTTS_SETTINGS_H_
