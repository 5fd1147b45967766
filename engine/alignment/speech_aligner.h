// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_ALIGNMENT_SPEECH_ALIGNER_H_
#define QTTS_ALIGNMENT_SPEECH_ALIGNER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "alignment/coverage.h"
#include "alignment/pauses.h"
#include "alignment/text_path.h"
#include "alignment/word_times.h"
#include "backend/text_scores.h"
#include "qtts/words.h"

namespace qtts {

// Follows the text of one utterance through its frames: gives the times of its words and what was spoken of it. The
// result depends on text and frames alone, not on how the text is cut or when it comes. Not thread-safe.
class SpeechAligner {
 public:
  struct Options {
    int sample_rate = 24000;
    int samples_per_frame = 1920;
    int offset_ms = 0;  // AlignmentHead::offset_ms
  };
  explicit SpeechAligner(const Options& options);

  // Begins the next part of the utterance, which has a prompt of its own. The first part has begun.
  void BeginPart();
  // Sets the prompt of the part: its number of rows, and the position of the text's first token (Prompt::text_begin).
  void SetPrompt(int64_t rows, size_t text_begin);
  // Adds tokens of the part by their ends, and words, both in bytes of the utterance's text.
  void AddText(std::span<const size_t> token_ends, std::span<const TextRange> words);
  // Ends the text of the part: all of it has been added.
  void FinishText();

  // Returns the window of scores to ask for in a frame of the part. Frames up to frame - TextPath::kWindowLag must have
  // been added.
  TextWindow WindowOf(int64_t frame) const;
  // Adds the next frame of the part: the scores of WindowOf(), and its sound. Returns the words that are decided now.
  std::vector<SpokenWord> AddFrame(const TextWindow& window, const TextScores& scores, std::span<const float> pcm);
  // Ends the frames of the part.
  void FinishPart();
  // Ends the utterance. Returns the words that were not returned before.
  std::vector<SpokenWord> Finish();

  // Returns the report on the speech so far.
  const SpeechReport& report() const { return report_; }
  // Returns true if the part should end: see Coverage::runaway().
  bool runaway() const { return supported_ && part_.coverage.runaway(); }

 private:
  // A part of the text and what its frames say.
  struct Part {
    std::vector<size_t> token_ends;
    std::vector<TokenWord> words;
    std::deque<TextRange> unplaced;  // words whose tokens have not all come
    size_t timed_words = 0;          // of `words`: those whose beginning was given to times_
    bool complete = false;
    int64_t prompt_rows = 0;
    int64_t text_begin = 0;
    int64_t first_frame = 0;  // within the utterance
    TextPath path;
    Coverage coverage;
  };

  void PlaceWords();
  void TakePlaced();
  double SecondsOf(double frames) const { return frames * frame_seconds_; }
  void UpdateReport();

  const double frame_seconds_;
  const double offset_seconds_;
  bool supported_ = true;  // the backend gives scores
  int64_t frames_ = 0;     // of all parts
  Part part_;
  Pauses pauses_;
  WordTimes times_;
  // Results of the parts that have ended.
  bool trusted_ = true;
  size_t tokens_ = 0;
  size_t spoken_tokens_ = 0;
  SpeechReport earlier_;
  SpeechReport report_;
};

}  // namespace qtts

#endif  // QTTS_ALIGNMENT_SPEECH_ALIGNER_H_
