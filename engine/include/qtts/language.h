// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_LANGUAGE_H_
#define QTTS_LANGUAGE_H_

#include <string_view>

namespace qtts {

// One of the official languages.
struct Language {
  std::string_view name;  // the official one, "german"; "auto" for a language that is to be found from the text
  std::string_view tag;   // the shortest BCP-47 tag, "de", which is ISO 639-1's code too; empty for "auto"
};

// The language that Request::language asks for: by its name in any case, by a BCP-47 tag of it ("de", "de-AT",
// "DE-Latn-CH"), or "auto", "und" or nothing for that of the text. Both fields are empty for anything else, such as a
// language of a checkpoint's own. Regions and scripts do not matter, except that Chinese tags of another variety than
// Mandarin ("zh-yue", "yue") have no official name.
//
// The one place where names and tags are resolved: whoever does something by language, be it tagging a stream or
// finding sentences, asks here, so that "EN-us" and "english" are never treated differently.
Language ResolveLanguage(std::string_view name_or_tag);

}  // namespace qtts

#endif  // QTTS_LANGUAGE_H_
