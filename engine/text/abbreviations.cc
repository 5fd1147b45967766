// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/abbreviations.h"

#include <glib.h>

#include <memory>
#include <string>
#include <unordered_set>

#include "qtts/utf8.h"

namespace qtts {
namespace {

using WordSet = std::unordered_set<std::string_view>;

// Abbreviations before a name or another word, in lower case.
const WordSet& AbbreviationsAnywhere() {
  static const auto* words = new WordSet{
      // English
      "mr", "mrs", "ms", "dr", "prof", "rev", "hon", "gen", "col", "lt", "sgt", "capt", "cmdr", "maj", "gov", "sen",
      "messrs", "st", "mt", "vs", "cf", "e.g", "i.e", "approx", "ph.d",
      // German
      "hr", "hrn", "fr", "frl", "dipl", "ing", "med", "bzw", "ca", "evtl", "ggf", "inkl", "exkl", "zzgl", "vgl", "sog",
      "geb", "gest", "insb", "bes", "mio", "mrd", "chr", "tel", "nr", "dipl.-ing", "röm",
      // French
      "mm", "mme", "mmes", "mlle", "mlles", "mgr", "ste", "env", "av",
      // Spanish
      "sr", "sra", "srta", "sres", "sras", "dra", "dña", "ud", "uds", "lic", "gral", "avda", "ej", "excmo", "excma",
      "ilmo", "ilma", "rvdo", "sto", "sta", "núm",
      // Italian
      "sig", "sigg", "dott", "dott.ssa", "avv", "geom", "rag", "sig.ra", "spett", "gent", "egr",
      // Portuguese
      "srs", "srª", "drs", "profa", "eng", "exmo", "exma",
      // Russian
      "проф", "акад", "доц", "им", "тов", "см", "ср", "напр", "тел", "млн", "млрд", "тыс", "ул", "т.е", "т.н"};
  return *words;
}

// Abbreviations only before a number; otherwise ordinary words.
const WordSet& AbbreviationsBeforeDigits() {
  static const auto* words =
      new WordSet{"no",  "nos", "fig", "figs", "vol", "vols", "ch",   "chap", "sec", "sect", "pp",   "pg",
                  "art", "abs", "bd",  "kap",  "abb", "tab",  "pag",  "pagg", "pág", "págs", "cap",  "n°",
                  "nº",  "str", "jan", "feb",  "mar", "apr",  "jun",  "jul",  "aug", "sep",  "sept", "oct",
                  "okt", "nov", "dec", "dez",  "стр", "рис",  "табл", "гл",   "кв",  "д",    "п"};
  return *words;
}

bool IsOneLetter(std::string_view word) {
  const Utf8Char c = DecodeUtf8(word);
  return g_unichar_isalpha(c.code) && c.size == word.size();
}

}  // namespace

bool IsAbbreviation(std::string_view word, bool before_digit) {
  constexpr size_t kLongest = 32;  // bytes
  if (word.empty() || word.size() > kLongest) return false;
  const std::string copy(word);
  // Initials, and the parts of "z. B." and "U.S."; but "So do I." is a sentence.
  const size_t dot = copy.rfind('.');
  const std::string last = dot == std::string::npos ? copy : copy.substr(dot + 1);
  if (!last.empty() && IsOneLetter(last)) return last != "I" || dot != std::string::npos;
  const std::unique_ptr<gchar, decltype(&g_free)> lower(g_utf8_strdown(copy.c_str(), -1), g_free);
  return AbbreviationsAnywhere().contains(lower.get()) ||
         (before_digit && AbbreviationsBeforeDigits().contains(lower.get()));
}

}  // namespace qtts
