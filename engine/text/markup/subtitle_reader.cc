// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/subtitle_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "qtts/utf8.h"
#include "text/markup/reference.h"
#include "text/prepare/reader.h"

namespace qtts {
namespace {

using Line = std::vector<DocumentChar>;

constexpr size_t kMaxSubtitleTag = 500;  // characters, of sounds in brackets too

std::u32string CodesOf(const Line& line, size_t begin = 0, size_t length = std::u32string::npos) {
  std::u32string text;
  for (size_t i = begin; i < line.size() && i - begin < length; ++i) text += line[i].code;
  return text;
}

bool IsMusic(char32_t c) { return (c >= 0x2669 && c <= 0x266C) || c == 0x1F3B5 || c == 0x1F3B6; }
bool IsDash(char32_t c) { return c == '-' || c == 0x2010 || c == 0x2013 || c == 0x2014; }

bool IsBlankText(std::u32string_view text) { return std::ranges::all_of(text, IsWhiteSpace); }

std::u32string_view TrimmedText(std::u32string_view text) {
  while (!text.empty() && IsWhiteSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsWhiteSpace(text.back())) text.remove_suffix(1);
  return text;
}

// Returns true for "00:00:01,000 --> 00:00:02,000", of any format.
bool IsTimes(std::u32string_view line) {
  line = TrimmedText(line);
  const size_t arrow = line.find(U"-->");
  if (arrow == std::u32string_view::npos || line.empty() || !IsDigit(line.front())) return false;
  return std::ranges::all_of(line.substr(0, arrow),
                             [](char32_t c) { return IsDigit(c) || IsSpace(c) || c == ':' || c == '.' || c == ','; });
}

bool IsBlockKeyword(std::u32string_view line) {
  static constexpr std::u32string_view kWords[] = {U"NOTE", U"STYLE", U"REGION"};
  return std::ranges::any_of(kWords, [line](std::u32string_view word) {
    return line.starts_with(word) && (line.size() == word.size() || IsWhiteSpace(line[word.size()]));
  });
}

// Has capital letters, and no small ones.
bool IsInCapitals(std::u32string_view text) {
  return std::ranges::any_of(text, IsUpper) && std::ranges::none_of(text, IsLower);
}

}  // namespace

void SubtitleReader::Push(const DocumentChar& character) {
  if (character.code != '\n') {
    line_.push_back(character);
    if (line_.size() < kLongestLine) return;
    ReadText(std::exchange(line_, {}));
    return;
  }
  if (!line_.empty() && line_.back().code == '\r') line_.pop_back();
  ReadLine(std::exchange(line_, {}));
  if (label_.empty()) items_->Space(character.position, U'\n');
}

void SubtitleReader::Finish(size_t length) {
  if (!line_.empty()) ReadLine(std::exchange(line_, {}));
  ReleaseLabel();
  items_->EndBlock(SentenceGap::kParagraph, length);
}

// Releases the first line of a block, which is text if no times follow it.
void SubtitleReader::ReleaseLabel() {
  const Line label = std::exchange(label_, {});
  if (label.empty()) return;
  ReadText(label);
  items_->Space(label.back().position + 1, U'\n');
}

void SubtitleReader::ReadLine(const Line& line) {
  if (IsFileLine(line)) return;
  ReadText(line);
}

// Handles the lines of a file that are no text.
bool SubtitleReader::IsFileLine(const Line& line) {
  const std::u32string text = CodesOf(line);
  const bool first = std::exchange(first_line_, false);
  if (IsBlankText(text)) {
    ReleaseLabel();
    block_begins_ = true;
    in_skipped_ = in_sound_ = false;
    return true;
  }
  const bool begins = std::exchange(block_begins_, false);
  if (in_skipped_) return true;
  if (IsTimes(text)) {
    label_.clear();
    in_sound_ = false;
    return true;
  }
  ReleaseLabel();
  const bool header = first && text.starts_with(U"WEBVTT");
  if (header || (begins && IsBlockKeyword(text))) {
    in_skipped_ = true;
    return true;
  }
  if (begins) {
    label_ = line;
    return true;
  }
  return false;
}

void SubtitleReader::ReadText(const Line& line) {
  size_t begin = 0;
  // Marks before the text may hide the dash or the name.
  for (;;) {
    while (begin < line.size() && IsWhiteSpace(line[begin].code)) ++begin;
    size_t next = begin;
    if (next < line.size() && line[next].code == '<') next = SkipTag(line, begin);
    if (next == begin) next = SkipOverride(line, begin);
    if (next == begin) break;
    begin = next;
  }
  const size_t speaker = SkipSpeaker(line, begin);
  if (speaker > begin && !in_sound_) items_->EndBlock(SentenceGap::kSentence, line[begin].position);
  SayLine(line, in_sound_ ? begin : speaker);
}

// Skips the dash and the name, "- JOHN: "; `begin` if there is neither.
size_t SubtitleReader::SkipSpeaker(const Line& line, size_t begin) const {
  const auto at = [&](size_t i) { return i < line.size() ? line[i].code : U'\0'; };
  size_t i = begin;
  const bool dash = IsDash(at(i)) && !IsDigit(at(i + 1));
  if (dash || (at(i) == '>' && at(i + 1) == '>')) {
    while (IsDash(at(i)) || at(i) == '>') ++i;
    while (IsWhiteSpace(at(i))) ++i;
  }
  constexpr size_t kLongestName = 40;
  const size_t colon = CodesOf(line, i).find(U':');
  if (colon > kLongestName) return i;
  const char32_t next = at(i + colon + 1);
  const std::u32string name = CodesOf(line, i).substr(0, colon);
  const auto fits = [](char32_t c) {
    return IsLetter(c) || IsDigit(c) || IsSpace(c) ||
           std::u32string_view(U".'’-#&()[],").find(c) != std::u32string_view::npos;
  };
  const bool ends = next == 0 || IsWhiteSpace(next) || next == '<';
  if (!ends || !std::ranges::all_of(name, fits) || !IsInCapitals(name) || std::ranges::count_if(name, IsLetter) < 2) {
    return i;
  }
  i += colon + 1;
  while (IsWhiteSpace(at(i))) ++i;
  return i;
}

// Skips a tag of WebVTT or HTML.
size_t SubtitleReader::SkipTag(const Line& line, size_t begin) {
  const std::u32string rest = CodesOf(line, begin, kMaxSubtitleTag);
  const size_t end = rest.find(U'>');
  if (end == std::u32string::npos || end < 2) return begin;
  const char32_t c = rest[1];
  if (!IsLetter(c) && !IsDigit(c) && c != '/' && c != '!') return begin;  // "a < b"
  const std::u32string name = rest.substr(1, rest.find_first_of(U" .>", 1) - 1);
  if (name == U"rt" || name == U"/rt") in_ruby_ = name == U"rt";
  if (name == U"/ruby") in_ruby_ = false;
  if (name == U"v") items_->EndBlock(SentenceGap::kSentence, line[begin].position);
  if (name == U"br" || name == U"br/") items_->Space(line[begin].position);
  return begin + end + 1;
}

// Skips "{\an8}" of SubStation, "{y:i}" of MicroDVD.
size_t SubtitleReader::SkipOverride(const Line& line, size_t begin) const {
  const std::u32string rest = CodesOf(line, begin, kMaxSubtitleTag);
  if (rest.size() < 3 || rest[0] != '{') return begin;
  const bool override = rest[1] == '\\' || (IsLetter(rest[1]) && rest[2] == ':') || rest[1] == '}';
  const bool frame = IsDigit(rest[1]) || rest[1] == '*';
  const size_t end = rest.find(U'}');
  if ((!override && !frame) || end == std::u32string::npos) return begin;
  if (frame && !std::ranges::all_of(rest.substr(1, end - 1), [](char32_t c) { return IsDigit(c); })) return begin;
  return begin + end + 1;
}

// Skips "[MUSIC]", "(SIGHS)". A bracket may be closed on a later line of its cue.
size_t SubtitleReader::SkipSound(const Line& line, size_t begin) const {
  const std::u32string rest = CodesOf(line, begin, kMaxSubtitleTag);
  if (rest[0] == '[') {
    const size_t end = rest.find(U']');
    if (end != std::u32string::npos) return begin + end + 1;
    return begin + rest.size() == line.size() ? line.size() : begin;
  }
  const size_t end = rest.find(U')');
  if (end == std::u32string::npos) return begin;
  const auto blank = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      if (!IsWhiteSpace(line[i].code)) return false;
    }
    return true;
  };
  const bool sound = IsInCapitals(rest.substr(0, end)) || (blank(0, begin) && blank(begin + end + 1, line.size()));
  return sound ? begin + end + 1 : begin;
}

// Says "\N" of SubStation, or "&amp;". Returns what follows; `begin` if there is none.
size_t SubtitleReader::SayEscape(const Line& line, size_t begin) {
  const char32_t c = line[begin].code;
  if (c == '\\' && begin + 1 < line.size()) {
    const char32_t next = line[begin + 1].code;
    if (next == 'N' || next == 'n' || next == 'h') {
      items_->Space(line[begin].position);
      return begin + 2;
    }
  }
  if (c != '&') return begin;
  const std::u32string rest = CodesOf(line, begin + 1, kLongestReference + 1);
  const size_t end = rest.find(U';');
  if (end == std::u32string::npos) return begin;
  const std::u32string name = rest.substr(0, end);
  const std::optional<char32_t> code = DecodeReference(name);
  const bool direction = name == U"lrm" || name == U"rlm";
  if (!code && !direction) return begin;
  if (code) {
    std::string character;
    AppendUtf8(*code, &character);
    items_->Replace(character, line[begin].position, line[begin + end + 1].position + 1);
  }
  return begin + end + 2;
}

void SubtitleReader::SayLine(const Line& line, size_t begin) {
  for (size_t i = begin; i < line.size();) {
    const char32_t c = line[i].code;
    if (in_sound_) {
      in_sound_ = c != ']';
      ++i;
      continue;
    }
    size_t next = i;
    if (c == '<') next = SkipTag(line, i);
    if (c == '{') next = SkipOverride(line, i);
    if (c == '[' || c == '(') {
      next = SkipSound(line, i);
      in_sound_ = c == '[' && next == line.size() && line.back().code != ']';
    }
    if (c == '\\' || c == '&') next = SayEscape(line, i);
    if (next == i && !in_ruby_) {
      if (IsWhiteSpace(c)) {
        items_->Space(line[i].position);
      } else if (!IsMusic(c)) {
        items_->Copy(line[i]);
      }
    }
    i = std::max(next, i + 1);
  }
}

}  // namespace qtts
