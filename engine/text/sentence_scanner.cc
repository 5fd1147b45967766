// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/sentence_scanner.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>

#include "qtts/utf8.h"

namespace qtts {
namespace {

constexpr char32_t kEllipsis = 0x2026;
constexpr size_t kLongestNote = 24;          // characters within [ ]
constexpr size_t kLongestDecidingWord = 24;  // of the words that decide; also of abbreviations
constexpr size_t kSpeechLetters = 5;         // within which a verb of speech follows a quote
constexpr size_t kLongestLabel = 3;          // digits of an item's number

UChar32 Icu(char32_t c) { return static_cast<UChar32>(c); }

// Returns the Sentence_Break property.
int BreakClass(char32_t c) { return u_getIntPropertyValue(Icu(c), UCHAR_SENTENCE_BREAK); }

bool IsBreakLetter(int type) { return type == U_SB_OLETTER || type == U_SB_UPPER || type == U_SB_LOWER; }
bool IsIgnored(int type) { return type == U_SB_EXTEND || type == U_SB_FORMAT; }
bool IsEndMark(int type, char32_t c) { return type == U_SB_ATERM || type == U_SB_STERM || c == kEllipsis; }

bool IsOpening(char32_t c) { return u_charType(Icu(c)) == U_START_PUNCTUATION; }

// Returns true for a quote that may open or close. Brackets tell by themselves.
bool IsQuote(char32_t c) {
  const int8_t category = u_charType(Icu(c));
  return c == '"' || c == '\'' || category == U_INITIAL_PUNCTUATION || category == U_FINAL_PUNCTUATION;
}

// Returns true for a quote that opens in most languages, and closes in German.
bool OpensOrCloses(char32_t c) { return u_charType(Icu(c)) == U_INITIAL_PUNCTUATION; }

// Returns true for characters that belong to an end mark if they are behind it without a space: emphasis of Markdown,
// raised numbers, pictographs.
bool ClingsToMark(char32_t c) {
  switch (c) {
    case '*':
    case '_':
    case '`':
    case '~':
    case 0x2020:  // dagger
    case 0x2021:
      return true;
    default:
      return u_charType(Icu(c)) == U_OTHER_NUMBER || u_charType(Icu(c)) == U_OTHER_SYMBOL ||
             u_hasBinaryProperty(Icu(c), UCHAR_EMOJI_PRESENTATION) != 0 ||
             u_hasBinaryProperty(Icu(c), UCHAR_EMOJI_MODIFIER) != 0;
  }
}

// Returns true for characters that may, within a word or an address, follow a mark directly: "watch?v=1", "a!b".
bool JoinsWord(char32_t c) { return std::u32string_view(U"=&/%#@+$\\|<").find(c) != std::u32string_view::npos; }

// Returns true for verbs that report a speech, "he said": Chinese.
bool IsVerbOfSpeech(char32_t c) {
  return std::u32string_view(U"说説說问問喊道答叫").find(c) != std::u32string_view::npos;
}

bool IsWordCharacter(char32_t c) { return u_isalnum(Icu(c)) != 0 || c == '.' || c == '-' || c == 0xB0; }
bool IsElisionMark(char32_t c) { return c == '\'' || c == 0x2019; }

std::string Encode(std::u32string_view text) {
  std::string encoded;
  for (const char32_t c : text) AppendUtf8(c, &encoded);
  return encoded;
}

}  // namespace

void SentenceScanner::Push(char32_t c) {
  text_.push_back(c);
  Scan();
}

void SentenceScanner::SetAbbreviations(const Abbreviations* abbreviations) {
  abbreviations_ = abbreviations;
  const size_t label = label_;
  Drop(0);
  label_ = label;
}

void SentenceScanner::Drop(size_t count) {
  text_.erase(0, count);
  label_ = 0;
  end_.reset();
  state_ = State::kText;
  scanned_ = 0;
  in_address_ = false;
  word_begin_ = 0;
  Scan();
}

std::optional<size_t> SentenceScanner::possible_end() const {
  if (state_ == State::kText || mark_end_ == 0) return std::nullopt;
  if (mark_ == Mark::kStop && StopRole() != FullStopRole::kNone) return std::nullopt;
  return mark_end_;
}

void SentenceScanner::Finish() {
  while (!end_ && state_ != State::kText) {
    switch (state_) {
      case State::kText:
      case State::kMark:
      case State::kSpaces:
      case State::kQuote:
      case State::kDot:
        return;  // the marks, and what closes with them, are the last
      case State::kNote:
        Rescan(begin_, State::kSearch);
        Scan();
        break;
      case State::kSearch:
        if (mark_ != Mark::kStop || StopRole() == FullStopRole::kNone) {
          Confirm();
        } else {
          Reject();
          Scan();
        }
        break;
      case State::kWord:
        DecideWord(std::nullopt);
        Scan();
        break;
      case State::kSpeech:
        Confirm();
        break;
    }
  }
}

void SentenceScanner::Scan() {
  while (!end_ && scanned_ < text_.size()) {
    const char32_t c = text_[scanned_++];
    switch (state_) {
      case State::kText:
        ScanText(c);
        break;
      case State::kMark:
        ScanMark(c);
        break;
      case State::kNote:
        ScanNote(c);
        break;
      case State::kSpaces:
        ScanSpaces(c);
        break;
      case State::kDot:
        ScanDot(c);
        break;
      case State::kQuote:
        ScanQuote(c);
        break;
      case State::kSearch:
        ScanSearch(c);
        break;
      case State::kWord:
        ScanWord(c);
        break;
      case State::kSpeech:
        ScanSpeech(c);
        break;
    }
  }
}

void SentenceScanner::Rescan(size_t position, State state) {
  scanned_ = position;
  state_ = state;
}

// Rejects the marks, which end nothing: what follows them is text.
void SentenceScanner::Reject() { Rescan(mark_end_, State::kText); }

void SentenceScanner::ScanText(char32_t c) {
  const size_t position = scanned_ - 1;
  if (IsWhiteSpace(c)) {
    word_begin_ = scanned_;
    in_address_ = false;
    return;
  }
  const std::u32string_view word = std::u32string_view(text_).substr(word_begin_, scanned_ - word_begin_);
  if (word.ends_with(U"://") || word == U"www." || c == '@') in_address_ = true;
  if (position < label_ || !IsEndMark(BreakClass(c), c)) return;
  detached_ = position == word_begin_;
  mark_end_ = 0;
  BeginMark(c);
}

void SentenceScanner::BeginMark(char32_t c) {
  const size_t position = scanned_ - 1;
  const bool dot = BreakClass(c) == U_SB_ATERM;
  const bool follows_dot = mark_end_ == position && position > 0 && mark_ != Mark::kOther;
  ellipsis_ = c == kEllipsis;
  if (ellipsis_ || (dot && follows_dot)) {
    if (!follows_dot) mark_begin_ = position;
    mark_ = Mark::kDots;
  } else {
    mark_begin_ = position;
    mark_ = dot ? Mark::kStop : Mark::kOther;
  }
  closed_ = false;
  spaced_ = false;
  stop_role_.reset();
  mark_end_ = scanned_;
  state_ = State::kMark;
}

void SentenceScanner::ScanMark(char32_t c) {
  const int type = BreakClass(c);
  if (IsIgnored(type) || (ClingsToMark(c) && !in_address_)) {
    mark_end_ = scanned_;
  } else if (IsEndMark(type, c)) {
    BeginMark(c);
  } else if (IsWhiteSpace(c)) {
    spaced_ = true;
    state_ = State::kSpaces;
  } else if (c == '[') {
    begin_ = scanned_ - 1;
    state_ = State::kNote;
  } else if (OpensOrCloses(c)) {
    begin_ = scanned_ - 1;
    state_ = State::kQuote;
  } else if (type == U_SB_CLOSE && !IsOpening(c)) {
    closed_ = true;
    mark_end_ = scanned_;
  } else if (type == U_SB_SCONTINUE) {
    Reject();
  } else {
    FollowDirectly(c);
  }
}

void SentenceScanner::ScanNote(char32_t c) {
  const size_t inside = scanned_ - begin_ - 1;  // characters, with this one
  if (c == ']' && inside > 1) {                 // at least one character
    mark_end_ = scanned_;
    state_ = State::kMark;
    return;
  }
  const bool alphanumeric = u_isalnum(Icu(c)) != 0;
  bool fits = alphanumeric || (inside > 1 && (c == ' ' || c == ',' || c == '-' || c == 0x2013));
  if (inside == 2 && alphanumeric && u_isupper(Icu(text_[begin_ + 1])) != 0) fits = false;  // "[See"
  if (fits && inside <= kLongestNote) return;
  // Another bracket: it opens what follows.
  Rescan(begin_, State::kSearch);
}

void SentenceScanner::ScanSpaces(char32_t c) {
  const int type = BreakClass(c);
  if (IsWhiteSpace(c) || IsIgnored(type)) return;
  begin_ = scanned_ - 1;
  if (IsEndMark(type, c)) {
    state_ = State::kDot;
  } else if (IsQuote(c) && !OpensOrCloses(c)) {
    state_ = State::kQuote;
  } else if (type == U_SB_CLOSE && !IsOpening(c) && !OpensOrCloses(c)) {
    closed_ = true;
    spaced_ = false;
    mark_end_ = scanned_;
    state_ = State::kMark;
  } else if (type == U_SB_SCONTINUE) {
    Reject();
  } else {
    FollowMark(c);
  }
}

// Scans a dot. A mark behind white space belongs to the end, ". . .", unless a letter or digit follows, ".5".
void SentenceScanner::ScanDot(char32_t c) {
  const char32_t mark = text_[begin_];
  if (IsBreakLetter(BreakClass(c)) || BreakClass(c) == U_SB_NUMERIC) {
    Rescan(begin_ + 1, State::kSearch);
    if (mark_ == Mark::kOther) Confirm();
    return;
  }
  Rescan(begin_ + 1, State::kText);
  if (mark_ != Mark::kOther) mark_end_ = begin_;  // spaced dots are an ellipsis
  BeginMark(mark);
}

// Scans a quote. It closes if white space or another mark follows. If it may open only, it is not in this state.
void SentenceScanner::ScanQuote(char32_t c) {
  const int type = BreakClass(c);
  const bool closes = type == U_SB_CLOSE && !IsOpening(c) && !OpensOrCloses(c) && !spaced_;
  if (IsWhiteSpace(c) || type == U_SB_SCONTINUE || IsEndMark(type, c) || closes) {
    closed_ = true;
    mark_end_ = begin_ + 1;
    spaced_ = false;
    Rescan(mark_end_, State::kMark);
    return;
  }
  Rescan(begin_, State::kSearch);
  if (mark_ == Mark::kOther) Confirm();
}

// Takes `c`, which follows the marks and white space.
void SentenceScanner::FollowMark(char32_t c) {
  if (mark_ == Mark::kOther && !(closed_ && BreakClass(c) == U_SB_LOWER)) {
    Confirm();
  } else {
    Rescan(scanned_ - 1, State::kSearch);
  }
}

// Takes `c`, which follows the marks without white space.
void SentenceScanner::FollowDirectly(char32_t c) {
  const int type = BreakClass(c);
  const bool letter = IsBreakLetter(type);
  const char32_t mark = text_[mark_begin_];
  if (closed_) {
    UErrorCode error = U_ZERO_ERROR;
    const UScriptCode script = uscript_getScript(Icu(c), &error);
    if (script == USCRIPT_HANGUL || c == U'と' || c == U'っ') return Reject();  // "…" is what was said
    if (type == U_SB_OLETTER) {
      Rescan(scanned_ - 1, State::kSpeech);
      begin_ = scanned_;
      return;
    }
    return FollowMark(c);
  }
  const bool in_word = in_address_ && (letter || type == U_SB_NUMERIC || JoinsWord(c));
  if (in_word || (detached_ && letter && (mark < 0x80 || ellipsis_))) return Reject();
  switch (mark_) {
    case Mark::kStop:
      if (type == U_SB_NUMERIC || JoinsWord(c)) return Reject();
      if (type == U_SB_UPPER && mark_begin_ > 0) {
        const int before = BreakClass(text_[mark_begin_ - 1]);
        if (before == U_SB_UPPER || before == U_SB_LOWER) return Reject();  // "U.S"
      }
      break;
    case Mark::kDots:
      if (type == U_SB_OLETTER || type == U_SB_NUMERIC) return Reject();
      break;
    case Mark::kOther:
      if (mark < 0x80 && (type == U_SB_LOWER || type == U_SB_NUMERIC || JoinsWord(c))) return Reject();
      return Confirm();
  }
  Rescan(scanned_ - 1, State::kSearch);
}

// Looks for the first letter: before a small one a full stop ends nothing.
void SentenceScanner::ScanSearch(char32_t c) {
  const int type = BreakClass(c);
  if (IsBreakLetter(type)) return DecideLetter(c);
  if (mark_ == Mark::kOther) return Confirm();
  if (type == U_SB_NUMERIC) return DecideNumber();
  if (IsEndMark(type, c)) {
    if (mark_ == Mark::kStop && StopRole() != FullStopRole::kNone) return Reject();
    Confirm();
  }
}

// Decides what a number means that follows a full stop: an abbreviation or another number goes on with it, "No. 5", "3.
// 5. 2024".
void SentenceScanner::DecideNumber() {
  if (mark_ != Mark::kStop) return;
  const bool after_number = mark_begin_ > 0 && BreakClass(text_[mark_begin_ - 1]) == U_SB_NUMERIC;
  if (after_number || StopRole() != FullStopRole::kNone) Reject();
}

void SentenceScanner::DecideLetter(char32_t c) {
  const int type = BreakClass(c);
  if (type == U_SB_LOWER) return Reject();
  if (mark_ == Mark::kOther) return Confirm();
  if (mark_ == Mark::kDots) return ellipsis_ && type == U_SB_OLETTER && !spaced_ ? Reject() : Confirm();
  const FullStopRole role = StopRole();
  if (role == FullStopRole::kNone) return Confirm();
  if (role == FullStopRole::kNever) return Reject();
  if (type == U_SB_OLETTER) return role == FullStopRole::kPerhaps ? Reject() : Confirm();
  begin_ = scanned_ - 1;
  state_ = State::kWord;
}

void SentenceScanner::ScanWord(char32_t c) {
  if (u_isalpha(Icu(c)) != 0 || IsIgnored(BreakClass(c))) {
    if (scanned_ - begin_ > kLongestDecidingWord) DecideWord(c);
    return;
  }
  DecideWord(c);
}

// Decides by the first word, which is complete. `next` follows it.
void SentenceScanner::DecideWord(std::optional<char32_t> next) {
  const size_t end = next ? scanned_ - 1 : scanned_;
  const std::string word = Encode(std::u32string_view(text_).substr(begin_, end - begin_));
  bool ends = false;
  size_t start = 0;
  if (StopRole() == FullStopRole::kPerhaps) {
    ends = next != U'.' && abbreviations_->BeginsSentence(word);
  } else {
    ends = !Abbreviations::IsNumberAfter(WordBeforeStop(&start), word);
  }
  if (ends) {
    Confirm();
  } else {
    Reject();
  }
}

// Scans what is behind a closing quote in Chinese: "he said" goes on with the sentence.
void SentenceScanner::ScanSpeech(char32_t c) {
  if (IsVerbOfSpeech(c)) return Reject();
  if (!IsBreakLetter(BreakClass(c)) || scanned_ - begin_ >= kSpeechLetters) Confirm();
}

// Returns the role of a single full stop.
FullStopRole SentenceScanner::StopRole() const {
  if (!stop_role_) stop_role_ = FindStopRole();
  return *stop_role_;
}

FullStopRole SentenceScanner::FindStopRole() const {
  size_t start = 0;
  const std::string word = WordBeforeStop(&start);
  if (word.empty()) return FullStopRole::kNone;
  const std::u32string_view before = std::u32string_view(text_).substr(0, start);
  const bool first = std::all_of(before.begin(), before.end(), [](char32_t c) { return IsWhiteSpace(c); });
  if (first && word.find_first_not_of("0123456789.") == std::string::npos) {
    // The number of an item, "3." or "1.2.".
    const size_t digits = std::min(word.find('.'), word.size());
    return digits <= kLongestLabel ? FullStopRole::kNever : FullStopRole::kNone;
  }
  if (IsContraction(start)) return FullStopRole::kNone;
  // The single letters before, as in "z. B.".
  std::string chain = word;
  for (size_t i = start;
       i >= 3 && IsWhiteSpace(text_[i - 1]) && text_[i - 2] == '.' && u_isalpha(Icu(text_[i - 3])) != 0; i -= 3) {
    if (chain.size() > kLongestDecidingWord || (i > 3 && IsWordCharacter(text_[i - 4]))) break;
    chain = Encode({&text_[i - 3], 1}) + "." + chain;
  }
  if (chain != word && abbreviations_->Classify(chain) == FullStopRole::kNever) return FullStopRole::kNever;
  if (IsRomanNumeral(word) && word.size() > 1 && start > 1 && text_[start - 2] == '.') return FullStopRole::kNone;
  if (first && word == "I") return FullStopRole::kPerhaps;  // "I. Newton"; otherwise "So do I."
  return abbreviations_->Classify(word);
}

std::string SentenceScanner::WordBeforeStop(size_t* start) const {
  size_t begin = mark_begin_;
  while (begin > 0 && mark_begin_ - begin <= kLongestDecidingWord && IsWordCharacter(text_[begin - 1])) --begin;
  while (begin < mark_begin_ && (text_[begin] == '.' || text_[begin] == '-')) ++begin;
  *start = begin;
  return Encode(std::u32string_view(text_).substr(begin, mark_begin_ - begin));
}

// Returns whether the word from `start` to the full stop is what an apostrophe leaves of another: "can't", "Bob's",
// "I'm". A single letter before it is an elided article, "l'A. Dupont", except for "I".
bool SentenceScanner::IsContraction(size_t start) const {
  if (mark_begin_ - start != 1 || start < 2 || !IsElisionMark(text_[start - 1])) return false;
  if (u_isalpha(Icu(text_[start - 2])) == 0) return false;
  const char32_t c = static_cast<char32_t>(u_tolower(Icu(text_[start])));
  if (c != 't' && c != 's' && c != 'd' && c != 'm') return false;
  return u_isupper(Icu(text_[start])) == 0 || u_isupper(Icu(text_[start - 2])) != 0;
}

}  // namespace qtts
