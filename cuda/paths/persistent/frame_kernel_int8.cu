// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/frame_variant.cuh"

// Compiled once for each of kPersistentTalkerWidths, folded and not (cuda/meson.build).
namespace qtts::cuda::persistent {

template Variant Int8VariantOf<QTTS_TALKER_WIDTH, QTTS_FOLDED>();

}  // namespace qtts::cuda::persistent
