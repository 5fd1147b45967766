// SPDX-License-Identifier: LGPL-2.1-or-later
#include "paths/persistent/frame_variant.cuh"

namespace qtts::cuda::persistent {

Variant WideVariant(int rows) { return VariantOf<kPersistentWideHidden>(rows); }

}  // namespace qtts::cuda::persistent
