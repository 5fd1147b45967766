// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_SAMPLING_NUMBERS_H_
#define QTTS_SAMPLING_NUMBERS_H_

#include <cstddef>
#include <iterator>
#include <limits>
#include <string>
#include <variant>

#include "qtts/request.h"

namespace qtts {

// Value of SamplingNumber::minimum for "every number above 0".
inline constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();

// A number of the sampling rules, in talker or code predictor. Its default is that of the member in which it is kept.
struct SamplingNumber {
  const char* name;     // of the property and of qtts-tool's option
  const char* title;    // for lists of properties
  const char* meaning;  // a sentence for users
  const char* special;  // meaning of its special value: "0 = all"
  double minimum;       // of reals exact in F32, as their values are
  double maximum;
  // Place where it is kept. A real or a whole number.
  std::variant<float& (*)(GenerationSettings&), int& (*)(GenerationSettings&)> place;
  // Only of temperatures: whether codes are sampled at all.
  bool& (*sampled)(GenerationSettings&) = nullptr;

  // Returns its key in generation_config.json: the name with underscores.
  std::string key() const;
  bool whole() const { return place.index() == 1; }
  // Returns whether a model's file or a request may have `number`; not NaN.
  bool Allows(double number) const { return number >= minimum && number <= maximum; }
  // Returns whether users may set `number`.
  bool MayBeSet(double number) const { return Allows(number) || (sampled != nullptr && number == 0); }
  // Returns the allowed range in words: "0 or more", "above 0 and at most 1".
  std::string Range() const;
  // Returns a value in words, independent of the locale: "50", "0.9".
  std::string Text(double number) const;

  double Get(GenerationSettings settings) const;
  // Sets the number. `number` must fit an int where it is whole; it may be out of range. A positive number is never
  // rounded to 0.
  void Set(double number, GenerationSettings* settings) const;
  // Sets a user's value: a temperature of 0 turns sampling off, another one on.
  void SetFromUser(double number, GenerationSettings* settings) const;
};

// All numbers of the sampling rules. From this table come their keys in a model's file, the check of a request, options
// of qtts-tool and properties of the element. A new rule adds its member to TokenSampling or GenerationSettings, and
// its rows here.
inline constexpr SamplingNumber kSamplingNumbers[] = {
    {"temperature", "Temperature", "Randomness of the speech: above 0 the model samples; higher is more random",
     "0 = always the most likely code", kAboveZero, 100, [](auto& s) -> float& { return s.talker.temperature; },
     [](auto& s) -> bool& { return s.talker.do_sample; }},
    {"top-k", "Top K", "Sample among this many of the most likely codes", "0 = all", 0, std::numeric_limits<int>::max(),
     [](auto& s) -> int& { return s.talker.top_k; }},
    {"top-p", "Top P", "Sample among the most likely codes that together have this probability, above 0", "1 = all",
     kAboveZero, 1, [](auto& s) -> float& { return s.talker.top_p; }},
    {"repetition-penalty", "Repetition Penalty", "Factor from 0.01 on by which codes spoken before become less likely",
     "1 = off", 0.01F, 100, [](auto& s) -> float& { return s.repetition_penalty; }},
    {"subtalker-temperature", "Subtalker Temperature", "Like \"temperature\", for the fine codes of each frame",
     "0 = always the most likely code", kAboveZero, 100, [](auto& s) -> float& { return s.predictor.temperature; },
     [](auto& s) -> bool& { return s.predictor.do_sample; }},
    {"subtalker-top-k", "Subtalker Top K", "Like \"top-k\", for the fine codes of each frame", "0 = all", 0,
     std::numeric_limits<int>::max(), [](auto& s) -> int& { return s.predictor.top_k; }},
    {"subtalker-top-p", "Subtalker Top P", "Like \"top-p\", for the fine codes of each frame", "1 = all", kAboveZero, 1,
     [](auto& s) -> float& { return s.predictor.top_p; }},
};

inline constexpr size_t kSamplingNumberCount = std::size(kSamplingNumbers);

}  // namespace qtts

#endif  // QTTS_SAMPLING_NUMBERS_H_
