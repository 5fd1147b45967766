// SPDX-License-Identifier: LGPL-2.1-or-later
// Dates and times of day.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

struct Date {
  int64_t year = 0;  // 0: none
  int month = 0;
  int day = 0;
};

bool IsDate(const Date& date) {
  static constexpr std::array<int, 13> kDays = {0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return date.month >= 1 && date.month <= 12 && date.day >= 1 && date.day <= kDays[static_cast<size_t>(date.month)];
}

// Returns an ordinal. German ones agree with the word before them.
std::string GermanOrdinal(const NumberContext& context, int64_t number) {
  static constexpr std::u32string_view kWithN[] = {
      U"am",     U"vom",      U"zum",    U"dem",      U"den",        U"bis",     U"im",      U"beim",   U"seit",
      U"ab",     U"zur",      U"vor",    U"nach",     U"des",        U"einem",   U"ihrem",   U"seinem", U"jeden",
      U"diesem", U"dienstag", U"montag", U"mittwoch", U"donnerstag", U"freitag", U"samstag", U"sonntag"};
  static constexpr std::u32string_view kWithE[] = {U"der", U"die", U"das", U"diese", U"dieser", U"dieses"};
  const std::u32string before = ToLower(context.text.WordBefore());
  const bool n = std::ranges::find(kWithN, before) != std::end(kWithN);
  const bool e = std::ranges::find(kWithE, before) != std::end(kWithE);
  return context.words.ByRules(number, n ? "ordinal-n" : e ? "ordinal" : "ordinal-r");
}

std::string DayWords(const NumberContext& context, int day) {
  switch (context.tongue.id) {
    case TongueId::kEnglish:
      return context.words.Ordinal(day);
    case TongueId::kGerman:
      return GermanOrdinal(context, day);
    case TongueId::kRussian:
      return context.words.ByRules(day, "ordinal-neuter-genitive");
    case TongueId::kFrench:
    case TongueId::kItalian:
    case TongueId::kPortuguese:
      if (day == 1) return context.words.Ordinal(day);
      break;
    default:
      break;
  }
  return context.words.Cardinal(day, Gender::kNone);
}

std::string DateWords(const NumberContext& context, const Date& date) {
  const Spellout& words = context.words;
  const std::string day = DayWords(context, date.day);
  const std::string& month = words.Month(date.month);
  const std::string year = date.year > 0 ? words.Year(date.year) : "";
  switch (context.tongue.id) {
    case TongueId::kEnglish: {
      const std::string tail = year.empty() ? "" : ", " + year;
      if (context.choice.month_first) return month + " " + day + tail;
      const bool has_article = ToLower(context.text.WordBefore()) == U"the";
      return (has_article ? "" : "the ") + day + " of " + month + tail;
    }
    case TongueId::kSpanish:
    case TongueId::kPortuguese:
      return day + " de " + month + (year.empty() ? "" : " de " + year);
    case TongueId::kRussian:
      if (year.empty()) return day + " " + month;
      return day + " " + month + " " + RussianYear(context, date.year, "ordinal-masculine-genitive") + " года";
    case TongueId::kChinese:
    case TongueId::kJapanese:
      return (year.empty() ? "" : year + "年") + words.Cardinal(date.month) + "月" + words.Cardinal(date.day) + "日";
    case TongueId::kKorean: {
      // Two months have names of their own.
      const std::string name = date.month == 6 ? "유" : date.month == 10 ? "시" : words.Cardinal(date.month);
      return (year.empty() ? "" : year + "년 ") + name + "월 " + words.Cardinal(date.day) + "일";
    }
    default:
      return day + " " + month + (year.empty() ? "" : " " + year);
  }
}

int64_t FullYear(std::string_view digits) {
  const int64_t year = NumberOf(digits);
  if (digits.size() > 2) return year;
  constexpr int64_t kLastOfThisCentury = 49;
  return year > kLastOfThisCentury ? 1900 + year : 2000 + year;
}

std::string Clock(const NumberContext& context, int64_t hour, int64_t minute) {
  const Spellout& words = context.words;
  const std::string minutes = words.Cardinal(minute);
  switch (context.tongue.id) {
    case TongueId::kEnglish:
      if (minute == 0 && hour == 0) return "midnight";
      if (minute == 0) return words.Cardinal(hour) + (hour > 12 ? " hundred" : " o'clock");
      return words.Cardinal(hour) + (minute < 10 ? " oh " : " ") + minutes;
    case TongueId::kGerman:
      return (hour == 1 ? "ein" : words.Cardinal(hour)) + " Uhr" + (minute == 0 ? "" : " " + minutes);
    case TongueId::kFrench:
      return words.Cardinal(hour, Gender::kFeminine) + (hour < 2 ? " heure" : " heures") +
             (minute == 0 ? "" : " " + minutes);
    case TongueId::kSpanish:
      return words.Cardinal(hour, Gender::kFeminine) +
             (minute == 0 ? " en punto" : (minute < 10 ? " cero " : " ") + minutes);
    case TongueId::kItalian:
      return (hour == 1 ? "una" : words.Cardinal(hour)) +
             (minute == 0 ? " in punto" : (minute < 10 ? " e zero " : " e ") + minutes);
    case TongueId::kPortuguese:
      return words.Cardinal(hour, Gender::kFeminine) +
             (minute == 0 ? (hour == 1 ? " hora" : " horas") : " e " + minutes);
    case TongueId::kRussian:
      return words.Cardinal(hour) + (minute == 0 ? " ноль ноль" : (minute < 10 ? " ноль " : " ") + minutes);
    case TongueId::kChinese:
      return (hour == 2 ? "两" : words.Cardinal(hour)) + "点" +
             (minute == 0 ? "" : (minute < 10 ? "零" : "") + minutes + "分");
    case TongueId::kJapanese:
      return words.Cardinal(hour) + "時" + (minute == 0 ? "" : minutes + "分");
    case TongueId::kKorean: {
      const bool native = hour >= 1 && hour <= 12;
      return (native ? words.ByRules(hour, "cardinal-native-attributive") : words.Cardinal(hour)) + " 시" +
             (minute == 0 ? "" : " " + minutes + " 분");
    }
  }
  return "";
}

// The half of the day behind an English time.
struct HalfOfDay {
  ptrdiff_t length = 0;
  std::string words;
};

HalfOfDay ReadHalfOfDay(const NumberContext& context, ptrdiff_t at) {
  const Reader& text = context.text;
  if (!context.Is(TongueId::kEnglish)) return {};
  const ptrdiff_t begin = at + text.Spaces(at);
  const char32_t letter = ToLower(text[begin]);
  if (letter != 'a' && letter != 'p') return {};
  ptrdiff_t end = begin + 1;
  const bool stops = text[end] == '.';
  if (stops) end += 1;
  if (ToLower(text[end]) != 'm' || !IsBoundary(text, end + 1)) return {};
  end += 1;
  if (stops && text[end] == '.') {
    // The last full stop also ends a sentence at the end of the text, or before a capital letter.
    const ptrdiff_t next = end + 1 + text.Spaces(end + 1);
    if (text[next] != Reader::kNone && !IsUpper(text[next])) end += 1;
  }
  return {end - at, letter == 'a' ? "A M" : "P M"};
}

}  // namespace

std::optional<Edit> SayIsoDate(const NumberContext& context) {
  const Reader& text = context.text;
  if (text.Digits(0, 5) != 4) return std::nullopt;
  const char32_t sign = text[4];
  if (sign != '-' && sign != '/' && sign != '.') return std::nullopt;
  const ptrdiff_t month = text.Digits(5, 3);
  if (month < 1 || month > 2 || text[5 + month] != sign) return std::nullopt;
  const ptrdiff_t day = text.Digits(6 + month, 3);
  const ptrdiff_t end = 6 + month + day;
  if (day < 1 || day > 2) return std::nullopt;
  const Date date = {NumberOf(text.Utf8(0, 4)), static_cast<int>(NumberOf(text.Utf8(5, month))),
                     static_cast<int>(NumberOf(text.Utf8(6 + month, day)))};
  if (!IsDate(date) || date.year < 1000) return std::nullopt;
  if (text[end] == 'T' && text.Digits(end + 1, 3) == 2 && text[end + 3] == ':') {
    return Replace(end + 1,
                   DateWords(context, date) + std::string(context.tongue.comma) + std::string(context.tongue.gap()));
  }
  if (!IsBoundary(text, end) || (text[end] == sign && IsDigit(text[end + 1]))) return std::nullopt;
  return Say(context, end, DateWords(context, date));
}

std::optional<Edit> SayNumericDate(const NumberContext& context) {
  const Reader& text = context.text;
  const ptrdiff_t first = text.Digits(0, 3);
  const char32_t sign = text[first];
  if (first < 1 || first > 2 || (sign != '/' && sign != '.' && sign != '-')) return std::nullopt;
  ptrdiff_t at = first + 1;
  if (sign == '.' && context.Is(TongueId::kGerman)) at += text.Spaces(at);
  const ptrdiff_t second = text.Digits(at, 3);
  if (second < 1 || second > 2) return std::nullopt;
  const auto left = static_cast<int>(NumberOf(text.Utf8(0, first)));
  const auto right = static_cast<int>(NumberOf(text.Utf8(at, second)));
  ptrdiff_t end = at + second;
  if (text[end] != sign) return std::nullopt;
  end += 1;
  Date date;
  const ptrdiff_t spaces = sign == '.' && context.Is(TongueId::kGerman) ? text.Spaces(end) : 0;
  const ptrdiff_t year = text.Digits(end + spaces, 5);
  if (year == 4 || (year == 2 && sign != '-')) {
    date.year = FullYear(text.Utf8(end + spaces, year));
    end += spaces + year;
    if (!IsBoundary(text, end) || (text[end] == sign && IsDigit(text[end + 1]))) return std::nullopt;
  } else if (sign != '.' || year > 0 || !context.Is(TongueId::kGerman)) {
    return std::nullopt;  // only German dates end with a full stop instead of a year
  }
  const bool month_first = (context.choice.month_first && sign != '.' && left <= 12) || right > 12;
  date.month = month_first ? left : right;
  date.day = month_first ? right : left;
  if (!IsDate(date)) return std::nullopt;
  return Say(context, end, DateWords(context, date));
}

std::optional<Edit> SayDayBesideMonth(const NumberContext& context) {
  const Reader& text = context.text;
  const ptrdiff_t digits = text.Digits(0, 3);
  if (digits < 1 || digits > 2) return std::nullopt;
  const int64_t day = NumberOf(text.Utf8(0, digits));
  if (day < 1 || day > 31) return std::nullopt;
  const auto month_at = [&](ptrdiff_t at) {
    const ptrdiff_t letters = text.Letters(at, 12);
    return letters >= 3 && context.words.MonthOf(ToLower(text.Text(at, letters))) > 0;
  };
  const ptrdiff_t next = digits + text.Spaces(digits);
  switch (context.tongue.id) {
    case TongueId::kEnglish: {
      if (!IsBoundary(text, digits)) return std::nullopt;
      const std::u32string before = text.WordBefore();
      if (!before.empty() && IsUpper(before[0]) && context.words.MonthOf(ToLower(before)) > 0 && text[-1] == ' ') {
        return Say(context, digits, context.words.Ordinal(day));
      }
      if (next == digits || !IsUpper(text[next]) || !month_at(next)) return std::nullopt;
      return Say(context, digits, (ToLower(before) == U"the" ? "" : "the ") + context.words.Ordinal(day) + " of");
    }
    case TongueId::kGerman: {
      static constexpr std::string_view kCounted[] = {
          "jahrhundert", "jahrhunderts", "weltkrieg", "weltkriegs", "platz",   "stock",
          "klasse",      "tag",          "mal",       "auflage",    "kapitel", "runde",
          "geburtstag",  "etage",        "semester",  "januar",     "quartal", "spieltag"};
      if (text[digits] != '.') return std::nullopt;
      const ptrdiff_t word = digits + 1 + text.Spaces(digits + 1);
      if (word == digits + 1 || !(month_at(word) || MatchWord(text, word, kCounted) > 0)) return std::nullopt;
      return Replace(digits + 1, GermanOrdinal(context, day));
    }
    case TongueId::kRussian:
      if (next == digits || !month_at(next)) return std::nullopt;
      return Say(context, digits, DayWords(context, static_cast<int>(day)));
    case TongueId::kFrench:
    case TongueId::kItalian:
    case TongueId::kPortuguese: {
      const ptrdiff_t name = context.Is(TongueId::kPortuguese) && text.Has(next, "de ") ? next + 3 : next;
      if (day != 1 || next == digits || !month_at(name)) return std::nullopt;
      return Say(context, digits, context.words.Ordinal(day));
    }
    default:
      return std::nullopt;
  }
}

std::optional<Edit> SayTime(const NumberContext& context) {
  const Reader& text = context.text;
  const ptrdiff_t hours = text.Digits(0, 3);
  if (hours < 1 || hours > 2) return std::nullopt;
  const int64_t hour = NumberOf(text.Utf8(0, hours));
  if (hour > 24) return std::nullopt;
  const char32_t sign = text[hours];
  const bool french = context.Is(TongueId::kFrench) || context.Is(TongueId::kPortuguese);
  int64_t minute = 0;
  ptrdiff_t end = hours;
  std::string seconds;
  const bool stop = sign == '.' && context.Is(TongueId::kGerman);
  if ((sign == ':' || stop) && text.Digits(hours + 1, 3) == 2) {
    minute = NumberOf(text.Utf8(hours + 1, 2));
    end = hours + 3;
    if (text[end] == ':' && text.Digits(end + 1, 3) == 2) {
      if (!text.Has(end + 1, "00")) seconds = context.words.Cardinal(text.Utf8(end + 1, 2));
      end += 3;
    }
  } else if (french && (sign == 'h' || text.Has(hours, " h ") || text.Has(hours, "\u00A0h"))) {
    const ptrdiff_t h = hours + text.Spaces(hours) + 1;
    const ptrdiff_t digits = h + text.Spaces(h);
    const bool minutes = text.Digits(digits, 3) == 2;
    if (!minutes && !(sign == 'h' && IsBoundary(text, h))) return std::nullopt;
    minute = minutes ? NumberOf(text.Utf8(digits, 2)) : 0;
    end = minutes ? digits + 2 : h;
  } else if (sign == ':') {
    return std::nullopt;
  }
  if (minute > 59 || (text[end] == ':' && IsDigit(text[end + 1]))) return std::nullopt;
  const HalfOfDay half = ReadHalfOfDay(context, end);
  if (end == hours && half.length == 0) return std::nullopt;
  if (half.length > 0 && (hour < 1 || hour > 12)) return std::nullopt;
  const ptrdiff_t uhr = end + text.Spaces(end);
  if (context.Is(TongueId::kGerman) && text.Has(uhr, "Uhr") && IsBoundary(text, uhr + 3)) {
    end = uhr + 3;
  } else if (stop) {
    return std::nullopt;
  }
  if (!IsBoundary(text, end + half.length)) return std::nullopt;
  std::string words = half.length > 0 && minute == 0 ? context.words.Cardinal(hour) : Clock(context, hour, minute);
  if (!seconds.empty()) words.append(context.tongue.gap()).append(seconds);
  if (half.length > 0) words += " " + half.words;
  return Say(context, end + half.length, words);
}

std::optional<Edit> SayMonthName(const NumberContext& context) {
  const Reader& text = context.text;
  if (!context.Is(TongueId::kEnglish) && !context.Is(TongueId::kGerman)) return std::nullopt;
  if (!IsUpper(text[0])) return std::nullopt;
  const ptrdiff_t letters = text.Letters(0, 6);
  if (letters < 3 || letters > 4) return std::nullopt;
  const int month = context.words.MonthOf(ToLower(text.Text(0, letters)));
  if (month == 0) return std::nullopt;
  const bool stop = text[letters] == '.';
  const ptrdiff_t end = letters + (stop ? 1 : 0);
  // A number stands before or behind it, as nothing else tells "Mar" from a name.
  const ptrdiff_t next = end + text.Spaces(end);
  const bool behind = next > end && IsDigit(text[next]);
  const bool before = IsSpace(text[-1]) && (IsDigit(text[-2]) || text[-2] == '.' || IsDigit(text[-4]));
  if (!behind && !before) return std::nullopt;
  const bool ends = stop && text[next] == Reader::kNone;
  return Replace(ends ? letters : end, context.words.Month(month));
}

}  // namespace qtts
