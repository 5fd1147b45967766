// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_MODEL_DESCRIPTION_H_
#define QTTS_MODEL_DESCRIPTION_H_

#include <map>
#include <optional>
#include <string>

namespace qtts {

// Steps that prepare a text (qtts/text_preparer.h), in the order in which they run. A lexicon, if there is one, runs
// after `characters`.
struct TextSteps {
  bool characters = false;  // white space, invisible characters, escape sequences, hyphens at line ends
  bool numbers = false;     // numbers, dates, prices, units, abbreviations, addresses of the network: in words
  bool symbols = false;     // marks as pauses or silent, symbols as words, emoji
  bool capitals = false;    // words in capitals: as words or as letters

  bool any() const { return characters || numbers || symbols || capitals; }
  bool operator==(const TextSteps&) const = default;
};

// The text that a checkpoint can read: the object "text" of its qttssrc.json.
struct TextDescription {
  TextSteps steps;  // "prepare"; with `numbers` if "normalize" is "spoken"
  // Longest text that the model speaks at once, in characters; 0 if the description does not say.
  int part_characters = 0;

  bool operator==(const TextDescription&) const = default;
};

// The attention head of the talker that follows the text which is spoken, and what its times lack: the object
// "alignment" of qttssrc.json. Head and offset belong to one training. doc/words.md has the method.
struct AlignmentHead {
  int layer = 0;
  int head = 0;       // query head
  int offset_ms = 0;  // from the time at which the head moves to a word to the word's first sound

  bool operator==(const AlignmentHead&) const = default;
};

// A checkpoint's description, qttssrc.json in its folder: what config.json has no place for. Released checkpoints have
// none, which is the same as an empty one. doc/text.md has the format.
struct ModelDescription {
  std::string default_speaker;  // of a request that names none; empty: the first one in alphabetical order
  TextDescription text;
  // Head for the times of words; none: they are estimated. For a released checkpoint without an entry, the head known
  // for its structure.
  std::optional<AlignmentHead> alignment;
  // Integrated loudness, in LUFS, of what each speaker says; by name in lower case. `qtts-tool loudness` measures it.
  std::map<std::string, double> loudness;

  bool operator==(const ModelDescription&) const = default;
};

}  // namespace qtts

#endif  // QTTS_MODEL_DESCRIPTION_H_
