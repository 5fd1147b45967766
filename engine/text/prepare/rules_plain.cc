// SPDX-License-Identifier: LGPL-2.1-or-later
// Plain numbers, ordinals, fractions, decades, and the signs between numbers.
#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

// Returns the gender of the noun that follows, as its ending suggests.
Gender GuessGender(const NumberContext& context, ptrdiff_t at) {
  const Reader& text = context.text;
  if (!IsSpace(text[at])) return Gender::kNone;
  const ptrdiff_t begin = at + text.Spaces(at);
  const std::u32string word = ToLower(text.Text(begin, text.Letters(begin, 30)));
  if (word.size() < 3) return Gender::kNone;
  const auto ends = [&](std::initializer_list<std::u32string_view> endings) {
    return std::ranges::any_of(endings, [&](std::u32string_view ending) { return word.ends_with(ending); });
  };
  switch (context.tongue.id) {
    case TongueId::kSpanish:
    case TongueId::kPortuguese:
      if (word == U"días" || word == U"dias" || word == U"día" || word == U"dia") return Gender::kMasculine;
      return ends({U"a", U"as", U"ción", U"ciones", U"dad", U"dades", U"ção", U"ções", U"dade"}) ? Gender::kFeminine
                                                                                                 : Gender::kMasculine;
    case TongueId::kItalian:
      return ends({U"a", U"zione", U"tà"}) ? Gender::kFeminine : Gender::kMasculine;
    case TongueId::kGerman:
      if (!IsUpper(text[begin])) return Gender::kNone;
      return ends({U"ung", U"heit", U"keit", U"schaft", U"ion", U"in", U"e"}) ? Gender::kFeminine : Gender::kMasculine;
    case TongueId::kRussian:
      if (ends({U"и", U"ы"})) return Gender::kFeminine;
      if (ends({U"о", U"е"})) return Gender::kNeuter;
      if (ends({U"а", U"я"})) {
        // After "1" the nominative of a feminine noun, after "2" to "4" the genitive of another one.
        return text[at - 1] == '1' ? Gender::kFeminine : Gender::kMasculine;
      }
      return Gender::kMasculine;
    case TongueId::kFrench:
      return ends({U"heure",     U"heures",  U"minute",   U"minutes", U"seconde", U"secondes", U"personne",
                   U"personnes", U"semaine", U"semaines", U"page",    U"pages",   U"femme",    U"femmes",
                   U"fille",     U"filles",  U"maison",   U"maisons", U"fois",    U"tion",     U"tions",
                   U"ée",        U"ées",     U"té",       U"tés",     U"ette",    U"ettes",    U"ence",
                   U"ences",     U"ance",    U"ances",    U"ure",     U"ures"})
                 ? Gender::kFeminine
                 : Gender::kMasculine;
    default:
      return Gender::kNone;
  }
}

// Words that are counted with native Korean numbers, and the Chinese ones that take 两 for two.
constexpr std::string_view kKoreanCounters[] = {"개", "명", "살",   "번", "마리", "권",   "잔",  "대",
                                                "병", "장", "시간", "시", "사람", "그루", "송이"};
constexpr std::string_view kChineseCounters[] = {"个", "位", "只", "本", "张", "次", "条", "件", "块",
                                                 "杯", "辆", "台", "天", "年", "家", "名", "种", "周"};

bool FollowsOneOf(const Reader& text, ptrdiff_t at, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.Has(at, word); });
}

// Returns a fraction in words. `end`: where the fraction ends.
std::string FractionWords(const NumberContext& context, int64_t top, int64_t bottom, bool behind_whole, ptrdiff_t end) {
  const Spellout& words = context.words;
  const auto place = static_cast<size_t>(bottom - 2);
  switch (context.tongue.id) {
    case TongueId::kChinese:
      return words.Cardinal(bottom) + "分之" + words.Cardinal(top);
    case TongueId::kJapanese:
      return words.Cardinal(bottom) + "分の" + words.Cardinal(top);
    case TongueId::kKorean:
      return words.Cardinal(bottom) + "분의 " + words.Cardinal(top);
    case TongueId::kRussian:
      return words.Cardinal(top, Gender::kFeminine) + " " +
             words.ByRules(bottom, top == 1 ? "ordinal-feminine" : "ordinal-plural-genitive");
    default:
      break;
  }
  const bool named = bottom >= 2 && place < context.tongue.fractions.size();
  if (context.Is(TongueId::kEnglish)) {
    if (!named && (bottom > 100 || bottom < 2)) return words.Cardinal(top) + " over " + words.Cardinal(bottom);
    if (!named) return words.Cardinal(top) + " " + words.Ordinal(bottom) + (top == 1 ? "" : "s");
    if (top == 1)
      return (behind_whole || bottom <= 4 ? "a " : "one ") + std::string(context.tongue.fractions_one[place]);
    return words.Cardinal(top) + " " + std::string(context.tongue.fractions[place]);
  }
  if (!named) return words.Cardinal(top) + " " + std::string(context.tongue.words.slash) + " " + words.Cardinal(bottom);
  if (top == 1 && bottom == 2) {
    if (context.Is(TongueId::kGerman)) {
      const Gender gender = behind_whole ? Gender::kNone : GuessGender(context, end);
      return behind_whole                  ? "einhalb"
             : gender == Gender::kFeminine ? "eine halbe"
             : gender == Gender::kNone     ? "ein halb"
                                           : "ein halbes";
    }
    if (context.Is(TongueId::kFrench)) return behind_whole ? "demi" : "un demi";
    return (behind_whole                     ? ""
            : context.Is(TongueId::kItalian) ? "un "
                                             : "") +
           std::string(context.tongue.fractions_one[0]);
  }
  if (context.Is(TongueId::kGerman)) {
    return (top == 1 ? "ein" : words.Cardinal(top)) + " " + std::string(context.tongue.fractions[place]);
  }
  return words.Cardinal(top, Gender::kMasculine) + " " +
         std::string(top == 1 ? context.tongue.fractions_one[place] : context.tongue.fractions[place]);
}

// Reads the fraction that one character stands for, such as ½.
bool ReadVulgar(char32_t c, int64_t* top, int64_t* bottom) {
  if (c > UCHAR_MAX_VALUE || u_charType(static_cast<UChar32>(c)) != U_OTHER_NUMBER) return false;
  const double value = u_getNumericValue(static_cast<UChar32>(c));
  if (value <= 0 || value >= 1) return false;
  for (*bottom = 2; *bottom <= 10; ++*bottom) {
    const double times = value * static_cast<double>(*bottom);
    *top = std::lround(times);
    if (std::abs(times - static_cast<double>(*top)) < 1e-6) return true;
  }
  return false;
}

std::string WholeAndFraction(const NumberContext& context, const std::string& whole, int64_t top, int64_t bottom,
                             ptrdiff_t end) {
  if (whole.empty()) return FractionWords(context, top, bottom, false, end);
  const std::string fraction = FractionWords(context, top, bottom, true, end);
  if (!context.tongue.spaces)
    return context.words.Cardinal(whole) + (context.Is(TongueId::kChinese) ? "又" : "と") + fraction;
  if (context.Is(TongueId::kGerman) && top == 1 && bottom == 2)
    return context.words.Cardinal(whole, Gender::kMasculine) + fraction;
  const std::string gap = context.Is(TongueId::kKorean) || context.Is(TongueId::kRussian)
                              ? " "
                              : " " + std::string(context.tongue.words.and_) + " ";
  return context.words.Cardinal(whole) + gap + fraction;
}

}  // namespace

std::optional<Edit> SayFraction(const NumberContext& context) {
  const Reader& text = context.text;
  int64_t top = 0;
  int64_t bottom = 0;
  if (ReadVulgar(text[0], &top, &bottom)) return Say(context, 1, FractionWords(context, top, bottom, false, 1));
  const ptrdiff_t first = text.Digits(0, 5);
  if (first < 1 || first > 4 || IsJoined(text[-1])) return std::nullopt;
  const ptrdiff_t vulgar = first + text.Spaces(first);
  if (ReadVulgar(text[vulgar], &top, &bottom)) {
    return Say(context, vulgar + 1, WholeAndFraction(context, text.Utf8(0, first), top, bottom, vulgar + 1));
  }
  // 2 1/2
  std::string whole;
  ptrdiff_t at = 0;
  ptrdiff_t digits = first;
  if (IsSpace(text[first]) && IsDigit(text[first + 1]) && text.Digits(first + 1, 3) <= 2 && first <= 3) {
    const ptrdiff_t second = text.Digits(first + 1, 3);
    if (text[first + 1 + second] == '/') {
      whole = text.Utf8(0, first);
      at = first + 1;
      digits = second;
    }
  }
  if (digits > 3 || (text[at + digits] != '/' && text[at + digits] != 0x2044)) return std::nullopt;
  const ptrdiff_t denominator = text.Digits(at + digits + 1, 4);
  const ptrdiff_t end = at + digits + 1 + denominator;
  if (denominator < 1 || denominator > 3 || text[end] == '/' || !IsBoundary(text, end)) return std::nullopt;
  if (text[end] == '.' && IsDigit(text[end + 1])) return std::nullopt;
  top = NumberOf(text.Utf8(at, digits));
  bottom = NumberOf(text.Utf8(at + digits + 1, denominator));
  if (top == 0 || bottom == 0) return std::nullopt;
  // 24/7, 9/11: no fraction, but two numbers
  if (top >= bottom && whole.empty()) {
    return Say(context, end,
               context.words.Cardinal(top) + (context.tongue.spaces ? " " : std::string(context.tongue.comma)) +
                   context.words.Cardinal(bottom));
  }
  if (context.Is(TongueId::kEnglish) && whole.empty() && top == 9 && bottom == 11)
    return Say(context, end, "nine eleven");
  return Say(context, end, WholeAndFraction(context, whole, top, bottom, end));
}

std::optional<Edit> SayOrdinal(const NumberContext& context) {
  const Reader& text = context.text;
  const WrittenNumber number = ReadNumber(context, 0);
  if (number.length == 0 || !number.fraction.empty() || number.whole.size() > 9) return std::nullopt;
  const ptrdiff_t at = number.length;
  const int64_t value = NumberOf(number.whole);
  const auto say = [&](std::string_view suffix, const std::string& words) {
    return Say(context, at + static_cast<ptrdiff_t>(CountUtf8(suffix)), words);
  };
  const auto matches = [&](std::string_view suffix) {
    return text.HasLower(at, suffix) && IsBoundary(text, at + static_cast<ptrdiff_t>(CountUtf8(suffix)));
  };
  switch (context.tongue.id) {
    case TongueId::kEnglish:
      for (const std::string_view suffix : {"st", "nd", "rd", "th"}) {
        if (matches(suffix)) return say(suffix, context.words.Ordinal(value));
      }
      return std::nullopt;
    case TongueId::kFrench:
      for (const std::string_view suffix : {"er", "e", "ème", "ième", "eme"}) {
        if (matches(suffix)) return say(suffix, context.words.Ordinal(value));
      }
      for (const std::string_view suffix : {"re", "ère"}) {
        if (matches(suffix) && value == 1) return say(suffix, "première");
      }
      for (const std::string_view suffix : {"nd", "nde"}) {
        if (matches(suffix) && value == 2) return say(suffix, suffix == "nd" ? "second" : "seconde");
      }
      return std::nullopt;
    case TongueId::kSpanish:
    case TongueId::kItalian:
    case TongueId::kPortuguese:
      for (const std::string_view suffix : {".º", "º", ".ª", "ª", "°", ".er", ".o", ".a"}) {
        const bool letters = suffix == ".er" || suffix == ".o" || suffix == ".a";
        if (!matches(suffix) || (letters && !context.Is(TongueId::kSpanish))) continue;
        const bool feminine = suffix.ends_with("ª") || suffix == ".a";
        if (suffix == ".er") return say(suffix, context.words.ByRules(value, "ordinal-masculine-adjective"));
        return say(suffix, context.words.ByRules(value, feminine ? "ordinal-feminine" : "ordinal-masculine"));
      }
      return std::nullopt;
    case TongueId::kRussian: {
      static constexpr std::pair<std::string_view, std::string_view> kSuffixes[] = {
          {"-го", "ordinal-masculine-genitive"},
          {"-му", "ordinal-masculine-dative"},
          {"-ый", "ordinal-masculine"},
          {"-ой", "ordinal-masculine"},
          {"-ая", "ordinal-feminine"},
          {"-ое", "ordinal-neuter"},
          {"-й", "ordinal-masculine"},
          {"-я", "ordinal-feminine"},
          {"-е", "ordinal-neuter"},
          {"-м", "ordinal-masculine-locative"},
          {"-х", "ordinal-plural-genitive"},
          {"-ю", "ordinal-feminine-accusative"}};
      for (const auto& [suffix, rules] : kSuffixes) {
        if (matches(suffix)) return say(suffix, context.words.ByRules(value, rules));
      }
      // A year before its word.
      if (!IsSpace(text[at])) return std::nullopt;
      const ptrdiff_t word = at + text.Spaces(at);
      static constexpr std::pair<std::string_view, std::string_view> kYears[] = {
          {"года", "ordinal-masculine-genitive"},
          {"год", "ordinal-masculine"},
          {"году", "ordinal-masculine-locative"},
          {"годом", "ordinal-masculine-ablative"}};
      constexpr int64_t kFirstYear = 100;
      for (const auto& [name, rules] : kYears) {
        if (value >= kFirstYear && text.Has(word, name) &&
            IsBoundary(text, word + static_cast<ptrdiff_t>(CountUtf8(name)))) {
          return Say(context, at, RussianYear(context, value, rules));
        }
      }
      if (value >= kFirstYear && text.Has(word, "г."))
        return Replace(word + 2, RussianYear(context, value, "ordinal-masculine-genitive") + " года");
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Edit> SayDecade(const NumberContext& context) {
  const Reader& text = context.text;
  if (!context.Is(TongueId::kEnglish)) return std::nullopt;
  const ptrdiff_t digits = text.Digits(0, 5);
  if ((digits != 2 && digits != 4) || text[digits - 1] != '0') return std::nullopt;
  const bool apostrophe = text[digits] == '\'' || text[digits] == 0x2019;
  const ptrdiff_t end = digits + (apostrophe ? 2 : 1);
  if (text[end - 1] != 's' || !IsBoundary(text, end)) return std::nullopt;
  const int64_t number = NumberOf(text.Utf8(0, digits));
  if (number < 20 || (digits == 4 && (number < 1100 || number > 2090))) return std::nullopt;
  std::string words = digits == 4 ? context.words.Year(number) : context.words.Cardinal(number);
  if (words.ends_with('y')) words.replace(words.size() - 1, 1, "ie");
  return Say(context, end, words + "s");
}

std::optional<Edit> SayNumber(const NumberContext& context) {
  const Reader& text = context.text;
  const WrittenNumber number = ReadNumber(context, 0);
  if (number.length == 0) return std::nullopt;
  const int64_t value = NumberOf(number.whole);
  const bool plain = !number.grouped && number.fraction.empty();
  if (context.Is(TongueId::kKorean) && plain && value >= 1 && value < 100) {
    const ptrdiff_t at = number.length + text.Spaces(number.length);
    if (FollowsOneOf(text, at, kKoreanCounters)) {
      return Say(context, number.length,
                 context.words.ByRules(value, "cardinal-native-attributive") + (at == number.length ? " " : ""));
    }
  }
  if (context.Is(TongueId::kChinese) && plain) {
    if (number.whole.size() == 4 && text[number.length] == U'年') return Say(context, 4, context.words.Year(value));
    if (value == 2 && FollowsOneOf(text, number.length, kChineseCounters)) return Say(context, number.length, "两");
  }
  // Four digits are spoken like a year, which is usual for other numbers of this size, too.
  const bool year = plain && number.whole.size() == 4 && value >= 1100 && value <= 2099 &&
                    (context.Is(TongueId::kEnglish) || context.Is(TongueId::kGerman));
  if (year) return Say(context, number.length, context.words.Year(value));
  const Gender gender = plain || number.grouped ? GuessGender(context, number.length) : Gender::kNone;
  return Say(context, number.length, NumberWords(context, number, gender));
}

namespace {

std::optional<Edit> SayRange(const NumberContext& context) {
  const Reader& text = context.text;
  const ptrdiff_t spaces = text.Spaces(0);
  const char32_t dash = text[spaces];
  if (dash != '-' && dash != 0x2013 && dash != 0x2014 && dash != 0x2212) return std::nullopt;
  const ptrdiff_t at = spaces + 1 + text.Spaces(spaces + 1);
  if ((at > spaces + 1) != (spaces > 0)) return std::nullopt;
  const bool before = IsDigit(text[-1]) || text[-1] == '%' || text[-1] == U'°' || text[-1] == U'€';
  const bool sum = text[at] == '$' || text[at] == U'€' || text[at] == U'£';
  if (!before || !(IsDigit(text[at]) || (sum && IsDigit(text[at + 1])))) return std::nullopt;
  // 5 - 3 = 2
  const WrittenNumber next = ReadNumber(context, at);
  const ptrdiff_t end = at + next.length + text.Spaces(at + next.length);
  const bool minus = (next.length > 0 && text[end] == '=') || dash == 0x2212;
  if (context.Is(TongueId::kKorean) && !minus) return Replace(at, std::string(context.tongue.words.to) + " ");
  const std::string gap(context.tongue.gap());
  return Say(context, at, gap + std::string(minus ? context.tongue.words.minus : context.tongue.words.to) + gap);
}

// Says the sign between "2" and "3" in "2x3", "2 × 3", "2*3".
std::optional<Edit> SayProduct(const NumberContext& context) {
  const Reader& text = context.text;
  const ptrdiff_t spaces = text.Spaces(0);
  const char32_t sign = text[spaces];
  const ptrdiff_t at = spaces + 1 + text.Spaces(spaces + 1);
  if (!IsDigit(text[-1]) || !IsDigit(text[at]) || (sign != 'x' && sign != U'×' && sign != '*')) return std::nullopt;
  if ((at > spaces + 1) != (spaces > 0)) return std::nullopt;
  const bool size = spaces == 0 && sign != '*';
  return Say(context, at,
             std::string(context.tongue.gap()) +
                 std::string(size ? context.tongue.words.by : context.tongue.words.times) +
                 std::string(context.tongue.gap()));
}

// Says x², 10³, x^2; a footnote's mark behind a word.
std::optional<Edit> SayPower(const NumberContext& context) {
  const Reader& text = context.text;
  static constexpr std::u32string_view kSuperscripts = U"⁰¹²³⁴⁵⁶⁷⁸⁹";
  std::string digits;
  ptrdiff_t end = 0;
  if (text[0] == '^') {
    end = 1 + text.Digits(1, 4);
    digits = text.Utf8(1, end - 1);
  } else {
    for (size_t digit = kSuperscripts.find(text[end]); digit != std::u32string_view::npos && end < 4;
         digit = kSuperscripts.find(text[end])) {
      digits += static_cast<char>('0' + digit);
      ++end;
    }
  }
  const char32_t before = text[-1];
  if (digits.empty() || !(IsJoined(before) || before == ')')) return std::nullopt;
  if (text[0] != '^' && IsLetter(before) && IsLetter(text[-2]) && IsLetter(text[-3])) return Remove(end);
  const std::string gap(context.tongue.gap());
  const SymbolWords& words = context.tongue.words;
  const std::string tail = IsJoined(text[end]) ? gap : "";
  if (digits == "2") return Replace(end, gap + std::string(words.squared) + tail);
  if (digits == "3") return Replace(end, gap + std::string(words.cubed) + tail);
  return Replace(end, gap + std::string(words.power) + gap + context.words.Cardinal(digits) + tail);
}

// Says a dot between the parts of "example.com", and a missing space between sentences.
std::optional<Edit> SayDot(const NumberContext& context) {
  const Reader& text = context.text;
  if (text[0] != '.' || !IsJoined(text[-1])) return std::nullopt;
  const std::string gap(context.tongue.gap());
  if (IsDigit(text[-1]) && IsDigit(text[1])) return Replace(1, gap + std::string(context.tongue.words.point) + gap);
  if (!IsLetter(text[1])) return std::nullopt;
  if (IsLower(text[1])) return Replace(1, gap + std::string(context.tongue.words.dot) + gap);
  return IsLower(text[-1]) && IsUpper(text[1]) ? std::optional(Replace(1, ". ")) : std::nullopt;
}

// Says the path behind a host's name.
std::optional<Edit> SaySlash(const NumberContext& context) {
  const Reader& text = context.text;
  if (text[0] != '/' || !IsJoined(text[-1])) return std::nullopt;
  bool host = false;
  for (ptrdiff_t i = -1; text[i] != Reader::kNone && !IsSpace(text[i]) && !host; --i) {
    host = text[i] == '.' && IsLetter(text[i + 1]) && IsJoined(text[i - 1]);
  }
  if (!host) return std::nullopt;
  if (!IsJoined(text[1])) return Remove(1);
  const std::string gap(context.tongue.gap());
  return Replace(1, gap + std::string(context.tongue.words.slash) + gap);
}

}  // namespace

std::optional<Edit> SaySign(const NumberContext& context) {
  const Reader& text = context.text;
  const char32_t c = text[0];
  if (auto edit = SayRange(context)) return edit;
  if (auto edit = SayProduct(context)) return edit;
  if (auto edit = SayPower(context)) return edit;
  if (auto edit = SayDot(context)) return edit;
  if (auto edit = SaySlash(context)) return edit;
  const std::string gap(context.tongue.gap());
  if (c == '-' || c == 0x2212) {
    const bool sum = text[1] == '$' || text[1] == U'€' || text[1] == U'£';
    const bool number = IsDigit(text[1]) || (text[1] == '.' && IsDigit(text[2])) || (sum && IsDigit(text[2]));
    const char32_t before = text[-1];
    if (number && IsUpper(before)) return Replace(1, gap);  // COVID-19
    if (number && !IsJoined(before) && before != ')' && before != '-')
      return Replace(1, std::string(context.tongue.words.minus) + gap);
  }
  if (c == '#' && IsDigit(text[1]) && !IsJoined(text[-1]))
    return Replace(1, std::string(context.tongue.words.number) + gap);
  if (c == U'№') {
    const ptrdiff_t spaces = text.Spaces(1);
    return Replace(1 + spaces, std::string(context.tongue.words.number) + gap);
  }
  if ((c == '\'' || c == 0x2019) && !IsJoined(text[-1]) && text.Digits(1, 3) == 2 && text[3] == 's')
    return Remove(1);  // '90s
  return std::nullopt;
}

}  // namespace qtts
