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
#include <vector>

#include "fuzz/check.h"
#include "gstqttstext.h"
#include "qtts/segmenter.h"

namespace {

using qtts::Segmenter;

bool IsUtf8(std::string_view text) {
  return g_utf8_validate(text.data(), static_cast<gssize>(text.size()), nullptr) != FALSE;
}

// Without white space, and without U+FFFD, which alone makes no sentence.
std::string Ink(const std::string& text) {
  std::string ink;
  size_t size = 0;
  for (size_t i = 0; i < text.size(); i += size) {
    const gunichar c = g_utf8_get_char(text.data() + i);
    size = static_cast<size_t>(g_unichar_to_utf8(c, nullptr));
    if (c != 0xFFFD && !u_isUWhiteSpace(static_cast<UChar32>(c))) ink.append(text, i, size);
  }
  return ink;
}

std::vector<std::string> Sentences(const std::string& bytes, size_t step, const Segmenter::Options& options,
                                   std::string* joined) {
  Segmenter segmenter;
  segmenter.SetOptions(options);
  gstqtts::Utf8Joiner joiner;
  std::vector<std::string> sentences;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const std::string text = joiner.Push(std::string_view(bytes).substr(at, step));
    QTTS_FUZZ_CHECK(IsUtf8(text));
    *joined += text;
    segmenter.Append(text);
    while (auto sentence = segmenter.Next()) sentences.push_back(*sentence);
  }
  while (auto sentence = segmenter.NextAtEnd()) sentences.push_back(*sentence);
  QTTS_FUZZ_CHECK(segmenter.empty());
  return sentences;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kLongest = 2048;  // bytes: each piece is processed with all undecided text
  if (size < 2 || size > kLongest) return 0;
  static constexpr size_t kMaxChars[] = {1, 7, 40, 4000};
  const Segmenter::Options options = {.newline_ends = (data[0] & 1U) != 0,
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
  for (const std::string& sentence : sentences) {
    QTTS_FUZZ_CHECK(IsUtf8(sentence) && !gstqtts::IsBlank(sentence));
    QTTS_FUZZ_CHECK(gstqtts::CountCharacters(sentence) <= options.max_chars);
    all += sentence;
  }
  QTTS_FUZZ_CHECK(Ink(all) == Ink(joined));

  std::string_view rest = joined;
  while (!rest.empty()) {
    const size_t cut = qtts::CutPosition(rest, options.max_chars);
    QTTS_FUZZ_CHECK(cut > 0 && cut <= rest.size() && IsUtf8(rest.substr(0, cut)));
    QTTS_FUZZ_CHECK(gstqtts::CountCharacters(rest.substr(0, cut)) <= options.max_chars);
    rest.remove_prefix(cut);
  }
  return 0;
}
