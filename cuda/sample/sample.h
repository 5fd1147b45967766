// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_SAMPLE_SAMPLE_H_
#define QTTS_CUDA_SAMPLE_SAMPLE_H_

#include <cstdint>

#include "frame/frame.h"
#include "frame/frame_state.h"
#include "rules/precision.h"
#include "runtime/launch.h"

// The official sampling rules (spec 6) on the device: engine/sampling, a block per row, with the same
// random numbers.
namespace qtts::cuda {

// Logits that a block can hold.
inline constexpr int kMaxVocab = 6144;

struct SampleTarget {
  const void* table = nullptr;  // embeddings of the chosen code, [vocab][stride], or none: not wanted
  int width = 0;
  int stride = 0;
  float* x = nullptr;  // where row r's goes: x + r * x_stride
  int64_t x_stride = 0;
};

// The talker's id of each row from logits [rows][vocab]: repetition penalty, forbidden ids, choice,
// end of speech or of the allowed tokens. Rows that go on get their code and its embedding at `code`.
struct TalkerSample {
  const float* logits = nullptr;
  int vocab = 0;
  int eos_id = 0;
  unsigned* history = nullptr;
  int history_words = 0;
  // For a predictor without projection: the talker's hidden state, rmsnorm(x) * norm, to `hidden`.
  const float* x = nullptr;
  const float* norm = nullptr;
  float eps = 0;
  float* hidden = nullptr;  // row r's: hidden + r * code.x_stride; none: not wanted
  SampleTarget code;
};
void SampleTalker(const Launcher& launch, Precision precision, const TalkerSample& sample, const FrameRows& frame,
                  SlotState* slots, int groups, int rows);

// The code of `group` of each row from logits [rows][vocab].
struct PredictorSample {
  const float* logits = nullptr;
  int vocab = 0;
  int group = 1;
  SampleTarget code;
};
void SamplePredictor(const Launcher& launch, Precision precision, const PredictorSample& sample, const FrameRows& frame,
                     SlotState* slots, int groups, int rows);

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_SAMPLE_SAMPLE_H_
