// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/takes.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "qtts/model_info.h"
#include "qtts/utf8.h"
#include "qtts/voice.h"

namespace qtts {
namespace {

// Returns "calm, excited"; "none" if no take has a style.
std::string StylesOf(std::span<const ClonedVoice> takes) {
  std::string styles;
  for (const ClonedVoice& take : takes) {
    if (!take.style.empty()) styles += (styles.empty() ? "" : ", ") + take.style;
  }
  return styles.empty() ? "none" : styles;
}

bool IsMark(char32_t code) {
  constexpr std::u32string_view kMarks = U".,;:!?\"'()[]<>*-\u2013\u2014\u2026\u3001\u3002\uFF0C\uFF01\uFF1A";
  return kMarks.find(code) != std::u32string_view::npos;
}

}  // namespace

Status CheckTakes(std::span<const ClonedVoice> takes) {
  if (takes.empty() || takes.size() > kMaxTakes) {
    return Status::InvalidArgument("a voice file has 1 to " + std::to_string(kMaxTakes) + " takes, not " +
                                   std::to_string(takes.size()));
  }
  std::set<std::string> styles;
  for (const ClonedVoice& take : takes) {
    if (take.model != takes[0].model) {
      return Status::InvalidArgument(
          "the takes of a voice were made with different models; make all with the same one");
    }
    const std::string style = LowerCaseName(take.style);
    if (takes.size() > 1 && style.empty()) {
      return Status::InvalidArgument("a voice with several takes needs a style for each; there are: " +
                                     StylesOf(takes));
    }
    if (!styles.insert(style).second) {
      return Status::InvalidArgument("the voice has a take with the style \"" + style + "\" already");
    }
  }
  return Status::Ok();
}

std::string StyleOfInstruct(const std::string& instruct) {
  const std::string text = RepairUtf8(instruct);
  std::string word;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = DecodeUtf8(std::string_view(text).substr(at));
    at += next.size;
    const bool ends = IsWhiteSpace(next.code) || IsMark(next.code);
    if (ends && !word.empty()) break;
    if (!ends) AppendUtf8(next.code, &word);
  }
  return LowerCaseName(word);
}

Result<ClonedVoice> ChooseTake(std::vector<ClonedVoice> takes, const std::string& style, const std::string& instruct,
                               const std::string& path) {
  const bool by_instruct = style.empty();
  std::string wanted = LowerCaseName(style);
  if (by_instruct && !takes[0].designed()) wanted = StyleOfInstruct(instruct);
  const std::string styles = StylesOf(takes);
  const auto found = std::ranges::find(takes, wanted, &ClonedVoice::style);
  if (!wanted.empty() && found != takes.end()) return std::move(*found);
  if (!by_instruct) {
    return Status::InvalidArgument(path + ": the voice has no style \"" + RepairUtf8(style) + "\"; it has: " + styles);
  }
  ClonedVoice first = std::move(takes[0]);
  if (!wanted.empty() && !first.style.empty()) {
    first.warnings.push_back(
        path + ": the voice has no style \"" + wanted +
        "\", the first word of the instruction, which this model does not heed otherwise. It has: " + styles +
        ". It speaks with \"" + first.style + "\"");
  }
  return first;
}

}  // namespace qtts
