// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttstext.h"

#include <algorithm>
#include <utility>

#include "qtts/utf8.h"

namespace gstqtts {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string Utf8Joiner::Push(std::string_view chunk, int* repaired) {
  std::string bytes = std::exchange(pending_, {});
  bytes.append(chunk);
  std::string text;
  text.reserve(bytes.size());
  int replaced = 0;
  for (std::string_view rest = bytes; !rest.empty();) {
    const qtts::Utf8Char decoded = qtts::DecodeUtf8(rest);
    const std::string_view character = rest.substr(0, decoded.size);
    rest.remove_prefix(decoded.size);
    if (decoded.incomplete) {
      pending_ = character;
      break;
    }
    if (decoded.code == qtts::kReplacementCharacter && character != kReplacement) {
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

bool TextQueue::HasRoom(std::string_view text) const {
  return utterances_.empty() || (utterances_.size() < max_utterances_ && characters_ <= max_characters_ &&
                                 CountCharacters(text) <= max_characters_ - characters_);
}

void TextQueue::Push(Utterance utterance) {
  characters_ += CountCharacters(utterance.text);
  utterances_.push_back(std::move(utterance));
}

Utterance* TextQueue::Find(uint64_t id) {
  if (id == 0) return nullptr;  // entries that are not text have none
  const auto found = std::find_if(utterances_.rbegin(), utterances_.rend(),
                                  [id](const Utterance& utterance) { return utterance.id == id; });
  return found != utterances_.rend() ? &*found : nullptr;
}

const Utterance* TextQueue::FindAfter(uint64_t id) const {
  const Utterance* found = nullptr;
  // From the newest, since most are older. Gaps and events have no id.
  for (auto utterance = utterances_.rbegin(); utterance != utterances_.rend(); ++utterance) {
    if (utterance->id > id) {
      found = &*utterance;
    } else if (utterance->id != 0) {
      break;
    }
  }
  return found;
}

void TextQueue::Grow(Utterance* utterance, std::string_view text) {
  utterance->text.append(text);
  characters_ += CountCharacters(text);
}

void TextQueue::Grow(Utterance* utterance, Utterance more_of_it) {
  qtts::TextMap map;
  map.Append(utterance->source_map);
  map.Append(more_of_it.source_map);
  utterance->source_map = map.pieces();
  utterance->written.append(more_of_it.written);
  utterance->marks.insert(utterance->marks.end(), more_of_it.marks.begin(), more_of_it.marks.end());
  Grow(utterance, more_of_it.text);
}

Utterance TextQueue::Pop() {
  Utterance utterance = std::move(utterances_.front());
  utterances_.pop_front();
  characters_ -= CountCharacters(utterance.text);
  return utterance;
}

}  // namespace gstqtts
