// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/frame_variant.cuh"

namespace qtts::cuda::persistent {

Variant NarrowVariant(int rows) { return VariantOf<kPersistentHidden>(rows); }

}  // namespace qtts::cuda::persistent
