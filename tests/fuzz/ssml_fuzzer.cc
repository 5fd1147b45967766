// SPDX-License-Identifier: LGPL-2.1-or-later
//
// Any bytes as a document: it is read the same however it is cut, and its map leads back to it.
// Input: a byte for the options, a byte for the length of the pieces, the document.

#include <cstdint>

#include "fuzz/markup_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  qtts::CheckMarkup(qtts::Markup::kSsml, data, size);
  return 0;
}
