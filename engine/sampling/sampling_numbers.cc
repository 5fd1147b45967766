// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/sampling_numbers.h"

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <type_traits>

namespace qtts {

std::string SamplingNumber::key() const {
  std::string key = name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string SamplingNumber::Text(double number) const {
  char text[32];
  const auto end = whole() ? std::to_chars(text, text + sizeof text, number)
                           : std::to_chars(text, text + sizeof text, static_cast<float>(number));
  return {text, end.ptr};
}

std::string SamplingNumber::Range() const {
  if (whole()) return Text(minimum) + " or more";
  return (minimum == kAboveZero ? "above 0" : "at least " + Text(minimum)) + " and at most " + Text(maximum);
}

double SamplingNumber::Get(GenerationSettings settings) const {
  return std::visit([&](auto at) { return static_cast<double>(at(settings)); }, place);
}

void SamplingNumber::Set(double number, GenerationSettings* settings) const {
  const auto store = [number](auto* value) {
    using Number = std::remove_pointer_t<decltype(value)>;
    *value = static_cast<Number>(number);
    if constexpr (std::is_floating_point_v<Number>) {
      if (number > 0) *value = std::max(*value, FLT_MIN);
    }
  };
  std::visit([&](auto at) { store(&at(*settings)); }, place);
}

void SamplingNumber::SetFromUser(double number, GenerationSettings* settings) const {
  if (sampled != nullptr) {
    sampled(*settings) = number != 0;
    if (number == 0) return;
  }
  Set(number, settings);
}

}  // namespace qtts
