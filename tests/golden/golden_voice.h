// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_GOLDEN_VOICE_H_
#define QTTS_TESTS_GOLDEN_GOLDEN_VOICE_H_

#include <vector>

#include "golden/golden_case.h"
#include "qtts/engine.h"

// The recorded cases in which the official package cloned a voice (CaseKind::kCloned).
namespace qtts::golden {

// The case's recording: a file, played at another rate or repeated, each time half as loud.
Result<Recording> RecordingOf(const GoldenCase& golden);

// The voice that `engine` makes of it, as the case asks for it.
Result<ClonedVoice> CloneOf(const GoldenCase& golden, const Engine& engine, const Recording& recording);

// Expects the package's x-vector (cosine at least 0.99999) and codes (99.9 % equal).
void ExpectVoice(const ClonedVoice& voice, const GoldenCase& golden);

// Speaks the case's text with `voice`; expects the package's codes and as many samples. Those samples.
std::vector<float> ExpectSpeech(Engine* engine, const ClonedVoice& voice, const GoldenCase& golden);

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_GOLDEN_VOICE_H_
