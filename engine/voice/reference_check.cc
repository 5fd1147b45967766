// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference_check.h"

#include <glib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "qtts/utf8.h"
#include "voice/loudness.h"
#include "voice/reference.h"
#include "voice/reference_shape.h"

namespace qtts {
namespace {

constexpr double kMaxSilence = 0.5;    // seconds in front
constexpr double kGoodLoudness = -30;  // LUFS
constexpr double kMinSnr = 20;         // dB
constexpr double kMinLetterRate = 6;   // letters a second of speech, see CountSpokenLetters()
constexpr double kMaxLetterRate = 26;
// Clipping: runs of samples at the recording's peak, which unclipped sound reaches a few times and for one sample.
constexpr size_t kMinClippedRun = 3;
constexpr size_t kMinClippedRuns = 5;
constexpr float kMinClippedPeak = 0.1F;
constexpr float kSampleStep = 1.0F / 32768;

// Returns a text with numbers, as printf() writes them.
template <typename... Numbers>
std::string Formatted(const char* format, Numbers... numbers) {
  char text[512];
  std::snprintf(text, sizeof text, format, numbers...);
  return text;
}

double SecondsOf(size_t samples) { return static_cast<double>(samples) / kReferenceRate; }

// Returns the number of samples in the flat tops of one channel; 0 if there are too few to be clipping.
size_t CountClipped(std::span<const float> samples, size_t channel, size_t channels, float peak) {
  size_t clipped = 0;
  size_t runs = 0;
  size_t run = 0;
  for (size_t i = channel; i < samples.size(); i += channels) {
    run = std::fabs(samples[i]) >= peak - kSampleStep ? run + 1 : 0;
    if (run == kMinClippedRun) {
      ++runs;
      clipped += run;
    } else if (run > kMinClippedRun) {
      ++clipped;
    }
  }
  return runs >= kMinClippedRuns ? clipped : 0;
}

// Returns the number of clipped samples in the recording as it came: resampling makes flat tops round.
size_t CountClipped(const Recording& recording) {
  const auto channels = static_cast<size_t>(recording.channels);
  size_t clipped = 0;
  for (size_t channel = 0; channel < channels; ++channel) {
    float peak = 0;
    for (size_t i = channel; i < recording.samples.size(); i += channels) {
      peak = std::max(peak, std::fabs(recording.samples[i]));
    }
    if (peak >= kMinClippedPeak) clipped += CountClipped(recording.samples, channel, channels, peak);
  }
  return clipped;
}

// Returns the fault of a quiet sound; none for a sound that is loud enough, or too short to be measured.
std::optional<ReferenceFinding> FindQuiet(std::span<const float> pcm) {
  const std::string problem = "the reference recording is quiet, ";
  const std::string remedy = Formatted("record it louder, at %.0f LUFS or more", kGoodLoudness);
  if (const auto loudness = MeasureLoudness(pcm, kReferenceRate)) {
    if (*loudness >= kGoodLoudness) return std::nullopt;
    return ReferenceFinding{ReferenceFault::kQuiet, problem + Formatted("%.1f LUFS", *loudness),
                            remedy + ", or have it prepared"};
  }
  // A sound above full scale has no loudness if it is too loud.
  const bool loud = std::ranges::any_of(pcm, [](float sample) { return std::fabs(sample) > 1; });
  if (loud || SecondsOf(pcm.size()) < kLoudnessBlock) return std::nullopt;
  return ReferenceFinding{ReferenceFault::kQuiet, problem + Formatted("below %.0f LUFS", kMinMeasuredLoudness), remedy};
}

double LettersOf(char32_t code) {
  constexpr double kHan = 3.5;
  constexpr double kKana = 2;
  constexpr double kHangul = 2.5;
  constexpr double kDigit = 4;
  if (g_unichar_isdigit(code) != FALSE) return kDigit;
  if (g_unichar_isalpha(code) == FALSE) return 0;
  switch (g_unichar_get_script(code)) {
    case G_UNICODE_SCRIPT_HAN:
      return kHan;
    case G_UNICODE_SCRIPT_HIRAGANA:
    case G_UNICODE_SCRIPT_KATAKANA:
      return kKana;
    case G_UNICODE_SCRIPT_HANGUL:
      return kHangul;
    default:
      return 1;
  }
}

// Adds the faults of a recording that is an example for the model.
void CheckExample(const ReferenceShape& shape, double seconds, const CloneOptions& options,
                  std::vector<ReferenceFinding>* findings) {
  const std::string& text = options.reference_text;
  if (const double silence = SecondsOf(shape.begin); silence > kMaxSilence) {
    findings->push_back(
        {ReferenceFault::kSilenceInFront,
         Formatted("the reference recording begins with %.2f s of silence, which the voice copies", silence),
         "cut it to 0.1 s, or have the recording prepared"});
  }
  if (!options.pad_reference && shape.tail > shape.tail_limit) {
    findings->push_back(
        {ReferenceFault::kLoudTail,
         Formatted("the reference recording ends within a sound, at %.0f dB of its speech where %.0f dB or "
                   "less is quiet, and speech may begin with that sound",
                   shape.tail - shape.speech, shape.tail_limit - shape.speech),
         "cut it in a pause, pad it, or have it prepared"});
  }
  if (seconds > kMaxGoodSeconds) {
    findings->push_back(
        {ReferenceFault::kLong,
         Formatted("the reference recording is %.1f s long, and with its transcript more than %.0f s costs "
                   "time and makes the voice no better",
                   seconds, kMaxGoodSeconds),
         "cut out 3 to 15 s, and the transcript with it"});
  }
  const double rate = CountSpokenLetters(text) / std::max(shape.spoken, 0.1);
  if (rate > kMaxLetterRate) {
    findings->push_back({ReferenceFault::kTextTooLong,
                         Formatted("the transcript does not fit the reference recording, with %.1f letters a second of "
                                   "speech, more than anyone says (%.0f)",
                                   rate, kMaxLetterRate),
                         "leave out the words that are not in the recording"});
  } else if (rate < kMinLetterRate) {
    findings->push_back({ReferenceFault::kTextTooShort,
                         Formatted("the transcript does not fit the reference recording, with %.1f letters a second of "
                                   "speech, fewer than slow speech (%.0f)",
                                   rate, kMinLetterRate),
                         "write down all words of the recording, numbers in words"});
  }
}

}  // namespace

double CountSpokenLetters(std::string_view text) {
  double letters = 0;
  while (!text.empty()) {
    const Utf8Char next = DecodeUtf8(text);
    letters += LettersOf(next.code);
    text.remove_prefix(next.size);
  }
  return letters;
}

std::vector<ReferenceFinding> CheckReference(const Recording& recording, std::span<const float> pcm,
                                             const CloneOptions& options) {
  std::vector<ReferenceFinding> findings;
  const ReferenceShape shape = MeasureShape(pcm);
  if (!options.reference_text.empty()) CheckExample(shape, SecondsOf(pcm.size()), options, &findings);
  if (auto quiet = FindQuiet(pcm)) findings.push_back(*std::move(quiet));
  if (const size_t clipped = CountClipped(recording); clipped > 0) {
    const double share = static_cast<double>(clipped) / static_cast<double>(recording.samples.size());
    findings.push_back({ReferenceFault::kClipped,
                        Formatted("the reference recording is clipped in %zu samples (%.2g %%), which the voice copies",
                                  clipped, 100 * share),
                        "record it at a lower level"});
  }
  if (shape.snr() < kMinSnr) {
    findings.push_back(
        {ReferenceFault::kNoisy,
         Formatted("the reference recording is noisy, with pauses only %.0f dB below its speech", shape.snr()),
         Formatted("record it in a quiet place without music; %.0f dB or more are good", kMinSnr)});
  }
  return findings;
}

}  // namespace qtts
