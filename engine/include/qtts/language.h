// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_LANGUAGE_H_
#define QTTS_LANGUAGE_H_

#include <string_view>

namespace qtts {

// One of the official languages.
struct Language {
  std::string_view name;  // official name, "german"; "auto" if the text decides
  std::string_view tag;   // shortest BCP-47 tag, "de", also the ISO 639-1 code; empty for "auto"
};

// Resolves Request::language: a name in any case, a BCP-47 tag ("de", "de-AT", "DE-Latn-CH"), or "auto", "und" or
// nothing if the text decides. Both fields are empty for anything else, such as a checkpoint's own language. Regions
// and scripts are ignored. Chinese tags of a variety other than Mandarin ("zh-yue", "yue") have no official name.
//
// The only place that resolves names and tags. All code that depends on the language (stream tags, sentence detection)
// calls it, so that "EN-us" and "english" are always treated alike.
Language ResolveLanguage(std::string_view name_or_tag);

}  // namespace qtts

#endif  // QTTS_LANGUAGE_H_
