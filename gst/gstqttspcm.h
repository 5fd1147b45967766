// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PCM_H_
#define GST_QTTS_PCM_H_

#include <cstddef>
#include <cstdint>

// Samples per second of all sound of the element. A macro, for caps.
#define SAMPLE_RATE 24000

namespace gstqtts {

// Scales samples in [-1, 1] by 32768 and rounds to the nearest integer (ties to even). Values outside
// the range saturate; NaN becomes silence. There is no dither: the noise of the model's own sound is louder than a
// step, so that the error is white and does not follow the signal (doc/exactness.md), and the samples stay repeatable.
void ConvertToS16(const float* in, size_t samples, int16_t* out);

}  // namespace gstqtts

#endif  // GST_QTTS_PCM_H_
