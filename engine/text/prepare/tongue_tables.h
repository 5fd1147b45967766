// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_TONGUE_TABLES_H_
#define QTTS_TEXT_PREPARE_TONGUE_TABLES_H_

#include "text/prepare/tongue.h"

namespace qtts {

extern const Tongue kChineseTongue;
extern const Tongue kEnglishTongue;
extern const Tongue kJapaneseTongue;
extern const Tongue kKoreanTongue;
extern const Tongue kGermanTongue;
extern const Tongue kFrenchTongue;
extern const Tongue kPortugueseTongue;
extern const Tongue kRussianTongue;
extern const Tongue kSpanishTongue;
extern const Tongue kItalianTongue;

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_TONGUE_TABLES_H_
