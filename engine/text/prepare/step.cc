// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/step.h"

#include <algorithm>

namespace qtts {

void StepRunner::Run(const MappedText& in, bool ended, bool letter_comes, MappedText* out) {
  text_.insert(text_.end(), in.begin(), in.end());
  while (at_ < text_.size()) {
    const Reader reader(text_, at_, ended, letter_comes, last_spoken_);
    const Edit edit = step_->Next(reader);
    if (reader.needs_more()) break;
    Apply(edit, out);
  }
  constexpr size_t kBehind = Reader::kBehind;
  if (at_ > 4 * kBehind) {
    text_.erase(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_ - kBehind));
    at_ = kBehind;
  }
}

bool StepRunner::LetterComes() const {
  return step_->KeepsFirstLetters() && at_ > 0 && at_ < text_.size() && text_[at_ - 1].code == ' ' &&
         IsLetter(text_[at_].code);
}

void StepRunner::Apply(const Edit& edit, MappedText* out) {
  const size_t end = std::min(at_ + edit.taken, text_.size());
  if (edit.kind == Edit::Kind::kReplace) {
    for (const char32_t code : edit.spoken) out->push_back({code, text_[at_].begin, text_[end - 1].end, false});
    if (!edit.spoken.empty()) last_spoken_ = edit.spoken.back();
  } else {
    for (size_t i = at_; i < end; ++i) {
      out->push_back(text_[i]);
      if (edit.kind == Edit::Kind::kRewrite) out->back().code = edit.spoken[i - at_];
    }
    last_spoken_ = out->back().code;
  }
  at_ = end;
}

}  // namespace qtts
