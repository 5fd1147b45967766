// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_UNIT_CPU_NAIVE_VOICE_H_
#define QTTS_TESTS_UNIT_CPU_NAIVE_VOICE_H_

#include <cstdint>
#include <vector>

#include "checkpoint/voice_encoder.h"
#include "naive.h"

// A second implementation of the encoders for voice cloning, as in naive.h: whole recordings in double precision, every
// sum written out.
namespace qtts::naive {

// Spec 9.1: log-mel spectrogram, [frames][bins], with the discrete Fourier transform by its definition. The window
// is that of the official package, in F32.
Matrix Mel(const Vector& pcm, int bins);

// Spec 9.2: spectrogram to x-vector.
Vector Speaker(const SpeakerEncoderConfig& config, const SpeakerEncoderWeights& weights, const Matrix& mels);

// Spec 8: samples to codes, [frames][groups].
std::vector<std::vector<int32_t>> CodecCodes(const CodecEncoderConfig& config, const CodecEncoderWeights& weights,
                                             const Vector& pcm);

}  // namespace qtts::naive

#endif  // QTTS_TESTS_UNIT_CPU_NAIVE_VOICE_H_
