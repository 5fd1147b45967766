// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_MARKUP_SUBTITLE_READER_H_
#define QTTS_TEXT_MARKUP_SUBTITLE_READER_H_

#include <cstddef>
#include <vector>

#include "text/markup/item_builder.h"

namespace qtts {

// Text of subtitles: of one cue, of several, or of a whole SubRip or WebVTT file. It is read line by line.
//
// - Tags of every kind are silent: <i>, <v Name>, <00:00:01.000>, {\an8}, {y:i}. A voice tag begins a sentence.
// - The number or name of a cue before a line of times, these lines, and WebVTT's header and NOTE, STYLE and REGION
// blocks: silent.
// - A speaker's name in capitals at the beginning of a line, "JOHN:", and the dash before what somebody says: silent;
//   a sentence begins there.
// - Sounds: [MUSIC] everywhere; (SIGHS) in capitals, or as a whole line; ♪ and its like. Ruby text is silent.
class SubtitleReader : public DocumentReader {
 public:
  static constexpr size_t kLongestLine = 4096;  // characters; longer ones are read in parts

  explicit SubtitleReader(ItemBuilder* items) : items_(items) {}

  void Push(const DocumentChar& character) override;
  void Finish(size_t length) override;

 private:
  using Line = std::vector<DocumentChar>;

  void ReadLine(const Line& line);
  void ReadText(const Line& line);
  bool IsFileLine(const Line& line);
  void ReleaseLabel();
  void SayLine(const Line& line, size_t begin);
  size_t SkipSpeaker(const Line& line, size_t begin) const;
  size_t SkipTag(const Line& line, size_t begin);
  size_t SkipSound(const Line& line, size_t begin) const;
  size_t SkipOverride(const Line& line, size_t begin) const;
  size_t SayEscape(const Line& line, size_t begin);

  ItemBuilder* items_;
  Line line_;
  Line label_;  // the first line of a block: a cue's number or name if times follow
  bool first_line_ = true;
  bool block_begins_ = true;  // the line follows a blank one
  bool in_skipped_ = false;   // a NOTE, STYLE or REGION block
  bool in_ruby_ = false;      // between <rt> and </rt>
  bool in_sound_ = false;     // of a bracket that the line did not close
};

}  // namespace qtts

#endif  // QTTS_TEXT_MARKUP_SUBTITLE_READER_H_
