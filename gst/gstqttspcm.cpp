// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttspcm.h"

#include <algorithm>
#include <cmath>

namespace gstqtts {

void ConvertToS16(const float* in, size_t samples, int16_t* out) {
  for (size_t i = 0; i < samples; ++i) {
    const float scaled = std::isnan(in[i]) ? 0.0F : in[i] * 32768.0F;
    out[i] = static_cast<int16_t>(std::lrint(std::clamp(scaled, -32768.0F, 32767.0F)));
  }
}

}  // namespace gstqtts
