// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_NUMBERS_H_
#define QTTS_TEXT_PREPARE_NUMBERS_H_

#include <utility>

#include "text/prepare/step.h"
#include "text/prepare/tongue.h"

namespace qtts {

// The step `numbers`: numbers and what is written in short, in words. The rules are in number_rules.h.
class NumbersStep : public Step {
 public:
  explicit NumbersStep(TongueChoice choice) : choice_(std::move(choice)) {}
  Edit Next(const Reader& text) const override;
  bool KeepsFirstLetters() const override { return true; }

 private:
  const TongueChoice choice_;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_NUMBERS_H_
