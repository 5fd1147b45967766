// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GOLDEN_GOLDEN_CASE_H_
#define QTTS_TESTS_GOLDEN_GOLDEN_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/checkpoint.h"
#include "prompt/prompt.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "text/tokenizer.h"

// The official package's results for a random checkpoint (README.md), and the engine's parts set up for the same
// request.
namespace qtts::golden {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;

  // Row `row` of a matrix.
  std::span<const float> Row(int64_t row) const;
};

// One recorded case. The check does not see that JSON's constructors do not throw.
struct GoldenCase {  // NOLINT(bugprone-exception-escape)
  std::string name;
  nlohmann::json document;
  std::map<std::string, GoldenTensor> tensors;
  std::string folder;  // of the checkpoint, generated anew and equal to the recorded one

  const nlohmann::json& request() const { return document["request"]; }
  bool is_speech() const { return request()["mode"] != "codec"; }
  // Ids of codebook 0 that the package sampled. The last one made no frame.
  std::vector<int32_t> ids() const { return document["ids"].get<std::vector<int32_t>>(); }
  int64_t frames() const { return static_cast<int64_t>(document["codes"].size()); }
  std::vector<int32_t> codes() const;  // [frames][groups]
};

enum class CaseKind {
  kGreedy,   // speech, every code the most likely one
  kSampled,  // speech with the scores it was drawn from
  kCodec,    // the codec decoder alone
  kCloned,   // a voice from a recording, and a short greedy utterance with it
};

// The source tree, with the recorded data.
std::string SourceRoot();

// Names of the recorded cases of these kinds; those that hold samples, if `with_sound`.
std::vector<std::string> Cases(std::initializer_list<CaseKind> kinds, bool with_sound = false);

// A case's name as a test's: letters, digits and underscores.
std::string CaseTestName(const ::testing::TestParamInfo<std::string>& info);

// Reads a case and generates its checkpoint, once in a process. Fails if a generated file is not,
// byte for byte, what the package was given.
Result<std::shared_ptr<const GoldenCase>> LoadCase(const std::string& name);

// The engine's parts up to the prompt.
struct Fixture {
  std::shared_ptr<const GoldenCase> golden;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const Tokenizer> tokenizer;
  Request request;
  std::vector<int32_t> text_ids;
  Prompt prompt;  // speech only

  // Text id that goes with the codes of frame `frame`.
  int32_t TextAfter(int64_t frame) const;
};

// LoadCase() and everything after it.
Result<Fixture> MakeFixture(const std::string& name);

struct Utterance {
  std::vector<int32_t> codes;  // [frames][groups]
  std::vector<float> pcm;
  EndReason end = EndReason::kNone;
  Status status;
};

// Speaks the case's request, frame by frame, to its end.
Result<Utterance> Speak(Backend* backend, const Fixture& fixture);

// The largest difference between `actual` and `expected`, relative to the largest magnitude of
// `expected`. Infinite if lengths differ or anything is not finite.
double RelativeError(std::span<const float> actual, std::span<const float> expected);
double AbsoluteError(std::span<const float> actual, std::span<const float> expected);

// Expects `error` to be at most `tolerance`, and notes it in the test's report.
void ExpectError(double error, double tolerance);

}  // namespace qtts::golden

#endif  // QTTS_TESTS_GOLDEN_GOLDEN_CASE_H_
