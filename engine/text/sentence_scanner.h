// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_SENTENCE_SCANNER_H_
#define QTTS_TEXT_SENTENCE_SCANNER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/abbreviations.h"

namespace qtts {

// Finds the end of one sentence in text that comes character by character: the rules of UAX #29 on ICU's character
// properties, with further rules for abbreviations, addresses, footnote marks and quotes. It is no ICU iterator because
// those need the whole text: this one decides an end as soon as no later text can change it, and looks at each
// character at most twice.
//
// Line ends must be spaces. Positions are in characters from the beginning of the sentence. Not thread-safe.
class SentenceScanner {
 public:
  // `abbreviations` must outlive the scanner.
  explicit SentenceScanner(const Abbreviations* abbreviations) : abbreviations_(abbreviations) {}

  // Adds a character. Only before an end is found.
  void Push(char32_t c);
  // Ends the text: decides an end that waits for more of it. Afterwards only Drop() and Clear() may be called.
  void Finish();
  // Returns the end of the sentence, behind its closing quotes and footnote marks; none until it is found.
  std::optional<size_t> end() const { return end_; }
  // Returns, without an end, one that later text may confirm, if there is one.
  std::optional<size_t> possible_end() const;
  // Removes the first `count` characters and looks at the others anew.
  void Drop(size_t count);
  void Clear() { Drop(text_.size()); }
  // Tells that the first `count` characters, which come next, number an item of a list: full stops in them end nothing.
  void SetLabel(size_t count) { label_ = count; }
  void SetAbbreviations(const Abbreviations* abbreviations);

  // Returns the characters so far.
  const std::u32string& text() const { return text_; }

 private:
  // Place in the text; the next character may decide on a sentence's end there.
  enum class State {
    kText,    // nothing
    kMark,    // behind the marks of an end, or what closes with them
    kNote,    // within "[1]" behind them
    kSpaces,  // behind white space behind them
    kDot,     // behind a mark after that, ". .": of the end, or ".5"
    kQuote,   // behind a quote after that which may open or close
    kSearch,  // before the first letter, on which a full stop depends
    kWord,    // within the first word
    kSpeech,  // within the first words behind a quote in Chinese or Japanese
  };
  enum class Mark { kStop, kDots, kOther };

  void Scan();
  void ScanText(char32_t c);
  void ScanMark(char32_t c);
  void ScanNote(char32_t c);
  void ScanSpaces(char32_t c);
  void ScanDot(char32_t c);
  void ScanQuote(char32_t c);
  void ScanSearch(char32_t c);
  void ScanWord(char32_t c);
  void ScanSpeech(char32_t c);

  void BeginMark(char32_t c);
  void FollowMark(char32_t c);
  void FollowDirectly(char32_t c);
  void DecideLetter(char32_t c);
  void DecideNumber();
  void DecideWord(std::optional<char32_t> next);
  void Confirm() { end_ = mark_end_; }
  void Reject();
  void Rescan(size_t position, State state);

  FullStopRole StopRole() const;
  FullStopRole FindStopRole() const;
  std::string WordBeforeStop(size_t* start) const;
  bool IsContraction(size_t start) const;

  const Abbreviations* abbreviations_;
  std::u32string text_;
  size_t scanned_ = 0;
  size_t label_ = 0;
  std::optional<size_t> end_;
  State state_ = State::kText;
  bool in_address_ = false;  // the word so far is an address of the network
  size_t word_begin_ = 0;    // of the last word, up to white space

  // The marks that may end the sentence.
  Mark mark_ = Mark::kStop;
  bool ellipsis_ = false;                          // the last one is U+2026
  bool closed_ = false;                            // a quote or bracket closes behind them
  bool spaced_ = false;                            // white space follows
  bool detached_ = false;                          // white space, or nothing, is before them
  mutable std::optional<FullStopRole> stop_role_;  // once it is known
  size_t mark_begin_ = 0;                          // the last mark; of dots, the first
  size_t mark_end_ = 0;                            // end of the sentence, if it ends
  size_t begin_ = 0;                               // begin of the note or word behind them
};

}  // namespace qtts

#endif  // QTTS_TEXT_SENTENCE_SCANNER_H_
