// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_STEP_H_
#define QTTS_TEXT_PREPARE_STEP_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "text/prepare/mapped_text.h"
#include "text/prepare/reader.h"

namespace qtts {

// The result for the first `taken` undecided characters, at least one.
struct Edit {
  enum class Kind {
    kCopy,     // they stay as they are
    kRewrite,  // `spoken` has one character for each
    kReplace,  // `spoken` stands for all of them together; empty: they are silent
  };
  Kind kind = Kind::kCopy;
  size_t taken = 1;
  std::u32string spoken;
};

inline Edit Copy(ptrdiff_t taken = 1) { return {Edit::Kind::kCopy, static_cast<size_t>(taken), {}}; }
inline Edit Replace(ptrdiff_t taken, std::u32string spoken) {
  return {Edit::Kind::kReplace, static_cast<size_t>(taken), std::move(spoken)};
}
inline Edit Replace(ptrdiff_t taken, std::string_view spoken) { return Replace(taken, ToUtf32(spoken)); }
inline Edit Replace(ptrdiff_t taken, const char* spoken) { return Replace(taken, std::string_view(spoken)); }
inline Edit Remove(ptrdiff_t taken) { return Replace(taken, std::u32string()); }

// One step of the preparation: a pure function of the text that a Reader shows. Immutable, thread-safe.
class Step {
 public:
  virtual ~Step() = default;
  // Decides the text from position 0 on, which is there. The result counts only if the reader needs no more text.
  virtual Edit Next(const Reader& text) const = 0;
  // Returns true if text that begins with a letter behind a space becomes text that begins with a letter.
  virtual bool KeepsFirstLetters() const { return false; }
};

// Runs a step over growing text: keeps what is undecided, and as much of what came before it as a Reader may show.
class StepRunner {
 public:
  // `step` must outlive the runner.
  explicit StepRunner(const Step* step) : step_(step) {}

  // Takes the characters of `in`, and appends to `out` what is decided. `ended`: no more come. `letter_comes`: more
  // come, and begin with a letter.
  void Run(const MappedText& in, bool ended, bool letter_comes, MappedText* out);

  // Returns true if what is undecided will begin with a letter.
  bool LetterComes() const;

 private:
  void Apply(const Edit& edit, MappedText* out);

  const Step* step_;
  MappedText text_;
  size_t at_ = 0;  // first undecided character
  char32_t last_spoken_ = Reader::kNone;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_STEP_H_
