// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BACKEND_MODEL_PART_H_
#define QTTS_BACKEND_MODEL_PART_H_

namespace qtts {

// The parts of a model: first those that make a frame, in their order. Includes nothing, since kernels include it.
enum class ModelPart : int { kNone = 0, kTalker, kPredictor, kCodec, kSpeakerEncoder };

}  // namespace qtts

#endif  // QTTS_BACKEND_MODEL_PART_H_
