// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_CAPITALS_H_
#define QTTS_TEXT_PREPARE_CAPITALS_H_

#include <utility>

#include "text/prepare/step.h"
#include "text/prepare/tongue.h"

namespace qtts {

// The step `capitals`: a word of two or more capital letters is an acronym that is spelled ("F B I"), an acronym that
// is read as a word ("nato", "JSON"), or a word that is only meant loud ("please").
//
// 1. Known acronyms are spelled or kept, unless they are also words and stand among words in capitals ("GIVE IT TO
// US").
// 2. Among other words in capitals: a word.
// 3. By itself: a word if it is a common short one or has four letters or more that can be pronounced; else it is
// spelled.
//
// In Chinese, Japanese and Korean texts Latin letters stay as they are.
class CapitalsStep : public Step {
 public:
  explicit CapitalsStep(TongueChoice choice) : choice_(std::move(choice)) {}
  Edit Next(const Reader& text) const override;

 private:
  const TongueChoice choice_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_CAPITALS_H_
