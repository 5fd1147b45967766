// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/reference_repair.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <span>

#include "voice/loudness.h"
#include "voice/reference.h"
#include "voice/reference_check.h"
#include "voice/reference_shape.h"

namespace qtts {
namespace {

constexpr size_t ToSamples(size_t ms) { return ms * kReferenceRate / 1000; }

constexpr size_t kFront = ToSamples(100);
constexpr size_t kBack = ToSamples(200);
constexpr size_t kMaxBack = ToSamples(300);
constexpr size_t kFade = ToSamples(20);
constexpr size_t kAppended = ToSamples(250);
constexpr size_t kMinLength = ToSamples(1000);
// A recording is not made shorter than this for the sake of its end.
constexpr size_t kMinGood = ToSamples(3000);
constexpr size_t kPause = 8;  // levels of the shortest pause at which it is cut
constexpr double kTarget = -23;
constexpr double kTargetStep = 0.5;  // dB; a smaller change is none
const double kMaxPeak = std::pow(10, -1.0 / 20);

std::string Tell(const char* format, double value) {
  char text[160];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

double ToSeconds(size_t samples) { return static_cast<double>(samples) / kReferenceRate; }

void FadeOut(std::vector<float>* pcm) {
  const size_t length = std::min(kFade, pcm->size());
  for (size_t i = 0; i < length; ++i) {
    (*pcm)[pcm->size() - 1 - i] *= static_cast<float>(i) / static_cast<float>(length);
  }
}

// Returns the end of the last pause that begins at `from` or later, or a place in it if it is longer than kPause,
// before `until`. None if there is no pause.
std::optional<size_t> LastPause(const ReferenceShape& shape, size_t from, size_t until) {
  size_t run = 0;
  const size_t last = std::min(until / kLevelSamples, shape.levels.size());
  for (size_t i = last; i > from / kLevelSamples; --i) {
    run = shape.levels[i - 1] <= shape.threshold ? run + 1 : 0;
    if (run == kPause) return (i - 1 + kPause) * kLevelSamples;
  }
  return std::nullopt;
}

// Cuts silence in front and at the end.
void TrimSilence(std::vector<float>* pcm, std::vector<std::string>* done) {
  const ReferenceShape shape = MeasureShape(*pcm);
  if (shape.end == 0) return;
  if (const size_t silence = pcm->size() - shape.end; silence > kMaxBack) {
    done->push_back(Tell("cut %.2f s of silence at the end", ToSeconds(silence - kBack)));
    pcm->resize(shape.end + kBack);
    FadeOut(pcm);
  }
  if (shape.begin > kFront) {
    done->push_back(Tell("cut %.2f s of silence in front", ToSeconds(shape.begin - kFront)));
    pcm->erase(pcm->begin(), pcm->begin() + static_cast<ptrdiff_t>(shape.begin - kFront));
  }
}

// Cuts a recording without a transcript to kMaxGoodSeconds.
void Shorten(std::vector<float>* pcm, std::vector<std::string>* done) {
  const size_t longest = static_cast<size_t>(kMaxGoodSeconds) * kReferenceRate;
  if (pcm->size() <= longest) return;
  const double before = ToSeconds(pcm->size());
  pcm->resize(LastPause(MeasureShape(*pcm), kMinGood, longest).value_or(longest));
  FadeOut(pcm);
  done->push_back(Tell("cut %.2f s at the end, for a length of", before - ToSeconds(pcm->size())) +
                  Tell(" %.2f s", ToSeconds(pcm->size())));
}

// Makes the end quiet.
void QuietEnd(bool has_text, std::vector<float>* pcm, std::vector<std::string>* done) {
  const ReferenceShape shape = MeasureShape(*pcm);
  if (shape.tail <= shape.tail_limit) return;
  const auto pause = has_text ? std::nullopt : LastPause(shape, kMinGood, pcm->size());
  if (pause) {
    done->push_back(Tell("cut %.2f s at the end, back to a pause", ToSeconds(pcm->size() - *pause)));
    pcm->resize(*pause);
    FadeOut(pcm);
    return;
  }
  FadeOut(pcm);
  pcm->resize(pcm->size() + kAppended);
  done->push_back(Tell("faded the end and appended %.2f s of silence", ToSeconds(kAppended)));
}

void NormalizeLevel(std::vector<float>* pcm, std::vector<std::string>* done) {
  const std::optional<double> loudness = MeasureLoudness(*pcm, kReferenceRate);
  if (!loudness) return;
  double peak = 0;
  for (const float sample : *pcm) peak = std::max(peak, std::fabs(static_cast<double>(sample)));
  const double change = std::min(kTarget - *loudness, 20 * std::log10(kMaxPeak / peak));
  if (std::fabs(change) < kTargetStep) return;
  const auto gain = static_cast<float>(std::pow(10, change / 20));
  for (float& sample : *pcm) sample *= gain;
  done->push_back(Tell("changed the level by %+.1f dB", change) + Tell(", to %.1f LUFS", *loudness + change));
}

}  // namespace

Result<std::vector<std::string>> RepairReference(bool has_text, std::vector<float>* pcm) {
  std::vector<std::string> done;
  TrimSilence(pcm, &done);
  if (!has_text) Shorten(pcm, &done);
  QuietEnd(has_text, pcm, &done);
  if (pcm->size() < kMinLength) {
    return Status::InvalidArgument(
        Tell("the reference recording has only %.2f s of sound, expected 1 s at least; 3 to 15 "
             "s of clear speech make the best voice",
             ToSeconds(pcm->size())));
  }
  NormalizeLevel(pcm, &done);
  return done;
}

}  // namespace qtts
