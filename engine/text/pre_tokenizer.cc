// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/pre_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/ensure_memory.h"

namespace qtts {
namespace {

// The regular expressions of spec 2. White_Space is spelled out, since PCRE2's \s matches U+180E and the official
// tokenizer's does not.
#define QTTS_SPACES_ R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define QTTS_SPACE_ "[" QTTS_SPACES_ "]"
#define QTTS_SPACE_RUNS_ "|" QTTS_SPACE_ R"(*[\r\n]+|)" QTTS_SPACE_ "+(?![^" QTTS_SPACES_ "])|" QTTS_SPACE_ "+"

constexpr char kNativePattern[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^)" QTTS_SPACES_
                                  R"(\p{L}\p{N}]+[\r\n]*)" QTTS_SPACE_RUNS_;

constexpr char kPatchedPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^)" QTTS_SPACES_
    R"(\p{L}\p{N}]+[\r\n/]*)" QTTS_SPACE_RUNS_;

constexpr size_t kWindowBytes = 512;

Status RegexError(GError* error) {
  const std::unique_ptr<GError, decltype(&g_error_free)> owned(error, g_error_free);
  return Status::Internal(std::string("splitting text into words failed: ") +
                          (owned ? owned->message : "unknown error"));
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Create(TokenizerPattern pattern) {
  GError* error = nullptr;
  EnsureMemory(kSmallCallBytes);
  // Not with G_REGEX_OPTIMIZE, which makes matching write to the shared expression.
  Regex regex(g_regex_new(pattern == TokenizerPattern::kNative ? kNativePattern : kPatchedPattern,
                          static_cast<GRegexCompileFlags>(0), static_cast<GRegexMatchFlags>(0), &error),
              g_regex_unref);
  if (!regex) return RegexError(error);
  return PreTokenizer(std::move(regex));
}

Result<std::vector<size_t>> PreTokenizer::Split(std::string_view text, bool open_end) const {
  std::vector<size_t> ends;
  size_t begin = 0;
  // PCRE2 scans the whole rest of its subject before each match. Windows keep the time linear. A window is doubled if a
  // pre-token does not fit.
  for (size_t window = kWindowBytes; begin < text.size();) {
    size_t end = begin + std::min(window, text.size() - begin);
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0U) == 0x80U) ++end;
    const bool last = end == text.size();
    QTTS_ASSIGN_OR_RETURN(const size_t decided, SplitWindow(text, begin, end, !last || open_end, &ends));
    if (last) break;
    window = decided > begin ? kWindowBytes : 2 * window;
    begin = decided;
  }
  return ends;
}

Result<size_t> PreTokenizer::SplitWindow(std::string_view text, size_t begin, size_t end, bool open_end,
                                         std::vector<size_t>* ends) const {
  // A hard partial match stops the search as soon as it needs text beyond the window, so every match found before is
  // decided.
  const GRegexMatchFlags flags = open_end ? G_REGEX_MATCH_PARTIAL_HARD : static_cast<GRegexMatchFlags>(0);
  GMatchInfo* raw_match = nullptr;
  GError* error = nullptr;
  EnsureMemory(kSmallCallBytes);
  bool found = g_regex_match_full(regex_.get(), text.data() + begin, static_cast<gssize>(end - begin), 0, flags,
                                  &raw_match, &error) != FALSE;
  const std::unique_ptr<GMatchInfo, decltype(&g_match_info_unref)> match(raw_match, g_match_info_unref);
  size_t decided = begin;
  while (found) {
    gint match_begin = 0;
    gint match_end = 0;
    g_match_info_fetch_pos(match.get(), 0, &match_begin, &match_end);
    decided = begin + static_cast<size_t>(match_end);
    ends->push_back(decided);
    found = g_match_info_next(match.get(), &error) != FALSE;
  }
  if (error != nullptr) return RegexError(error);
  // The patterns match every character: a letter, a number, white space or something else.
  if (!open_end && decided != end) return Status::Internal("splitting text into words left a part over");
  return decided;
}

}  // namespace qtts
