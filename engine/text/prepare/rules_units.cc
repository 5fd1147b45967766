// SPDX-License-Identifier: LGPL-2.1-or-later
// Numbers with a unit, percentages, degrees.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "text/prepare/number_rules.h"

namespace qtts {
namespace {

struct Unit {
  std::string_view written;
  const char* identifier;  // of CLDR
  enum class Space { kAny, kNeeded, kForbidden } space = Space::kAny;
};

using Space = Unit::Space;

// Longer spellings stand before their beginnings.
constexpr Unit kUnits[] = {
    {"km/h", "kilometer-per-hour"},
    {"kmh", "kilometer-per-hour"},
    {"km²", "square-kilometer"},
    {"km2", "square-kilometer"},
    {"km", "kilometer"},
    {"kWh", "kilowatt-hour"},
    {"kW", "kilowatt"},
    {"kHz", "kilohertz"},
    {"kPa", "kilopascal"},
    {"kJ", "kilojoule"},
    {"kcal", "kilocalorie"},
    {"kbps", "kilobit-per-second"},
    {"kbit/s", "kilobit-per-second"},
    {"kB", "kilobyte"},
    {"KB", "kilobyte"},
    {"kg", "kilogram"},
    {"kV", "kilovolt"},
    {"m/s", "meter-per-second"},
    {"m²", "square-meter"},
    {"m2", "square-meter"},
    {"m³", "cubic-meter"},
    {"m3", "cubic-meter"},
    {"mm", "millimeter"},
    {"mph", "mile-per-hour"},
    {"mpg", "mile-per-gallon"},
    {"mg", "milligram"},
    {"ml", "milliliter"},
    {"mL", "milliliter"},
    {"mA", "milliampere"},
    {"mW", "milliwatt"},
    {"mV", "millivolt"},
    {"ms", "millisecond"},
    {"min", "minute"},
    {"mi", "mile"},
    {"m", "meter"},
    {"cm²", "square-centimeter"},
    {"cm³", "cubic-centimeter"},
    {"cm", "centimeter"},
    {"cl", "centiliter"},
    {"dl", "deciliter"},
    {"dB", "decibel"},
    {"dpi", "dot-per-inch"},
    {"µm", "micrometer"},
    {"μm", "micrometer"},
    {"µg", "microgram"},
    {"μg", "microgram"},
    {"µs", "microsecond"},
    {"μs", "microsecond"},
    {"nm", "nanometer"},
    {"ns", "nanosecond"},
    {"ft", "foot"},
    {"fps", "frame-per-second"},
    {"yd", "yard"},
    {"lbs", "pound"},
    {"lb", "pound"},
    {"oz", "ounce"},
    {"gal", "gallon"},
    {"g", "gram"},
    {"l", "liter"},
    {"L", "liter"},
    {"ha", "hectare"},
    {"hPa", "hectopascal"},
    {"hp", "horsepower"},
    {"hrs", "hour"},
    {"hr", "hour"},
    {"h", "hour"},
    {"s", "second", Space::kNeeded},
    {"GHz", "gigahertz"},
    {"Gbps", "gigabit-per-second"},
    {"Gbit/s", "gigabit-per-second"},
    {"GB", "gigabyte"},
    {"GW", "gigawatt"},
    {"MHz", "megahertz"},
    {"Mbps", "megabit-per-second"},
    {"Mbit/s", "megabit-per-second"},
    {"MB/s", "megabyte-per-second"},
    {"MB", "megabyte"},
    {"MW", "megawatt"},
    {"MP", "megapixel"},
    {"TB", "terabyte"},
    {"PB", "petabyte"},
    {"Hz", "hertz"},
    {"Pa", "pascal"},
    {"psi", "pound-force-per-square-inch"},
    {"rpm", "revolution-per-minute"},
    {"ppm", "part-per-1e6"},
    {"W", "watt"},
    {"V", "volt"},
    {"Ω", "ohm"},
    {"°C", "celsius"},
    {"° C", "celsius"},
    {"℃", "celsius"},
    {"°F", "fahrenheit"},
    {"° F", "fahrenheit"},
    {"℉", "fahrenheit"},
    {"км/ч", "kilometer-per-hour"},
    {"км²", "square-kilometer"},
    {"км", "kilometer"},
    {"кг", "kilogram"},
    {"м²", "square-meter"},
    {"мм", "millimeter"},
    {"мин", "minute"},
    {"мл", "milliliter"},
    {"м", "meter"},
    {"см", "centimeter"},
    {"ч", "hour", Space::kNeeded},
    {"с", "second", Space::kNeeded},
    {"г", "gram", Space::kNeeded},
    {"л", "liter"},
    {"ГБ", "gigabyte"},
    {"МБ", "megabyte"},
    {"кВт", "kilowatt"},
    {"Вт", "watt"},
    {"Гц", "hertz"},
};

// Returns units of everyday English that CLDR lacks.
std::string ExtraUnit(const NumberContext& context, std::string_view identifier, Plural plural) {
  const bool one = plural == Plural::kOne;
  if (identifier == "decibel") {
    if (context.Is(TongueId::kEnglish)) return one ? "{0} decibel" : "{0} decibels";
    if (context.Is(TongueId::kGerman)) return "{0} Dezibel";
    if (context.Is(TongueId::kFrench)) return one ? "{0} décibel" : "{0} décibels";
    if (context.Is(TongueId::kSpanish)) return one ? "{0} decibelio" : "{0} decibelios";
    if (context.Is(TongueId::kItalian)) return "{0} decibel";
    if (context.Is(TongueId::kPortuguese)) return one ? "{0} decibel" : "{0} decibéis";
    if (context.Is(TongueId::kRussian)) return plural == Plural::kFew ? "{0} децибела" : "{0} децибел";
    if (context.Is(TongueId::kKorean)) return "{0} 데시벨";
    if (context.Is(TongueId::kJapanese)) return "{0}デシベル";
    return "{0}分贝";
  }
  if (identifier == "frame-per-second" && context.Is(TongueId::kEnglish)) {
    return one ? "{0} frame per second" : "{0} frames per second";
  }
  return "";
}

// Matches a unit: the spaces before a degree's letter count as one spelling.
ptrdiff_t MatchUnit(const Reader& text, ptrdiff_t at, std::string_view written) {
  const auto length = static_cast<ptrdiff_t>(CountUtf8(written));
  return text.Has(at, written) && IsBoundary(text, at + length) ? length : 0;
}

Edit SayPattern(const NumberContext& context, ptrdiff_t length, std::string pattern, const std::string& number) {
  constexpr std::string_view kPlace = "{0}";
  const size_t place = pattern.find(kPlace);
  if (place != std::string::npos) pattern.replace(place, kPlace.size(), number);
  for (size_t at = pattern.find("\xC2\xA0"); at != std::string::npos; at = pattern.find("\xC2\xA0"))
    pattern.replace(at, 2, " ");
  if (!context.tongue.spaces) std::erase(pattern, ' ');
  return Say(context, length, pattern);
}

// Says 5'10": feet and inches.
std::optional<Edit> SayFeet(const NumberContext& context) {
  const Reader& text = context.text;
  if (!context.Is(TongueId::kEnglish)) return std::nullopt;
  const ptrdiff_t feet = text.Digits(0, 3);
  if (feet < 1 || feet > 2 || (text[feet] != '\'' && text[feet] != 0x2032)) return std::nullopt;
  const ptrdiff_t at = feet + 1 + text.Spaces(feet + 1);
  const ptrdiff_t inches = text.Digits(at, 3);
  const char32_t mark = text[at + inches];
  if (inches < 1 || inches > 2 || (mark != '"' && mark != 0x2033 && mark != 0x201D)) return std::nullopt;
  const std::string height = text.Utf8(0, feet);
  return Say(context, at + inches + 1,
             context.words.Cardinal(height) + (height == "1" ? " foot " : " feet ") +
                 context.words.Cardinal(text.Utf8(at, inches)) + (text.Utf8(at, inches) == "1" ? " inch" : " inches"));
}

}  // namespace

std::optional<Edit> SayPercent(const NumberContext& context) {
  const Reader& text = context.text;
  const WrittenNumber number = ReadNumber(context, 0);
  if (number.length == 0) return std::nullopt;
  const ptrdiff_t at = number.length + text.Spaces(number.length);
  const bool permille = text[at] == U'‰';
  if (text[at] != '%' && !permille && text[at] != U'％') return std::nullopt;
  const std::string words = NumberWords(context, number);
  const std::string name(permille ? context.tongue.words.permille : context.tongue.words.percent);
  if (context.Is(TongueId::kChinese)) return Say(context, at + 1, name + words);
  if (context.Is(TongueId::kRussian)) {
    const Plural plural = context.words.PluralOf(number.whole, number.fraction);
    const std::string_view form = permille                 ? "промилле"
                                  : plural == Plural::kOne ? "процент"
                                  : plural == Plural::kFew ? "процента"
                                                           : "процентов";
    return Say(context, at + 1, words + " " + std::string(form));
  }
  return Say(context, at + 1, words + std::string(context.tongue.gap()) + name);
}

std::optional<Edit> SayUnit(const NumberContext& context) {
  const Reader& text = context.text;
  if (auto feet = SayFeet(context)) return feet;
  const WrittenNumber number = ReadNumber(context, 0);
  if (number.length == 0) return std::nullopt;
  const ptrdiff_t spaces = text.Spaces(number.length);
  const ptrdiff_t dash = spaces == 0 && text[number.length] == '-' ? 1 : 0;  // "a 5-km run"
  const ptrdiff_t at = number.length + spaces + dash;
  for (const Unit& unit : kUnits) {
    if (unit.space == Space::kNeeded && spaces == 0) continue;
    const ptrdiff_t length = MatchUnit(text, at, unit.written);
    if (length == 0) continue;
    // "5 in", "10 g" of a game: a letter alone needs two digits if it follows at once ("5g" is a network).
    if (unit.written == "g" && spaces == 0 && number.whole.size() < 2) return std::nullopt;
    Plural plural = context.words.PluralOf(number.whole, number.fraction);
    if (dash > 0 && context.Is(TongueId::kEnglish)) plural = Plural::kOne;
    Gender gender = Gender::kMasculine;
    std::string pattern = ExtraUnit(context, unit.identifier, plural);
    if (pattern.empty()) pattern = context.words.UnitPattern(unit.identifier, plural, &gender);
    if (pattern.empty()) continue;
    return SayPattern(context, at + length, pattern, NumberWords(context, number, gender));
  }
  if (text[at] == U'°' && dash == 0) {
    return Say(context, at + 1,
               NumberWords(context, number) + std::string(context.tongue.gap()) +
                   (context.Is(TongueId::kEnglish) && number.whole == "1" && number.fraction.empty()
                        ? "degree"
                        : std::string(context.tongue.words.degrees)));
  }
  return std::nullopt;
}

}  // namespace qtts
