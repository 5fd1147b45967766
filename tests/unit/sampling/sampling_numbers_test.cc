// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/sampling_numbers.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

namespace qtts {
namespace {

// Addresses of the numbers in `settings` to which the table refers.
std::multiset<const void*> Places(GenerationSettings* settings) {
  std::multiset<const void*> places;
  for (const SamplingNumber& number : kSamplingNumbers) {
    places.insert(std::visit([&](auto at) -> const void* { return &at(*settings); }, number.place));
  }
  return places;
}

// A new member of one of these structs breaks a structured binding here: name it, and add the rows of its rule to the
// table.
TEST(SamplingNumbers, EveryNumberOfTheSettingsHasOneRow) {
  GenerationSettings settings;
  auto& [talker, predictor, repetition_penalty, max_new_tokens] = settings;
  static_cast<void>(max_new_tokens);  // not a sampling rule
  std::multiset<const void*> expected = {&repetition_penalty};
  for (TokenSampling* sampling : {&talker, &predictor}) {
    auto& [do_sample, temperature, top_k, top_p] = *sampling;
    static_cast<void>(do_sample);  // set together with the temperature (SamplingNumber::sampled)
    for (const void* place : std::initializer_list<const void*>{&temperature, &top_k, &top_p}) expected.insert(place);
  }
  EXPECT_EQ(Places(&settings), expected);
}

TEST(SamplingNumbers, TheOfficialDefaultsAreAllowed) {
  std::set<std::string> names;
  for (const SamplingNumber& number : kSamplingNumbers) {
    EXPECT_TRUE(names.insert(number.name).second) << number.name;
    EXPECT_TRUE(number.Allows(number.Get(GenerationSettings()))) << number.name;
    // -1 is the element's value for "as the model says".
    EXPECT_FALSE(number.MayBeSet(-1)) << number.name;
    EXPECT_FALSE(number.MayBeSet(std::numeric_limits<double>::quiet_NaN())) << number.name;
    // A bound that is stored and read again is still allowed.
    GenerationSettings settings;
    number.Set(number.minimum, &settings);
    EXPECT_TRUE(number.Allows(number.Get(settings))) << number.name;
    number.Set(number.maximum, &settings);
    EXPECT_EQ(number.Get(settings), number.maximum) << number.name;
  }
}

TEST(SamplingNumbers, OnlyATemperatureOfZeroIsGreedy) {
  int temperatures = 0;
  for (const SamplingNumber& number : kSamplingNumbers) {
    GenerationSettings settings;
    const double usual = number.Get(settings);
    if (number.sampled == nullptr) {
      EXPECT_EQ(number.MayBeSet(0), number.Allows(0)) << number.name;
      continue;
    }
    ++temperatures;
    EXPECT_FALSE(number.Allows(0));
    EXPECT_TRUE(number.MayBeSet(0));
    number.SetFromUser(0, &settings);
    EXPECT_FALSE(number.sampled(settings));
    EXPECT_EQ(number.Get(settings), usual) << "0 is no temperature of the rule";
    number.Set(0.5, &settings);
    EXPECT_FALSE(number.sampled(settings)) << "a model's file says separately whether codes are sampled";
    number.SetFromUser(0.25, &settings);
    EXPECT_TRUE(number.sampled(settings));
    EXPECT_EQ(number.Get(settings), 0.25);
  }
  EXPECT_EQ(temperatures, 2);
}

TEST(SamplingNumbers, TinyPositiveNumbersStayPositive) {
  for (const SamplingNumber& number : kSamplingNumbers) {
    if (number.minimum != kAboveZero) continue;
    GenerationSettings settings;
    number.Set(1e-300, &settings);
    EXPECT_GT(number.Get(settings), 0) << number.name;
  }
}

TEST(SamplingNumbers, AreDescribed) {
  const auto range = [](std::string_view name) {
    for (const SamplingNumber& number : kSamplingNumbers) {
      if (number.name == name) return number.Range();
    }
    return std::string();
  };
  EXPECT_EQ(range("temperature"), "above 0 and at most 100");
  EXPECT_EQ(range("top-k"), "0 or more");
  EXPECT_EQ(range("subtalker-top-p"), "above 0 and at most 1");
  EXPECT_EQ(range("repetition-penalty"), "at least 0.01 and at most 100");
  EXPECT_EQ(kSamplingNumbers[0].Text(0.9F), "0.9");
  EXPECT_EQ(kSamplingNumbers[1].key(), "top_k");
  EXPECT_EQ(kSamplingNumbers[1].Text(50), "50");
}

}  // namespace
}  // namespace qtts
