// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/ssml_values.h"

#include <glib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "qtts/utf8.h"

namespace qtts {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Returns the number at the beginning of `text`, "12.5", "+3", ".5", which it is cut from.
std::optional<double> TakeNumber(std::string_view* text) {
  const size_t sign = text->starts_with('+') || text->starts_with('-') ? 1 : 0;
  const size_t end = std::min(text->find_first_not_of("0123456789.", sign), text->size());
  const std::string number(text->substr(0, end));
  constexpr size_t kLongest = 20;
  if (end == sign || end > kLongest || std::ranges::count(number, '.') > 1 ||
      number.find_first_of("0123456789") == std::string::npos) {
    return std::nullopt;
  }
  text->remove_prefix(end);
  return g_ascii_strtod(number.c_str(), nullptr);  // regardless of the locale
}

}  // namespace

std::optional<nanoseconds> ParseBreakTime(std::string_view time) {
  time = Trim(time);
  if (time.starts_with('-')) return std::nullopt;
  const std::optional<double> number = TakeNumber(&time);
  if (!number || (time != "s" && time != "ms")) return std::nullopt;
  constexpr double kMost = 1e6;  // seconds
  const double seconds = std::min(time == "s" ? *number : *number / 1e3, kMost);
  return nanoseconds(std::llround(seconds * 1e9));
}

std::optional<nanoseconds> ParseBreakStrength(std::string_view strength) {
  static constexpr std::pair<std::string_view, milliseconds> kStrengths[] = {
      {"none", milliseconds(0)},     {"x-weak", milliseconds(100)}, {"weak", milliseconds(200)},
      {"medium", milliseconds(400)}, {"strong", milliseconds(700)}, {"x-strong", milliseconds(1000)}};
  for (const auto& [name, pause] : kStrengths) {
    if (Trim(strength) == name) return pause;
  }
  return std::nullopt;
}

std::optional<double> ParseVolume(std::string_view volume, double current) {
  // Decibels for the names; a factor at most, as samples must not be cut.
  static constexpr std::pair<std::string_view, double> kNames[] = {{"silent", 0.0}, {"x-soft", 0.25}, {"soft", 0.5},
                                                                   {"medium", 1.0}, {"default", 1.0}, {"loud", 1.4},
                                                                   {"x-loud", 2.0}};
  constexpr double kMost = 4.0;
  volume = Trim(volume);
  for (const auto& [name, gain] : kNames) {
    if (volume == name) return gain;
  }
  const bool relative = volume.starts_with('+') || volume.starts_with('-');
  const std::optional<double> number = TakeNumber(&volume);
  if (!number) return std::nullopt;
  double gain = 0;
  if (volume == "dB") {
    gain = current * std::pow(10.0, *number / 20);
  } else if (volume == "%" && relative) {
    gain = current * (1 + *number / 100);
  } else if (volume.empty() || volume == "%") {  // of 100; SSML 1.0
    gain = relative ? current + *number / 100 : *number / 100;
  } else {
    return std::nullopt;
  }
  return std::clamp(gain, 0.0, kMost);
}

std::optional<double> ParseRate(std::string_view rate, double current) {
  static constexpr std::pair<std::string_view, double> kNames[] = {{"x-slow", 0.5},  {"slow", 0.75}, {"medium", 1.0},
                                                                   {"default", 1.0}, {"fast", 1.25}, {"x-fast", 1.75}};
  rate = Trim(rate);
  for (const auto& [name, factor] : kNames) {
    if (rate == name) return factor;
  }
  const bool relative = rate.starts_with('+') || rate.starts_with('-');
  const std::optional<double> number = TakeNumber(&rate);
  if (!number) return std::nullopt;
  double factor = 0;
  if (rate == "%") {
    factor = relative ? current * (1 + *number / 100) : *number / 100;
  } else if (rate.empty() && !relative) {
    factor = *number;
  } else {
    return std::nullopt;
  }
  return std::clamp(factor, kSlowestRate, kFastestRate);
}

}  // namespace qtts
