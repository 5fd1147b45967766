// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_SSML_VALUES_H_
#define QTTS_TEXT_MARKUP_SSML_VALUES_H_

#include <chrono>
#include <optional>
#include <string_view>

namespace qtts {

// Values of SSML's attributes. Nothing for a value that SSML does not have.

// Longest break.
inline constexpr std::chrono::nanoseconds kLongestBreak = std::chrono::minutes(10);
// Parses "500ms", "1.5s"; not bounded above by kLongestBreak.
std::optional<std::chrono::nanoseconds> ParseBreakTime(std::string_view time);
// Parses "none", "weak", … as pauses.
std::optional<std::chrono::nanoseconds> ParseBreakStrength(std::string_view strength);

// Returns the factor of a prosody's volume within text of the factor `current`: "soft", "+6dB", "50", "-20%".
std::optional<double> ParseVolume(std::string_view volume, double current);

// Bounds of a prosody's rate.
inline constexpr double kSlowestRate = 0.25;
inline constexpr double kFastestRate = 4.0;
// Returns the factor of a prosody's rate within text of the factor `current`: "slow", "1.2", "80%" are factors of the
// rate around the document; "+10%", "-20%" change `current`. Within the bounds.
std::optional<double> ParseRate(std::string_view rate, double current);

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_SSML_VALUES_H_
