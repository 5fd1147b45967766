// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/abbreviations.h"

#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/ures.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "qtts/mutex.h"
#include "qtts/utf8.h"

namespace qtts {
namespace {

using StringSet = std::unordered_set<std::string>;

// All lists are in lower case.

// Returns the abbreviations before a name or another word.
const StringSet& WordsBeforeAnother() {
  static const auto* words = new StringSet{
      // English
      "mr", "mrs", "ms", "dr", "prof", "rev", "hon", "gen", "col", "lt", "sgt", "capt", "cmdr", "maj", "gov", "sen",
      "messrs", "mt", "vs", "cf", "e.g", "i.e", "approx", "viz", "adm", "brig", "supt", "a.k.a",
      // German
      "hr", "hrn", "frl", "dipl", "ing", "med", "bzw", "ca", "evtl", "ggf", "inkl", "exkl", "zzgl", "vgl", "sog", "geb",
      "gest", "insb", "bes", "tel", "nr", "dipl.-ing", "röm", "z.b", "d.h", "u.a", "v.a", "i.d.r", "u.u", "z.t", "hl",
      // French
      "mm", "mme", "mmes", "mlle", "mlles", "mgr", "ste", "p.ex", "c.-à-d",
      // Spanish
      "sra", "srta", "sres", "sras", "dra", "dña", "lic", "gral", "avda", "ej", "p.ej", "excmo", "excma", "ilmo",
      "ilma", "rvdo", "sto", "sta", "núm", "ee",
      // Italian
      "sig", "sigg", "dott", "dott.ssa", "prof.ssa", "avv", "geom", "rag", "sig.ra", "spett", "gent", "egr",
      // Portuguese
      "srs", "srª", "drs", "profa", "eng", "exmo", "exma",
      // Russian
      "проф", "акад", "доц", "им", "тов", "см", "ср", "напр", "тел", "ул", "т.е", "т.н", "т.к"};
  return *words;
}

// Returns the abbreviations before another word or at the end of a sentence.
const StringSet& WordsAnywhere() {
  static const auto* words = new StringSet{
      // English
      "inc", "corp", "co", "ltd", "llc", "llp", "plc", "jr", "sr", "esq", "ave", "blvd", "rd", "st", "ln", "hwy", "sq",
      "ft", "dept", "univ", "bros", "est", "assn", "assoc", "mfg", "bldg", "intl", "natl", "govt", "al",
      // German
      "fr", "mio", "mrd", "tsd", "chr", "str",
      // French, Spanish, Italian, Portuguese
      "av", "env", "j.-c", "ud", "uds", "uu", "ltda", "cía", "cia", "apdo", "dpto", "depto",
      // Russian
      "млн", "млрд", "тыс", "руб", "коп", "гг", "др", "обл"};
  return *words;
}

// Returns the abbreviations before a number.
const StringSet& WordsBeforeNumber() {
  static const auto* words =
      new StringSet{"no",  "nos",  "fig", "figs", "vol", "vols", "ch",   "chap", "sec", "sect", "pp",   "pg",   "pt",
                    "bk",  "eq",   "rte", "art",  "abs", "bd",   "kap",  "abb",  "tab", "pag",  "pagg", "pág",  "págs",
                    "cap", "n°",   "nº",  "jan",  "feb", "mar",  "apr",  "jun",  "jul", "aug",  "sep",  "sept", "oct",
                    "okt", "nov",  "dec", "dez",  "mai", "juin", "janv", "févr", "avr", "juil", "déc",  "ene",  "abr",
                    "ago", "dic",  "gen", "giu",  "lug", "ott",  "fev",  "out",  "янв", "февр", "апр",  "авг",  "сент",
                    "окт", "нояб", "дек", "стр",  "рис", "табл", "гл",   "кв",   "ст"};
  return *words;
}

// Returns true for divisions of a book. Before them "I" is a number, not a pronoun.
bool IsDivision(std::string_view word) {
  return word == "vol" || word == "ch" || word == "chap" || word == "bd" || word == "kap" || word == "pt";
}

// Returns the words that CLDR's lists have, although they are ordinary words.
const StringSet& OrdinaryWords(std::string_view language) {
  static const auto* words = new std::map<std::string_view, StringSet>{
      {"en", {"alt", "long", "hat",  "link", "by", "act",  "up", "job", "ok",   "ex",  "cont", "mart", "or",  "cap",
              "in",  "do",   "joe",  "id",   "is", "diff", "on", "go",  "all",  "to",  "as",   "aa",   "pro", "def",
              "lev", "lib",  "card", "jam",  "ed", "pc",   "ab", "org", "exec", "num", "etc",  "i"}},
      {"de", {"alt", "art", "so",   "di",   "do",  "mi",   "mo",    "sa",  "am",  "test", "pin", "ben",
              "max", "dir", "best", "port", "mod", "mind", "trans", "int", "led", "akt",  "gem", "op"}},
      {"fr", {"all", "voit", "mer", "jeu", "mar", "sam", "quart", "cam", "lun", "comm", "graph"}},
      {"es", {"kit", "may", "sol", "mar", "all", "bien", "rol", "id", "ms", "fabric", "lun"}},
      {"it", {"all", "mod", "ver", "liv", "int", "on"}},
      {"pt", {"mar", "com", "out", "set", "long", "res", "cat", "lit", "sup", "pal", "port", "fac", "mov"}},
  };
  static const auto* none = new StringSet;
  const auto found = words->find(language);
  return found != words->end() ? found->second : *none;
}

// Returns the words that begin sentences and hardly ever a name.
const std::map<std::string_view, StringSet>& StartersByLanguage() {
  static const auto* words = new std::map<std::string_view, StringSet>{
      {"en",
       {"the",      "a",        "an",        "this",     "that",        "these",     "those",  "it",     "its",
        "he",       "she",      "they",      "we",       "you",         "i",         "his",    "her",    "their",
        "our",      "my",       "your",      "in",       "on",          "at",        "by",     "for",    "from",
        "with",     "as",       "if",        "when",     "while",       "where",     "after",  "before", "since",
        "because",  "although", "though",    "but",      "and",         "or",        "so",     "then",   "there",
        "here",     "however",  "meanwhile", "moreover", "furthermore", "therefore", "thus",   "also",   "yet",
        "still",    "what",     "why",       "how",      "who",         "which",     "one",    "some",   "many",
        "most",     "all",      "each",      "every",    "another",     "other",     "now",    "today",  "yesterday",
        "tomorrow", "later",    "next",      "finally",  "first",       "once",      "let",    "no",     "not",
        "never",    "please",   "yes",       "nobody",   "everyone",    "is",        "are",    "was",    "were",
        "do",       "does",     "did",       "can",      "could",       "would",     "should", "has",    "have"}},
      {"de",
       {"der",    "die",    "das",         "den",    "dem",    "des",    "ein",   "eine",    "einen", "einem", "er",
        "sie",    "es",     "wir",         "ihr",    "ich",    "du",     "man",   "sein",    "seine", "ihre",  "unser",
        "dieser", "diese",  "dieses",      "diesen", "diesem", "in",     "im",    "am",      "an",    "auf",   "aus",
        "bei",    "mit",    "nach",        "seit",   "von",    "vor",    "zu",    "zum",     "zur",   "für",   "gegen",
        "ohne",   "um",     "durch",       "über",   "unter",  "und",    "aber",  "oder",    "denn",  "doch",  "als",
        "wenn",   "weil",   "da",          "dann",   "dort",   "hier",   "heute", "gestern", "so",    "auch",  "nur",
        "noch",   "schon",  "wie",         "was",    "wer",    "wo",     "warum", "wann",    "nun",   "jetzt", "danach",
        "später", "zuerst", "schließlich", "alle",   "viele",  "einige", "kein",  "keine",   "nicht", "ja",    "nein",
        "ist",    "sind",   "war",         "hat"}},
      {"fr", {"le",     "la",       "les",     "l",       "un",        "une",    "des",        "ce",        "cet",
              "cette",  "ces",      "c",       "il",      "elle",      "ils",    "elles",      "on",        "nous",
              "vous",   "je",       "j",       "tu",      "son",       "sa",     "ses",        "leur",      "leurs",
              "mon",    "ma",       "mes",     "notre",   "votre",     "dans",   "en",         "à",         "au",
              "aux",    "sur",      "sous",    "avec",    "pour",      "par",    "sans",       "après",     "avant",
              "depuis", "mais",     "et",      "ou",      "où",        "donc",   "car",        "si",        "quand",
              "comme",  "lorsque",  "puis",    "ensuite", "alors",     "enfin",  "ainsi",      "cependant", "qui",
              "que",    "pourquoi", "comment", "hier",    "aujourd",   "demain", "maintenant", "ici",       "non",
              "oui",    "tout",     "tous",    "toute",   "plusieurs", "chaque", "aucun",      "voici",     "voilà"}},
      {"es", {"el",     "la",     "los",   "las",      "lo",      "un",       "una",    "unos",    "unas",   "este",
              "esta",   "estos",  "estas", "ese",      "esa",     "eso",      "esto",   "él",      "ella",   "ellos",
              "ellas",  "yo",     "tú",    "usted",    "ustedes", "nosotros", "su",     "sus",     "mi",     "mis",
              "en",     "a",      "al",    "con",      "por",     "para",     "sin",    "sobre",   "entre",  "desde",
              "hasta",  "tras",   "pero",  "y",        "o",       "si",       "cuando", "como",    "donde",  "mientras",
              "aunque", "porque", "así",   "entonces", "luego",   "después",  "antes",  "también", "además", "ya",
              "no",     "sí",     "qué",   "quién",    "cómo",    "cuándo",   "dónde",  "hoy",     "ayer",   "mañana",
              "ahora",  "aquí",   "todo",  "todos",    "cada",    "algunos",  "muchos", "nadie",   "es",     "está",
              "son",    "fue",    "era",   "hay",      "se",      "le",       "les",    "me",      "nos"}},
      {"it",
       {"il",     "lo",     "la",     "i",      "gli",    "le",     "l",     "un",      "uno",    "una",    "questo",
        "questa", "questi", "queste", "quello", "quella", "egli",   "lui",   "lei",     "noi",    "voi",    "loro",
        "io",     "tu",     "suo",    "sua",    "in",     "nel",    "nella", "con",     "su",     "per",    "tra",
        "fra",    "ma",     "e",      "o",      "se",     "quando", "come",  "dove",    "mentre", "perché", "poi",
        "allora", "quindi", "così",   "anche",  "non",    "sì",     "che",   "chi",     "oggi",   "ieri",   "domani",
        "ora",    "qui",    "tutto",  "tutti",  "ogni",   "alcuni", "molti", "nessuno", "si",     "è",      "era"}},
      {"pt", {"o",      "a",        "os",     "as",    "um",     "uma",   "este",   "esta", "esse",  "essa",   "isso",
              "isto",   "ele",      "ela",    "eles",  "elas",   "eu",    "tu",     "você", "vocês", "nós",    "seu",
              "sua",    "em",       "no",     "na",    "nos",    "nas",   "ao",     "à",    "com",   "por",    "para",
              "sem",    "sobre",    "entre",  "desde", "até",    "mas",   "e",      "ou",   "se",    "quando", "como",
              "onde",   "enquanto", "porque", "então", "depois", "antes", "também", "além", "já",    "não",    "sim",
              "que",    "quem",     "hoje",   "ontem", "amanhã", "agora", "aqui",   "todo", "todos", "cada",   "alguns",
              "muitos", "ninguém",  "é",      "era",   "está",   "são",   "foi",    "há"}},
      {"ru",
       {"он",     "она",     "оно",       "они",   "мы",    "вы",      "я",     "ты",     "это",    "этот",  "эта",
        "эти",    "тот",     "та",        "те",    "его",   "её",      "ее",    "их",     "мой",    "наш",   "ваш",
        "в",      "во",      "на",        "по",    "с",     "со",      "к",     "ко",     "у",      "о",     "об",
        "от",     "до",      "из",        "за",    "под",   "над",     "при",   "для",    "без",    "через", "после",
        "перед",  "и",       "а",         "но",    "или",   "если",    "когда", "как",    "что",    "где",   "пока",
        "потому", "поэтому", "так",       "также", "тогда", "потом",   "затем", "уже",    "ещё",    "еще",   "не",
        "нет",    "да",      "там",       "тут",   "здесь", "сегодня", "вчера", "завтра", "теперь", "все",   "всё",
        "каждый", "многие",  "некоторые", "кто",   "почему"}},
  };
  return *words;
}

const StringSet& Starters(std::string_view language) {
  static const auto* all = [] {
    auto* words = new StringSet;
    for (const auto& [unused, starters] : StartersByLanguage()) words->insert(starters.begin(), starters.end());
    return words;
  }();
  const auto found = StartersByLanguage().find(language);
  return found != StartersByLanguage().end() ? found->second : *all;
}

struct CloseResource {
  void operator()(UResourceBundle* bundle) const { ures_close(bundle); }
};
using ResourcePtr = std::unique_ptr<UResourceBundle, CloseResource>;

std::string LowerCase(std::string_view word) {
  std::string lower;
  for (size_t i = 0; i < word.size();) {
    const Utf8Char c = DecodeUtf8(word.substr(i));
    AppendUtf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c.code))), &lower);
    i += c.size;
  }
  return lower;
}

// Returns CLDR's list for `language`, which is empty for one that has none.
StringSet ReadSuppressions(const std::string& language) {
  StringSet words;
  UErrorCode error = U_ZERO_ERROR;
  const ResourcePtr breaks(ures_open(U_ICUDATA_NAME "-brkitr", language.c_str(), &error));
  if (error != U_ZERO_ERROR) return words;  // also a warning: the list of another language
  const ResourcePtr exceptions(ures_getByKey(breaks.get(), "exceptions", nullptr, &error));
  const ResourcePtr list(ures_getByKey(exceptions.get(), "SentenceBreak", nullptr, &error));
  if (error != U_ZERO_ERROR) return words;
  const StringSet& ordinary = OrdinaryWords(language);
  for (int32_t i = 0; i < ures_getSize(list.get()); ++i) {
    int32_t length = 0;
    const UChar* text = ures_getStringByIndex(list.get(), i, &length, &error);
    if (U_FAILURE(error)) break;
    std::string word;
    icu::UnicodeString(text, length).toUTF8String(word);
    if (!word.ends_with('.') || word.find(' ') != std::string::npos) continue;
    word.pop_back();
    if (!ordinary.contains(LowerCase(word))) words.insert(std::move(word));
  }
  return words;
}

const StringSet& Suppressions(const std::string& language) {
  static auto* mutex = new Mutex;
  static auto* lists = new std::map<std::string, StringSet>;  // their addresses stay
  const MutexLock lock(*mutex);
  const auto found = lists->find(language);
  return found != lists->end() ? found->second : lists->emplace(language, ReadSuppressions(language)).first->second;
}

// Returns true for a letter of an alphabet.
bool IsOneLetter(std::string_view word) {
  const Utf8Char c = DecodeUtf8(word);
  const auto code = static_cast<UChar32>(c.code);
  return (u_isULowercase(code) != 0 || u_isUUppercase(code) != 0) && c.size == word.size();
}

// Languages of the models that put a full stop behind the numbers of dates.
constexpr std::string_view kGerman = "de";
constexpr std::string_view kKorean = "ko";
constexpr size_t kLongestOrdinal = 2;  // digits

}  // namespace

Abbreviations::Abbreviations(const std::string& language)
    : language_(language),
      suppressed_(Suppressions(language.empty() ? "en" : language)),
      starters_(Starters(language)) {}

FullStopRole Abbreviations::Classify(std::string_view word) const {
  constexpr size_t kLongest = 64;  // bytes
  if (word.empty() || word.size() > kLongest) return FullStopRole::kNone;
  if (std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return (language_ == kGerman || language_ == kKorean) && word.size() <= kLongestOrdinal ? FullStopRole::kPerhaps
                                                                                            : FullStopRole::kNone;
  }
  const std::string lower = LowerCase(word);
  if (WordsBeforeAnother().contains(lower) || word == "M") return FullStopRole::kNever;  // "M. Le Pen"
  if (WordsAnywhere().contains(lower)) return FullStopRole::kPerhaps;
  if (WordsBeforeNumber().contains(lower)) return FullStopRole::kBeforeNumber;
  // Initials, and the ends of "z. B." and "U.S."; but "So do I." is a sentence.
  const size_t dot = word.rfind('.');
  if (IsOneLetter(word.substr(dot == std::string_view::npos ? 0 : dot + 1))) {
    return word == "I" ? FullStopRole::kNone : FullStopRole::kPerhaps;
  }
  if (suppressed_.contains(std::string(word))) return FullStopRole::kPerhaps;
  if (language_ == kGerman && IsRomanNumeral(word)) return FullStopRole::kPerhaps;
  return FullStopRole::kNone;
}

bool Abbreviations::IsNumberAfter(std::string_view word, std::string_view next) {
  if (!IsRomanNumeral(next)) return false;
  return next.size() > 1 || next == "V" || next == "X" || IsDivision(LowerCase(word));
}

bool Abbreviations::BeginsSentence(std::string_view word) const { return starters_.contains(LowerCase(word)); }

bool IsRomanNumeral(std::string_view word) {
  constexpr size_t kLongest = 15;  // MMMDCCCLXXXVIII
  return !word.empty() && word.size() <= kLongest && word.find_first_not_of("IVXLCDM") == std::string_view::npos;
}

}  // namespace qtts
