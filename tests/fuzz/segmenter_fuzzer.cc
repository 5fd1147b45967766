// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Any bytes as text from upstream, in any pieces: joined to characters and cut into sentences.
// Input: one byte of options, one byte for the size of the pieces, then the text.

#include <glib.h>
#include <unicode/uchar.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "fuzz/check.h"
#include "gstqttstext.h"
#include "qtts/segmenter.h"

namespace {

using qtts::Segmenter;
using qtts::SentenceGap;

bool IsUtf8(std::string_view text) {
  return g_utf8_validate(text.data(), static_cast<gssize>(text.size()), nullptr) != FALSE;
}

// Without white space, without U+FFFD, which alone makes no sentence, and without what line ends remove.
std::string Ink(const std::string& text) {
  std::string ink;
  size_t size = 0;
  for (size_t i = 0; i < text.size(); i += size) {
    const gunichar c = g_utf8_get_char(text.data() + i);
    size = static_cast<size_t>(g_unichar_to_utf8(c, nullptr));
    const bool hyphen = c == '-' || c == 0x2010 || c == 0xAD;
    if (c != 0xFFFD && !hyphen && !u_isUWhiteSpace(static_cast<UChar32>(c))) ink.append(text, i, size);
  }
  return ink;
}

using SentenceTuple = std::tuple<std::string, std::string, size_t, SentenceGap>;

std::vector<SentenceTuple> Sentences(const std::string& bytes, size_t step, const Segmenter::Options& options,
                                     std::string* joined) {
  Segmenter segmenter;
  segmenter.SetOptions(options);
  gstqtts::Utf8Joiner joiner;
  std::vector<SentenceTuple> sentences;
  const auto add = [&](const qtts::Sentence& sentence) {
    for (size_t i = 0, last = 0; i <= qtts::CountUtf8(sentence.text); ++i) {
      const size_t position = sentence.SourcePosition(i);
      QTTS_FUZZ_CHECK(position >= last && position <= qtts::CountUtf8(sentence.source));
      last = position;
    }
    sentences.emplace_back(sentence.text, sentence.source, sentence.offset, sentence.before);
  };
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string text = joiner.Push(std::string_view(bytes).substr(at, step));
    QTTS_FUZZ_CHECK(IsUtf8(text));
    *joined += text;
    segmenter.Append(text);
    while (const auto sentence = segmenter.Next()) add(*sentence);
  }
  while (const auto sentence = segmenter.NextAtEnd()) add(*sentence);
  QTTS_FUZZ_CHECK(segmenter.empty());
  return sentences;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kLongest = 4096;  // bytes
  if (size < 2 || size > kLongest) return 0;
  static constexpr size_t kMaxChars[] = {1, 7, 40, 4000};
  const Segmenter::Options options = {.newline_ends = (data[0] & 1U) != 0,
                                      .skip_footnote_marks = (data[0] & 16U) != 0,
                                      .max_chars = kMaxChars[data[0] >> 2U & 3U],
                                      .language = (data[0] & 2U) != 0 ? "de" : ""};
  const size_t step = data[1] + size_t{1};
  const std::string bytes(data + 2, data + size);

  std::string joined;
  std::string joined_in_pieces;
  const auto sentences = Sentences(bytes, bytes.size() + 1, options, &joined);
  QTTS_FUZZ_CHECK(Sentences(bytes, step, options, &joined_in_pieces) == sentences);
  QTTS_FUZZ_CHECK(joined_in_pieces == joined);

  std::string all;
  for (const auto& [text, source, offset, before] : sentences) {
    QTTS_FUZZ_CHECK(IsUtf8(text) && !gstqtts::IsBlank(text));
    QTTS_FUZZ_CHECK(gstqtts::CountCharacters(text) <= options.max_chars);
    QTTS_FUZZ_CHECK(std::string_view(joined).substr(qtts::Utf8Head(joined, offset).size()).starts_with(source));
    all += text;
  }
  QTTS_FUZZ_CHECK(options.skip_footnote_marks || Ink(all) == Ink(joined));

  std::string_view rest = joined;
  while (!rest.empty()) {
    const size_t cut = qtts::CutPosition(rest, options.max_chars);
    QTTS_FUZZ_CHECK(cut > 0 && cut <= rest.size() && IsUtf8(rest.substr(0, cut)));
    QTTS_FUZZ_CHECK(gstqtts::CountCharacters(rest.substr(0, cut)) <= options.max_chars);
    rest.remove_prefix(cut);
  }
  return 0;
}
