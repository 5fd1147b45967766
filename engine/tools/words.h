// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_WORDS_H_
#define QTTS_TOOLS_WORDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "print_json.h"
#include "qtts/status.h"
#include "qtts/words.h"

namespace qtts {

// The spoken words of an utterance, and what was spoken of its text.
struct WordsOfSpeech {
  std::string text;  // as the model got it
  std::vector<SpokenWord> words;
  SpeechReport report;
  double seconds = 0;  // of the sound
};

// Checks the ending of a file of words: .vtt, .srt, .json or .TextGrid.
Status CheckWordsFile(const std::string& path);

// Writes the words to `path`, in the format of its ending: WebVTT or SubRip with a cue for each word, JSON, or Praat's
// TextGrid with an interval tier.
Status WriteWords(const std::string& path, const WordsOfSpeech& speech);

// The report as JSON: measured, coverage, tokens, words skipped and repeated, end_missed, stopped_early.
Json ReportJson(const SpeechReport& report, std::string_view text);

}  // namespace qtts

#endif  // QTTS_TOOLS_WORDS_H_
