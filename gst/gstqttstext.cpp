// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttstext.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace gstqtts {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

enum class Kind { kCharacter, kIllFormed, kUnfinished };

struct Sequence {
  Kind kind;
  size_t length;  // bytes
};

// The sequence at the start of `text`, by table 3-7 (well-formed UTF-8 byte sequences) of the
// Unicode standard. An ill-formed one ends before the first byte that cannot continue it.
Sequence FirstSequence(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Kind::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kIllFormed, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte's range depends on the lead: no overlong forms, surrogates or > U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Kind::kUnfinished, i};
    const bool continues = i == 1 ? byte(i) >= low && byte(i) <= high : byte(i) >= 0x80 && byte(i) <= 0xBF;
    if (!continues) return {Kind::kIllFormed, i};
  }
  return {Kind::kCharacter, length};
}

char32_t CodePoint(std::string_view character) {
  const auto byte = [character](size_t i) { return static_cast<uint8_t>(character[i]); };
  if (character.size() == 1) return byte(0);
  char32_t code = byte(0) & (0x7FU >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code = code << 6U | (byte(i) & 0x3FU);
  return code;
}

// The White_Space property of Unicode.
bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::string Utf8Joiner::Push(std::string_view chunk, int* repaired) {
  std::string bytes = std::exchange(pending_, {});
  bytes.append(chunk);
  std::string text;
  text.reserve(bytes.size());
  int replaced = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const Sequence sequence = FirstSequence(rest);
    const std::string_view character = rest.substr(0, sequence.length);
    rest.remove_prefix(sequence.length);
    if (sequence.kind == Kind::kUnfinished) {
      pending_ = character;
      break;
    }
    if (sequence.kind == Kind::kIllFormed) {
      text.append(kReplacement);
      ++replaced;
    } else if (character[0] != '\0' && !(at_start_ && character == kByteOrderMark)) {
      text.append(character);
    }
    at_start_ = false;
  }
  if (repaired != nullptr) *repaired = replaced;
  return text;
}

std::string RepairUtf8(std::string_view text) {
  Utf8Joiner joiner;
  std::string repaired = joiner.Push(text);
  if (joiner.in_mid_character()) repaired.append(kReplacement);
  return repaired;
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0U) != 0x80U; }));
}

bool IsBlank(std::string_view text) {
  while (!text.empty()) {
    const std::string_view character = text.substr(0, FirstSequence(text).length);
    if (!IsWhiteSpace(CodePoint(character)) && character != kReplacement) return false;
    text.remove_prefix(character.size());
  }
  return true;
}

std::string_view TrimLeft(std::string_view text) {
  const auto* begin = std::find_if_not(text.begin(), text.end(), IsAsciiSpace);
  return text.substr(static_cast<size_t>(begin - text.begin()));
}

std::string_view Trim(std::string_view text) {
  text = TrimLeft(text);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), IsAsciiSpace).base();
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

bool TextQueue::HasRoom(std::string_view text) const {
  return utterances_.empty() || (utterances_.size() < kMaxUtterances && characters_ <= max_characters_ &&
                                 CountCharacters(text) <= max_characters_ - characters_);
}

void TextQueue::Push(Utterance utterance) {
  characters_ += CountCharacters(utterance.text);
  utterances_.push_back(std::move(utterance));
}

Utterance* TextQueue::Find(uint64_t id) {
  if (id == 0) return nullptr;  // what is not text has none
  const auto found = std::find_if(utterances_.rbegin(), utterances_.rend(),
                                  [id](const Utterance& utterance) { return utterance.id == id; });
  return found != utterances_.rend() ? &*found : nullptr;
}

void TextQueue::Grow(Utterance* utterance, std::string_view text) {
  utterance->text.append(text);
  characters_ += CountCharacters(text);
}

Utterance TextQueue::Pop() {
  Utterance utterance = std::move(utterances_.front());
  utterances_.pop_front();
  characters_ -= CountCharacters(utterance.text);
  return utterance;
}

}  // namespace gstqtts
