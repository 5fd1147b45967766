// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/spellout.h"

#include <glib.h>
#include <unicode/dtfmtsym.h>
#include <unicode/formattedvalue.h>
#include <unicode/measunit.h>
#include <unicode/numberformatter.h>
#include <unicode/plurrule.h>
#include <unicode/rbnf.h>
#include <unicode/ucurr.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ensure_memory.h"
#include "qtts/mutex.h"

namespace qtts {
namespace {

constexpr size_t kMaxDigits = 18;

// Memory for a language's rules. ICU crashes if there is none inside the constructor of its number format.
constexpr size_t kRulesBytes = size_t{1} << 20U;
constexpr size_t kRussianRulesBytes = size_t{8} << 20U;  // some 5 MB of cases and genders

std::string FromIcu(const icu::UnicodeString& text) {
  std::string utf8;
  text.toUTF8String(utf8);
  // German and Italian numbers have soft hyphens between their parts.
  for (size_t at = utf8.find("\xC2\xAD"); at != std::string::npos; at = utf8.find("\xC2\xAD", at)) utf8.erase(at, 2);
  return utf8;
}

int64_t ToNumber(std::string_view digits) {
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

// Returns a number of each plural category for all languages that have it.
double SampleOf(Plural plural) {
  switch (plural) {
    case Plural::kOne:
      return 1;
    case Plural::kFew:
      return 2;
    case Plural::kOther:
      return 5;
  }
  return 5;
}

}  // namespace

struct Spellout::Impl {
  Impl(TongueId tongue_id, const char* name) : tongue(tongue_id), locale(name) {
    EnsureMemory(tongue == TongueId::kRussian ? kRussianRulesBytes : kRulesBytes);
    UErrorCode error = U_ZERO_ERROR;
    numbers = std::make_unique<icu::RuleBasedNumberFormat>(icu::URBNF_SPELLOUT, locale, error);
    plurals.reset(icu::PluralRules::forLocale(locale, error));
    const icu::DateFormatSymbols symbols(locale, error);
    int32_t count = 0;
    const icu::UnicodeString* const wide =
        symbols.getMonths(count, icu::DateFormatSymbols::FORMAT, icu::DateFormatSymbols::WIDE);
    for (int32_t i = 0; i < std::min(count, 12); ++i) months[static_cast<size_t>(i)] = FromIcu(wide[i]);
    for (const auto context : {icu::DateFormatSymbols::FORMAT, icu::DateFormatSymbols::STANDALONE}) {
      for (const auto width : {icu::DateFormatSymbols::WIDE, icu::DateFormatSymbols::ABBREVIATED}) {
        const icu::UnicodeString* const names = symbols.getMonths(count, context, width);
        for (int32_t i = 0; i < std::min(count, 12); ++i) {
          std::u32string lower = ToLower(ToUtf32(FromIcu(names[i])));
          while (!lower.empty() && lower.back() == '.') lower.pop_back();
          month_names.emplace_back(std::move(lower), i + 1);
        }
      }
    }
    if (tongue == TongueId::kEnglish) month_names.emplace_back(U"sept", 9);
  }

  std::string Format(int64_t number, const std::string& rules) QTTS_EXCLUDES(mutex) {
    UErrorCode error = U_ZERO_ERROR;
    icu::UnicodeString text;
    icu::FieldPosition position(icu::FieldPosition::DONT_CARE);
    const MutexLock lock(mutex);
    numbers->format(number, icu::UnicodeString::fromUTF8("%spellout-" + rules), text, position, error);
    return U_SUCCESS(error) ? FromIcu(text) : std::to_string(number);
  }

  std::string FormatDecimal(const std::string& number) QTTS_EXCLUDES(mutex) {
    UErrorCode error = U_ZERO_ERROR;
    icu::UnicodeString text;
    icu::FieldPosition position(icu::FieldPosition::DONT_CARE);
    const MutexLock lock(mutex);
    numbers->format(g_ascii_strtod(number.c_str(), nullptr), "%spellout-numbering", text, position, error);
    return U_SUCCESS(error) ? FromIcu(text) : number;
  }

  const TongueId tongue;
  const icu::Locale locale;
  std::unique_ptr<icu::RuleBasedNumberFormat> numbers;  // not thread-safe in all versions of ICU
  std::unique_ptr<icu::PluralRules> plurals;
  std::array<std::string, 12> months;
  std::vector<std::pair<std::u32string, int>> month_names;
  Mutex mutex;
  std::map<std::pair<std::string, Plural>, std::pair<std::string, Gender>> units QTTS_GUARDED_BY(mutex);
};

Spellout::Spellout(TongueId tongue, const char* locale) : impl_(std::make_unique<Impl>(tongue, locale)) {}
Spellout::~Spellout() = default;

const Spellout& Spellout::For(TongueId tongue, std::string_view tag) {
  struct Entry {
    TongueId tongue;
    const char* locale;
    std::string_view tags;  // language tags of this spelling; empty: all others
  };
  static constexpr Entry kEntries[] = {
      {TongueId::kEnglish, "en_GB", "en-GB en-AU en-NZ en-IE en-ZA en-IN en-CA en-SG en-HK en-MT"},
      {TongueId::kPortuguese, "pt_PT", "pt-PT pt-AO pt-MZ pt-CV"},
      {TongueId::kChinese, "zh", ""},
      {TongueId::kEnglish, "en", ""},
      {TongueId::kJapanese, "ja", ""},
      {TongueId::kKorean, "ko", ""},
      {TongueId::kGerman, "de", ""},
      {TongueId::kFrench, "fr", ""},
      {TongueId::kPortuguese, "pt", ""},
      {TongueId::kRussian, "ru", ""},
      {TongueId::kSpanish, "es", ""},
      {TongueId::kItalian, "it", ""},
  };
  const auto* const entry = std::ranges::find_if(kEntries, [&](const Entry& each) {
    return each.tongue == tongue &&
           (each.tags.empty() || (tag.size() == 5 && each.tags.find(tag) != std::string_view::npos));
  });
  static Mutex mutex;
  static std::array<std::unique_ptr<const Spellout>, std::size(kEntries)> made;
  const MutexLock lock(mutex);
  auto& place = made[static_cast<size_t>(entry - kEntries)];
  if (place == nullptr) place.reset(new Spellout(tongue, entry->locale));
  return *place;
}

std::string Spellout::ByRules(int64_t number, std::string_view rules) const {
  return impl_->Format(number, std::string(rules));
}

std::string Spellout::Cardinal(int64_t number, Gender gender) const {
  switch (impl_->tongue) {
    case TongueId::kEnglish:
    case TongueId::kChinese:
    case TongueId::kJapanese:
      return ByRules(number, "cardinal");
    case TongueId::kKorean:
      return ByRules(number, "cardinal-sinokorean");
    default:
      break;
  }
  switch (gender) {
    case Gender::kNone:
      return ByRules(number, "numbering");
    case Gender::kFeminine:
      return ByRules(number, "cardinal-feminine");
    case Gender::kNeuter:
      if (impl_->tongue == TongueId::kRussian) return ByRules(number, "cardinal-neuter");
      break;
    case Gender::kMasculine:
      break;
  }
  return ByRules(number, "cardinal-masculine");
}

std::string Spellout::Cardinal(std::string_view digits, Gender gender) const {
  if (digits.size() > kMaxDigits) return Digits(digits);
  return Cardinal(ToNumber(digits), gender);
}

std::string Spellout::Ordinal(int64_t number) const {
  switch (impl_->tongue) {
    case TongueId::kEnglish:
    case TongueId::kGerman:
    case TongueId::kChinese:
    case TongueId::kJapanese:
      return ByRules(number, "ordinal");
    case TongueId::kKorean:
      return ByRules(number, "ordinal-native-count");
    default:
      return ByRules(number, "ordinal-masculine");
  }
}

std::string Spellout::Year(int64_t number) const {
  // ICU's Russian years are genitive ordinals, which only stand before "года".
  if (impl_->tongue == TongueId::kRussian) return Cardinal(number);
  // French years are counted like all numbers nowadays.
  if (impl_->tongue == TongueId::kFrench) return Cardinal(number);
  if (impl_->tongue == TongueId::kJapanese) return Cardinal(number);
  std::string year = ByRules(number, "numbering-year");
  for (size_t at = year.find("oh-"); at != std::string::npos; at = year.find("oh-")) year[at + 2] = ' ';
  return year;
}

std::string Spellout::Digits(std::string_view digits) const {
  const bool spaces = TongueOf(impl_->tongue).spaces;
  std::string text;
  for (const char digit : digits) {
    if (spaces && !text.empty()) text += ' ';
    if (digit == '0' && impl_->tongue == TongueId::kChinese) {
      text += "零";
    } else if (digit == '0' && impl_->tongue == TongueId::kKorean) {
      text += "공";
    } else if (digit == '0' && impl_->tongue == TongueId::kJapanese) {
      text += "ゼロ";
    } else {
      text += Cardinal(digit - '0');
    }
  }
  return text;
}

std::string Spellout::Decimal(std::string_view whole, std::string_view digits) const {
  const Tongue& tongue = TongueOf(impl_->tongue);
  constexpr size_t kMaxRussianDigits = 4;
  if (impl_->tongue == TongueId::kRussian && digits.size() <= kMaxRussianDigits && whole.size() < 10) {
    return impl_->FormatDecimal(std::string(whole) + "." + std::string(digits));  // "три целых четырнадцать сотых"
  }
  std::string text = Cardinal(whole.empty() ? "0" : whole);
  if (digits.empty()) return text;
  if (impl_->tongue == TongueId::kKorean || impl_->tongue == TongueId::kJapanese) {
    // "삼 점 일사" has the digits of numbers, not of codes.
    text.append(tongue.gap()).append(tongue.words.point).append(tongue.gap());
    for (const char digit : digits) text += Cardinal(digit - '0');
    return text;
  }
  text.append(tongue.gap()).append(tongue.words.point).append(tongue.gap()).append(Digits(digits));
  return text;
}

Plural Spellout::PluralOf(std::string_view whole, std::string_view fraction) const {
  const bool french = impl_->tongue == TongueId::kFrench || impl_->tongue == TongueId::kPortuguese;
  if (!fraction.empty()) {
    if (impl_->tongue == TongueId::kRussian) return Plural::kFew;  // "пять запятая два километра"
    return french && (whole.empty() || whole == "0" || whole == "1") ? Plural::kOne : Plural::kOther;
  }
  if (impl_->plurals == nullptr) return whole == "1" ? Plural::kOne : Plural::kOther;  // ICU without its data
  const auto number = static_cast<int32_t>(ToNumber(whole.substr(whole.size() > 6 ? whole.size() - 6 : 0)));
  const std::string name = FromIcu(impl_->plurals->select(whole.size() > 6 ? number + 1000000 : number));
  return name == "one" ? Plural::kOne : name == "few" ? Plural::kFew : Plural::kOther;
}

const std::string& Spellout::Month(int month) const {
  return impl_->months[static_cast<size_t>(std::clamp(month, 1, 12) - 1)];
}

int Spellout::MonthOf(std::u32string_view word) const {
  if (word.size() < 3) return 0;
  const auto found = std::ranges::find(impl_->month_names, word, &std::pair<std::u32string, int>::first);
  return found == impl_->month_names.end() ? 0 : found->second;
}

std::string Spellout::UnitPattern(const std::string& identifier, Plural plural, Gender* gender) const {
  const auto key = std::make_pair(identifier, plural);
  {
    const MutexLock lock(impl_->mutex);
    const auto found = impl_->units.find(key);
    if (found != impl_->units.end()) {
      *gender = found->second.second;
      return found->second.first;
    }
  }
  EnsureMemory(kRulesBytes);
  UErrorCode error = U_ZERO_ERROR;
  const auto formatted = icu::number::NumberFormatter::withLocale(impl_->locale)
                             .unit(icu::MeasureUnit::forIdentifier(identifier, error))
                             .unitWidth(UNUM_UNIT_WIDTH_FULL_NAME)
                             .formatDouble(SampleOf(plural), error);
  icu::UnicodeString text = formatted.toString(error);
  icu::ConstrainedFieldPosition position;
  position.constrainField(UFIELD_CATEGORY_NUMBER, UNUM_INTEGER_FIELD);
  std::string pattern;
  const UDisplayOptionsNounClass noun_class = formatted.getNounClass(error);
  *gender = noun_class == UDISPOPT_NOUN_CLASS_FEMININE ? Gender::kFeminine
            : noun_class == UDISPOPT_NOUN_CLASS_NEUTER ? Gender::kNeuter
                                                       : Gender::kMasculine;
  if (formatted.nextPosition(position, error) && U_SUCCESS(error)) {
    text.replaceBetween(position.getStart(), position.getLimit(), icu::UnicodeString("{0}"));
    pattern = FromIcu(text);
  }
  const MutexLock lock(impl_->mutex);
  impl_->units.emplace(key, std::make_pair(pattern, *gender));
  return pattern;
}

std::string Spellout::CurrencyName(const std::string& code, Plural plural) const {
  if (code.size() != 3) return "";
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString iso = icu::UnicodeString::fromUTF8(code);
  const char* const category = plural == Plural::kOne ? "one" : plural == Plural::kFew ? "few" : "other";
  int32_t length = 0;
  const UChar* const name = ucurr_getPluralName(icu::UnicodeString(iso).getTerminatedBuffer(), impl_->locale.getName(),
                                                nullptr, category, &length, &error);
  // An unknown code is its own name.
  if (U_FAILURE(error) || error == U_USING_DEFAULT_WARNING) return "";
  std::string text = FromIcu(icu::UnicodeString(name, length));
  return text == code ? "" : text;
}

}  // namespace qtts
