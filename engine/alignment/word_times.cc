// SPDX-License-Identifier: LGPL-2.1-or-later
#include "alignment/word_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace qtts {
namespace {

std::chrono::nanoseconds Nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(std::llround(seconds * 1e9)));
}

}  // namespace

void WordTimes::Add(const TextRange& text, double moved, bool first, double part_begin) {
  words_.push_back({text, moved, first, part_begin, std::nullopt});
}

std::optional<double> WordTimes::earliest() const {
  if (words_.empty()) return std::nullopt;
  const Word& word = words_.front();
  const double moved = word.first ? std::min(word.part_begin, word.moved) : word.moved;
  return std::min(moved, word.start.value_or(moved)) - kBeforePause;
}

// Returns the start of a word by the sound; none while it is not known.
std::optional<double> WordTimes::Decide(const Word& word, const Pauses& pauses) const {
  const double far = word.moved + kPauseReach;
  const bool all_known = pauses.finished() || pauses.decided() > far;
  if (word.first) {
    const std::optional<double> sound = pauses.FirstSound(word.part_begin);
    if (sound && *sound >= word.moved - kFirstReach) return sound;
    if (!sound && !pauses.finished()) return std::nullopt;
  }
  const std::optional<Pauses::Silence> silence = pauses.Next(word.moved);
  if (silence && silence->begin <= word.moved + kBeforePause) {
    if (silence->end) return *silence->end <= far ? *silence->end : word.moved;
    return all_known || pauses.known() > far ? std::optional(word.moved) : std::nullopt;
  }
  // A silence may still begin near the word.
  if (all_known || pauses.decided() > word.moved + kBeforePause) return word.moved;
  return std::nullopt;
}

std::vector<SpokenWord> WordTimes::Take(const Pauses& pauses, double next) {
  std::vector<SpokenWord> taken;
  for (size_t i = 0; i < words_.size(); ++i) {
    Word& word = words_[i];
    if (word.start) continue;
    word.start = Decide(word, pauses);
    if (!word.start) break;
    word.start = std::max(*word.start, 0.0);
    if (last_start_) word.start = std::max(*word.start, *last_start_ + kSpacing);
    last_start_ = word.start;
  }
  while (!words_.empty() && words_.front().start) {
    const Word& word = words_.front();
    std::optional<double> end;
    if (words_.size() > 1 && words_[1].start) end = words_[1].start;
    std::optional<Pauses::Silence> silence = pauses.Next(*word.start);
    while (silence && silence->begin <= *word.start) silence = silence->end ? pauses.Next(*silence->end) : std::nullopt;
    if (silence && (!end || silence->begin < *end)) {
      // The next word is not known to begin later, unless none can begin before.
      if (end || (words_.size() == 1 && silence->begin <= next) || pauses.finished()) {
        end = silence->begin;
      }
    }
    if (!end && pauses.finished() && words_.size() == 1) end = std::max(pauses.known(), *word.start);
    if (!end) break;
    taken.push_back({word.text, Nanoseconds(*word.start), Nanoseconds(*end) - Nanoseconds(*word.start)});
    words_.pop_front();
  }
  return taken;
}

}  // namespace qtts
