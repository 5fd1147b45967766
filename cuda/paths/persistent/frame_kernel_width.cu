// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/frame_variant.cuh"

// Compiled once for each of kPersistentTalkerWidths, folded and not (cuda/meson.build), as they take long to compile.
namespace qtts::cuda::persistent {

template Variant VariantOf<QTTS_TALKER_WIDTH, QTTS_FOLDED>(int rows);

}  // namespace qtts::cuda::persistent
