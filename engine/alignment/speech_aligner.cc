// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/speech_aligner.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace qtts {
namespace {

constexpr double kMillisecond = 1e-3;

void Append(const std::vector<TextRange>& from, std::vector<TextRange>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

SpeechAligner::SpeechAligner(const Options& options)
    : frame_seconds_(static_cast<double>(options.samples_per_frame) / options.sample_rate),
      offset_seconds_(options.offset_ms * kMillisecond),
      pauses_(options.sample_rate) {}

void SpeechAligner::BeginPart() {
  part_ = Part();
  part_.first_frame = frames_;
}

void SpeechAligner::SetPrompt(int64_t rows, size_t text_begin) {
  part_.prompt_rows = rows;
  part_.text_begin = static_cast<int64_t>(text_begin);
}

void SpeechAligner::AddText(std::span<const size_t> token_ends, std::span<const TextRange> words) {
  part_.token_ends.insert(part_.token_ends.end(), token_ends.begin(), token_ends.end());
  part_.unplaced.insert(part_.unplaced.end(), words.begin(), words.end());
  PlaceWords();
  report_.tokens = tokens_ + part_.token_ends.size();
}

void SpeechAligner::FinishText() {
  if (std::exchange(part_.complete, true)) return;
  part_.coverage.SetTextTokens(static_cast<int32_t>(part_.token_ends.size()));
  PlaceWords();
}

// Finds the tokens of words.
void SpeechAligner::PlaceWords() {
  const std::vector<size_t>& ends = part_.token_ends;
  while (!part_.unplaced.empty() && !ends.empty()) {
    const TextRange range = part_.unplaced.front();
    if (ends.back() < range.end && !part_.complete) return;
    // Words come in order, so their tokens lie behind those of the word before.
    const auto from = ends.begin() + (part_.words.empty() ? 0 : part_.words.back().first);
    const auto first = std::upper_bound(from, ends.end(), range.begin);
    const auto last = std::lower_bound(from, ends.end(), range.end);
    const auto most = static_cast<int32_t>(ends.size()) - 1;
    TokenWord word{range, static_cast<int32_t>(first - ends.begin()), static_cast<int32_t>(last - ends.begin())};
    word.first = std::min(word.first, most);
    word.last = std::clamp(word.last, word.first, most);
    part_.words.push_back(word);
    part_.coverage.AddWord(word);
    part_.unplaced.pop_front();
  }
}

TextWindow SpeechAligner::WindowOf(int64_t frame) const {
  if (!supported_) return {};
  // The end token follows the last one. The row that chooses the frame is the last that exists for it.
  const auto tokens = static_cast<int64_t>(part_.token_ends.size()) + (part_.complete ? 1 : 0);
  const int64_t end = std::min(part_.text_begin + tokens, part_.prompt_rows + frame);
  TextWindow window;
  window.text_begin = static_cast<int32_t>(part_.text_begin);
  window.text_end = static_cast<int32_t>(std::max(end, int64_t{0}));
  if (!window.wanted()) return {};
  window.begin = std::min(window.text_begin + part_.path.WindowBegin(frame), window.text_end - 1);
  return window;
}

std::vector<SpokenWord> SpeechAligner::AddFrame(const TextWindow& window, const TextScores& scores,
                                                std::span<const float> pcm) {
  if (!supported_) return {};
  if (window.wanted() && scores.scores.empty()) {
    supported_ = false;
    UpdateReport();
    return {};
  }
  ++frames_;
  pauses_.Add(pcm);
  part_.path.Add(window.begin - window.text_begin, scores);
  TakePlaced();
  UpdateReport();
  if (!report_.measured) return {};
  // No word begins before the first frame that is not placed.
  const double placed = SecondsOf(static_cast<double>(part_.first_frame + part_.path.placed() - 1)) + offset_seconds_;
  std::vector<SpokenWord> words = times_.Take(pauses_, placed);
  const double part_begin = SecondsOf(static_cast<double>(part_.first_frame));
  const double open = part_.timed_words == 0 ? part_begin : placed;
  pauses_.Forget(std::min(times_.earliest().value_or(open), open) - 2 * WordTimes::kPauseReach);
  return words;
}

// Passes placed frames on: to the coverage, and the beginnings of words to their times.
void SpeechAligner::TakePlaced() {
  const TextPath& path = part_.path;
  for (const PlacedFrame& frame : part_.path.Take()) {
    part_.coverage.Add(frame, path, path.WindowBegin(path.frames()));
  }
  const double part_begin = SecondsOf(static_cast<double>(part_.first_frame));
  while (part_.timed_words < part_.words.size()) {
    const TokenWord& word = part_.words[part_.timed_words];
    if (word.first > path.position()) break;
    const double moved = part_begin + SecondsOf(path.StartOf(word.first)) + offset_seconds_;
    times_.Add(word.text, moved, part_.timed_words == 0, part_begin);
    ++part_.timed_words;
  }
}

void SpeechAligner::FinishPart() {
  if (!supported_) return;
  part_.path.Finish();
  TakePlaced();
  part_.coverage.Finish(part_.path);
  const Coverage& coverage = part_.coverage;
  trusted_ = trusted_ && coverage.trusted();
  Append(coverage.skipped(), &earlier_.skipped);
  Append(coverage.repeated(), &earlier_.repeated);
  earlier_.end_missed = earlier_.end_missed || coverage.end_missed();
  earlier_.stopped_early = earlier_.stopped_early || coverage.stopped_early();
  tokens_ += part_.token_ends.size();
  spoken_tokens_ += static_cast<size_t>(coverage.spoken_tokens());
  part_ = Part();
  part_.first_frame = frames_;
  UpdateReport();
}

std::vector<SpokenWord> SpeechAligner::Finish() {
  if (!supported_) return {};
  pauses_.Finish();
  if (!report_.measured) return {};
  return times_.Take(pauses_, std::numeric_limits<double>::infinity());
}

void SpeechAligner::UpdateReport() {
  const Coverage& coverage = part_.coverage;
  // A part that has just begun says nothing yet.
  const bool trusted = trusted_ && (part_.path.placed() == 0 || coverage.trusted());
  report_.measured = supported_ && trusted && (frames_ > 0);
  if (!report_.measured) {
    const size_t tokens = tokens_ + part_.token_ends.size();
    report_ = SpeechReport();
    report_.tokens = tokens;
    return;
  }
  report_.tokens = tokens_ + part_.token_ends.size();
  report_.spoken_tokens = spoken_tokens_ + static_cast<size_t>(coverage.spoken_tokens());
  const auto join = [](const std::vector<TextRange>& before, const std::vector<TextRange>& now,
                       std::vector<TextRange>* to) {
    if (to->size() == before.size() + now.size()) return;
    *to = before;
    Append(now, to);
  };
  join(earlier_.skipped, coverage.skipped(), &report_.skipped);
  join(earlier_.repeated, coverage.repeated(), &report_.repeated);
  report_.end_missed = earlier_.end_missed || coverage.end_missed();
  report_.stopped_early = earlier_.stopped_early;
}

}  // namespace qtts
