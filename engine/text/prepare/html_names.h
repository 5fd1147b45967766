// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TEXT_PREPARE_HTML_NAMES_H_
#define QTTS_TEXT_PREPARE_HTML_NAMES_H_

#include <string_view>
#include <utility>

namespace qtts {

// HTML's character references that occur in texts, with their semicolon.
inline constexpr std::pair<std::string_view, std::u32string_view> kHtmlNames[] = {
    {"amp;", U"&"},    {"lt;", U"<"},     {"gt;", U">"},     {"quot;", U"\""},  {"apos;", U"'"},  {"nbsp;", U" "},
    {"copy;", U"©"},   {"reg;", U"®"},    {"trade;", U"™"},  {"euro;", U"€"},   {"pound;", U"£"}, {"cent;", U"¢"},
    {"deg;", U"°"},    {"mdash;", U"—"},  {"ndash;", U"–"},  {"hellip;", U"…"}, {"bull;", U"•"},  {"middot;", U"·"},
    {"times;", U"×"},  {"frac12;", U"½"}, {"lsquo;", U"‘"},  {"rsquo;", U"’"},  {"ldquo;", U"“"}, {"rdquo;", U"”"},
    {"laquo;", U"«"},  {"raquo;", U"»"},  {"auml;", U"ä"},   {"ouml;", U"ö"},   {"uuml;", U"ü"},  {"szlig;", U"ß"},
    {"eacute;", U"é"}, {"egrave;", U"è"}, {"agrave;", U"à"}, {"ccedil;", U"ç"}, {"ntilde;", U"ñ"}};

}  // namespace qtts

#endif  // QTTS_TEXT_PREPARE_HTML_NAMES_H_
