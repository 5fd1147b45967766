// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_MARKUP_H_
#define QTTS_MARKUP_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qtts/segmenter.h"
#include "qtts/status.h"
#include "qtts/text_preparer.h"

// Documents with markup: SSML, Markdown, subtitles. A reader makes plain text of them, which never holds a tag, and
// keeps a map, so that positions in messages are those of the document. doc/text.md has the rules.
namespace qtts {

enum class Markup {
  kAuto,      // SSML if the text begins with <speak>, else none
  kNone,      // plain text
  kSsml,      // W3C SSML 1.1, a subset
  kMarkdown,  // CommonMark, with GitHub's tables, strikethrough and task lists
  kSubtitle,  // text of SubRip, WebVTT and SubStation subtitles, with or without cue numbers and times
};

// Returns "auto", "none", "ssml", "markdown", "subtitle".
std::string_view MarkupName(Markup markup);

// Treatment of the parts of a Markdown document that are not running text.
enum class MarkupRule {
  kSkip,  // silent
  kName,  // a word says what is there, "Table."
  kRead,  // its text is spoken, without tags and marks
};

struct MarkdownRules {
  MarkupRule code = MarkupRule::kSkip;   // blocks of code; code within a sentence is always read
  MarkupRule table = MarkupRule::kSkip;  // kRead: each row is a sentence
  MarkupRule image = MarkupRule::kSkip;  // the description, badges included
  MarkupRule link = MarkupRule::kSkip;   // the target; the text of a link is always read
  MarkupRule html = MarkupRule::kSkip;   // blocks of raw HTML; kName is refused. Tags are never spoken

  bool operator==(const MarkdownRules&) const = default;
};

// Parses rules by name over the defaults: "code=name,table=read". kInvalidArgument names the wrong part and the right
// ones.
Result<MarkdownRules> ParseMarkdownRules(std::string_view rules);

struct MarkupOptions {
  Markup markup = Markup::kAuto;
  MarkdownRules rules;
  // Language of the text around the document, as of TextPreparerOptions.
  std::string language;
};

// Settings that a document switches for a run of its text.
struct MarkupSettings {
  std::string language;             // BCP-47 tag; empty: that of the text around the document
  std::vector<std::string> voices;  // names, the preferred one first; empty: the voice around the document
  double gain = 1;                  // factor of the samples
  double rate = 1;                  // factor of the rate

  bool operator==(const MarkupSettings&) const = default;
};

// A step of a document. Positions are in characters (Unicode code points) of the document.
struct MarkupItem {
  enum class Kind {
    kText,      // `text`, `map`, `settings`
    kBlockEnd,  // the sentence ends, and with it `gap`
    kBreak,     // silence of `duration`; the sentence ends
    kMark,      // `name`
  };

  Kind kind = Kind::kText;
  size_t position = 0;  // where it stands; of a kText: the end of its text
  std::string text;     // UTF-8
  // Map from the texts of all items so far to the document: positions go on from item to item.
  std::vector<TextMapPiece> map;
  MarkupSettings settings;
  SentenceGap gap = SentenceGap::kSentence;
  std::chrono::nanoseconds duration{0};
  std::string name;
};

// Reads one document, whole or as it grows. Text is given out as soon as no later text can change it. The items do not
// depend on how the document is cut, but for Markdown that is given as a whole: see ReadMarkup().
//
// A document that breaks the rules of its format loses nothing: from the mistake on tags are left out and all other
// text is spoken, and there is one warning. An unsupported element or value gives at most one warning a document.
// Memory is bounded.
//
// Owned by one document. Not thread-safe; several may be used at once.
class MarkupReader {
 public:
  explicit MarkupReader(const MarkupOptions& options);
  ~MarkupReader();
  MarkupReader(MarkupReader&&) noexcept;
  MarkupReader& operator=(MarkupReader&&) noexcept;

  // Adds text; a UTF-8 sequence may be cut anywhere. kInvalidArgument after Finish().
  Status Append(std::string_view text);
  // Ends the document. Idempotent.
  void Finish();

  // Returns the items that have been decided since the last call.
  std::vector<MarkupItem> Take();
  // Returns the warnings for the user since the last call.
  std::vector<std::string> TakeWarnings();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the items of a whole document. Markdown is read by a parser that sees all of it: a mark without its partner
// stays text, and links may be defined at the end.
std::vector<MarkupItem> ReadMarkup(std::string_view document, const MarkupOptions& options,
                                   std::vector<std::string>* warnings);

// Returns the markup of a text that begins with `text`: `asked`, if that is not kAuto. None while more text is needed:
// only if it begins with "<", and up to 4096 characters.
std::optional<Markup> ResolveMarkup(Markup asked, std::string_view text, bool ended);

// A mark within an utterance: it is reached when the word begins that follows it.
struct MarkupMark {
  size_t text = 0;      // position in the text of the utterance
  size_t position = 0;  // in the document
  std::string name;

  bool operator==(const MarkupMark&) const = default;
};

// A part of a document, in the order of speech: an utterance, a break or a mark.
struct MarkupPart {
  enum class Kind {
    kText,   // an utterance, or more of one that grows
    kBreak,  // silence of `duration`
    kMark,   // `name`, between two utterances
  };

  Kind kind = Kind::kText;
  std::string text;               // as it is spoken
  std::string source;             // the document from `begin` to the end of the text
  size_t begin = 0;               // position in the document
  std::vector<TextMapPiece> map;  // from `text` to `source`; of one that grows: from all of them to all of them
  std::vector<MarkupMark> marks;  // MarkupMark::text is of the whole utterance
  MarkupSettings settings;
  SentenceGap before = SentenceGap::kSentence;  // unit that ended before it
  bool after_break = false;                     // no other gap comes before it
  bool begins = true;                           // false: continues the utterance of the last kText
  bool ends = true;                             // false: the utterance may continue
  std::chrono::nanoseconds duration{0};
  std::string name;
};

// Units that a document is split into as utterances. Always ended by a break, by a switch of voice, language, rate or
// volume, and by the end of a block (paragraph, heading, list item).
enum class MarkupUnits {
  kSentences,  // each sentence is one
  kBlocks,     // each block is one
  kGrowing,    // each block is one, and text is given out as it comes
};

// Makes utterances of a document.
//
// Owned by one document. Not thread-safe.
class MarkupSplitter {
 public:
  MarkupSplitter(const MarkupOptions& options, MarkupUnits units, const Segmenter::Options& sentences);
  ~MarkupSplitter();
  MarkupSplitter(MarkupSplitter&&) noexcept;
  MarkupSplitter& operator=(MarkupSplitter&&) noexcept;

  // Behaves as that of MarkupReader.
  Status Append(std::string_view text);
  void Finish();
  // Reads a whole document, as ReadMarkup(), instead of Append() and Finish().
  void ReadWhole(std::string_view document);
  // Ends the utterance that has begun. The document goes on.
  void EndUtterance();

  // Returns the next part that is decided.
  std::optional<MarkupPart> Next();
  // Returns false if some text has come that no part holds yet, or an utterance may still grow.
  bool idle() const;
  std::vector<std::string> TakeWarnings();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qtts

#endif  // QTTS_MARKUP_H_
