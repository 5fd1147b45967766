// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARER_H_
#define QTTS_TEXT_PREPARER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qtts/model_description.h"
#include "qtts/status.h"

// Rewriting of a text for a model that cannot read all of it: "It's 5 km — see [1]." becomes "It's five kilometers."
// The engine never rewrites by itself: the model reads Request::text as it is. doc/text.md has each step in each
// language.
namespace qtts {

class Lexicon;

// A user's choice of how numbers are handled.
enum class Normalize {
  kModel,   // as the checkpoint's description says: no step if it has none
  kNone,    // no step: the model reads what is written. A lexicon still applies
  kSpoken,  // the checkpoint's steps, and at least characters, numbers and symbols
};

// Returns "model", "none", "spoken".
std::string_view NormalizeName(Normalize normalize);

// Manner in which pictographs are spoken by the step `symbols`.
enum class Emoji {
  kSilent,
  kNames,  // English CLDR short names, in English texts only; silent in other languages
};

// Returns "silent", "names".
std::string_view EmojiName(Emoji emoji);

// Returns the steps for a checkpoint and a user's choice.
TextSteps ChooseSteps(const TextDescription& description, Normalize normalize);

// Returns the language to prepare a text in: the requested one (a name or tag; a region is kept, "en-GB"), else the
// only one of `model_languages` (ModelInfo::languages), else "": the letters of the text decide by their script, Latin
// ones as English.
std::string PreparationLanguage(std::string_view requested, const std::vector<std::string>& model_languages);

struct TextPreparerOptions {
  // Name or BCP-47 tag. Empty, "auto" or unknown: see PreparationLanguage(). The region decides between the orders of
  // day and month, and between words such as "kilometers" and "kilometres".
  std::string language;
  TextSteps steps;
  std::shared_ptr<const Lexicon> lexicon;  // or null
  Emoji emoji = Emoji::kSilent;
};

// A run of the spoken text and the run of the original text that it stands for. Positions are in characters (Unicode
// code points) from the beginning of the utterance.
//
// In a `copied` piece both runs have the same length, and characters correspond one to one (letters may differ in
// case). Otherwise the piece as a whole stands for the source as a whole; one of the two runs may be empty.
struct TextMapPiece {
  size_t spoken_begin = 0;
  size_t spoken_end = 0;
  size_t source_begin = 0;
  size_t source_end = 0;
  bool copied = false;

  bool operator==(const TextMapPiece&) const = default;
};

// The map of an utterance. Its pieces are contiguous: each begins where the one before it ends, in both texts.
//
// Owned by one utterance. Not thread-safe.
class TextMap {
 public:
  // Appends pieces that continue the map, as TextPreparer::Take() gives them.
  void Append(const std::vector<TextMapPiece>& pieces);

  // Returns the run of the source that the spoken characters [begin, end) stand for. A part of a replacement stands for
  // the whole replacement. Positions beyond the map are counted on from its end. begin <= end.
  std::pair<size_t, size_t> SourceOf(size_t begin, size_t end) const;

  // Returns the spoken position of the source position `source`.
  size_t SpokenOf(size_t source) const;

  const std::vector<TextMapPiece>& pieces() const { return pieces_; }

 private:
  std::vector<TextMapPiece> pieces_;
};

// Spoken text that is decided, and its part of the map.
struct PreparedText {
  std::string spoken;  // UTF-8
  std::vector<TextMapPiece> map;
};

// Prepares the text of one utterance, whole or as it grows. The result does not depend on how the text is cut into
// pieces, and text is given out as soon as no later text can change it: most words when the next one begins.
//
// Without steps and without a lexicon the text passes through as it is, but for bytes that are not UTF-8, which become
// U+FFFD as everywhere in the engine.
//
// Owned by one utterance. Not thread-safe; several may be used at once.
class TextPreparer {
 public:
  explicit TextPreparer(const TextPreparerOptions& options);
  ~TextPreparer();
  TextPreparer(TextPreparer&&) noexcept;
  TextPreparer& operator=(TextPreparer&&) noexcept;

  // Adds text; a UTF-8 sequence may be cut anywhere. kInvalidArgument after Finish().
  Status Append(std::string_view text);

  // Ends the text: all of it becomes decided. Idempotent.
  Status Finish();

  // Returns the text that has been decided since the last call.
  PreparedText Take();

  // Returns true if the preparer has no step and no lexicon: a caller may then leave it out.
  bool passes_through() const;

  // Makes the tables of a language that its first number would otherwise wait for (some ms). Thread-safe.
  static void Preload(const TextPreparerOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Prepares a whole text.
PreparedText PrepareText(std::string_view text, const TextPreparerOptions& options);

// Returns the text after each step, for display: the name of the step and what it made.
std::vector<std::pair<std::string, std::string>> ExplainPreparation(std::string_view text,
                                                                    const TextPreparerOptions& options);

// A pronunciation lexicon of plain words: written forms and what is spoken instead. Immutable, thread-safe.
class Lexicon {
 public:
  // Loads one or more files, separated by ':'; empty: null. Files ahead win. A file is
  // - W3C PLS 1.0 (it begins with '<'): `alias` entries. A lexeme with phonemes alone is refused: the models take text.
  // - else lines of two or three columns, separated by tabs: written, spoken, and optionally the tag of the language; #
  //   begins a comment line.
  // Loaded files are kept, and read again if they have changed, so it costs microseconds to call this for each
  // utterance. The same files give the same pointer. Errors name file, line and entry.
  static Result<std::shared_ptr<const Lexicon>> Load(const std::string& files);

  // Returns the number of entries, of all languages.
  virtual size_t size() const = 0;
  virtual ~Lexicon() = default;

 protected:
  Lexicon() = default;
};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARER_H_
