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

// Appends the words of an utterance that begins at `begin` seconds of the sound, with its text and its report.
void AppendWords(const WordsOfSpeech& utterance, double begin, WordsOfSpeech* all);

// Checks the ending of a file of words: .vtt, .srt, .json or .TextGrid.
Status CheckWordsFile(const std::string& path);

// Returns the words, the text and the report.
Json WordsJson(const WordsOfSpeech& speech);

// Prints a line for each word, with its beginning and end, and the report to standard output.
void PrintWords(const WordsOfSpeech& speech);

// Writes the words to `path`, in the format of its ending: WebVTT or SubRip with a cue for each word, JSON, or Praat's
// TextGrid with an interval tier.
Status WriteWords(const std::string& path, const WordsOfSpeech& speech);

// Returns the report as JSON: measured, coverage, tokens, words skipped and repeated, end_missed, stopped_early.
Json ReportJson(const SpeechReport& report, std::string_view text);

}  // namespace qtts

#endif  // QTTS_TOOLS_WORDS_H_
