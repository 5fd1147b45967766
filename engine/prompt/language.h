// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_PROMPT_LANGUAGE_H_
#define QTTS_PROMPT_LANGUAGE_H_

#include <string_view>

namespace qtts {

// The official name of the language that a BCP-47 tag is about: "german" for "de", "de-AT" or
// "DE-Latn-CH"; "auto" for "und". Empty for what is no tag of one of the official languages. Regions
// and scripts do not matter, except that Chinese tags of another variety than Mandarin ("zh-yue", "yue")
// have no official name.
std::string_view LanguageOfTag(std::string_view tag);

// The shortest tag of an official name: "de" for "german"; empty for other names.
std::string_view TagOfLanguage(std::string_view name);

}  // namespace qtts

#endif  // QTTS_PROMPT_LANGUAGE_H_
