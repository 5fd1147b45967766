// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/normalizer.h"

#include <glib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/ensure_memory.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

// GLib's composition takes quadratic time, so it gets the text in blocks of about this many bytes.
constexpr size_t kBlockBytes = 256;

// The first character that NFC can change, or that can change its neighbours.
constexpr char32_t kFirstActive = 0x300;

// Returns the full canonical decomposition with all marks in order. It is canonically equivalent to the text, and GLib
// orders it in linear time: GLib's ordering is an insertion sort.
std::string Decompose(std::string_view text) {
  std::vector<char32_t> codes;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    std::array<gunichar, G_UNICHAR_MAX_DECOMPOSITION_LENGTH> parts{};
    const size_t count = g_unichar_fully_decompose(c.code, FALSE, parts.data(), parts.size());
    codes.insert(codes.end(), parts.begin(), parts.begin() + static_cast<ptrdiff_t>(count));
    text.remove_prefix(c.size);
  }
  const auto is_starter = [](char32_t code) { return g_unichar_combining_class(code) == 0; };
  for (auto it = codes.begin(); it != codes.end();) {
    const auto first = std::find_if_not(it, codes.end(), is_starter);
    it = std::find_if(first, codes.end(), is_starter);
    std::stable_sort(
        first, it, [](char32_t a, char32_t b) { return g_unichar_combining_class(a) < g_unichar_combining_class(b); });
  }
  std::string out;
  for (const char32_t code : codes) AppendUtf8(code, &out);
  return out;
}

void AppendBlock(std::string_view block, std::string* out) {
  std::string decomposed;
  if (block.size() > 2 * kBlockBytes) {  // one very long cluster
    decomposed = Decompose(block);
    block = decomposed;
  }
  // Characters of four bytes, and the text made of them; those that a short block decomposes into are little.
  EnsureMemory(2 * sizeof(gunichar) * block.size() + kSmallCallBytes);
  const std::unique_ptr<gchar, decltype(&g_free)> nfc(
      g_utf8_normalize(block.data(), static_cast<gssize>(block.size()), G_NORMALIZE_NFC), g_free);
  out->append(nfc ? std::string_view(nfc.get()) : block);
}

}  // namespace

bool StartsCluster(char32_t code) {
  if (code < kFirstActive) return true;
  // Medial vowels and final consonants of Hangul are letters, but compose with the preceding character.
  if ((code >= 0x1160 && code <= 0x11FF) || (code >= 0xD7B0 && code <= 0xD7FF)) return false;
  // These vowel signs of Kirat Rai compose too, since Unicode 16. Listed here, so that the cuts do not depend on GLib's
  // version.
  if (code == 0x16D63 || (code >= 0x16D67 && code <= 0x16D6A)) return false;
  return !g_unichar_ismark(code);
}

std::string ToNfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t block = 0;  // start of the current block
  bool active = false;
  const auto flush = [&](size_t end) {
    const std::string_view bytes = text.substr(block, end - block);
    if (active) {
      AppendBlock(bytes, &out);
    } else {
      out.append(bytes);
    }
    block = end;
    active = false;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    // GLib takes NUL for the end of the string, so a NUL is a block of its own.
    const bool nul = c.code == 0 || (at > 0 && text[at - 1] == '\0');
    if (nul || (at - block >= kBlockBytes && StartsCluster(c.code))) flush(at);
    active = active || c.code >= kFirstActive;
    at += c.size;
  }
  flush(text.size());
  return out;
}

}  // namespace qtts
