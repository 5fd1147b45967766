// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/text_check.h"

#include <unicode/uchar.h>
#include <unicode/utf.h>
#include <unicode/utf8.h>

#include <cstdint>

namespace qtts {
namespace {

constexpr uint32_t kSaid = U_GC_L_MASK | U_GC_N_MASK | U_GC_SC_MASK | U_GC_CN_MASK;

}  // namespace

bool IsSayable(std::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t i = 0; i < size;) {
    UChar32 c = 0;
    U8_NEXT_OR_FFFD(text.data(), i, size, c);
    if ((U_GET_GC_MASK(c) & kSaid) != 0 && !U_IS_UNICODE_NONCHAR(c)) return true;
  }
  return false;
}

}  // namespace qtts
