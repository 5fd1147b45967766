// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/emoji_names.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace qtts {
namespace {

constexpr char32_t kEmojiJoiner = 0x200D;
constexpr char32_t kEmojiStyle = 0xFE0F;
constexpr char32_t kFirstIndicator = 0x1F1E6;
constexpr char32_t kLastIndicator = 0x1F1FF;
constexpr char32_t kFirstSkinTone = 0x1F3FB;
constexpr char32_t kLastSkinTone = 0x1F3FF;

struct ShortName {
  char32_t code;
  std::string_view name;
};

// CLDR's short names that differ from the names of the characters (CLDR 41, annotations of "en").
constexpr ShortName kShortNames[] = {
    // clang-format off
    {0x231B, "hourglass done"}, {0x23F3, "hourglass not done"}, {0x2600, "sun"}, {0x260E, "telephone"},
    {0x2611, "check box with check"}, {0x261D, "index pointing up"}, {0x2622, "radioactive"}, {0x2623, "biohazard"},
    {0x2639, "frowning face"}, {0x263A, "smiling face"}, {0x264F, "Scorpio"}, {0x265F, "chess pawn"},
    {0x2660, "spade suit"}, {0x2663, "club suit"}, {0x2665, "heart suit"}, {0x2666, "diamond suit"}, {0x266D, "flat"},
    {0x267B, "recycling symbol"}, {0x267E, "infinity"}, {0x2695, "medical symbol"}, {0x2696, "balance scale"},
    {0x26A0, "warning"}, {0x26A1, "high voltage"}, {0x26A7, "transgender symbol"}, {0x26AA, "white circle"},
    {0x26AB, "black circle"}, {0x26C8, "cloud with lightning and rain"}, {0x26D1, "rescue worker's helmet"},
    {0x26F9, "person bouncing ball"}, {0x2702, "scissors"}, {0x2705, "check mark button"}, {0x2714, "check mark"},
    {0x2716, "multiply"}, {0x2734, "eight-pointed star"}, {0x274E, "cross mark button"},
    {0x2753, "red question mark"}, {0x2754, "white question mark"}, {0x2755, "white exclamation mark"},
    {0x2757, "red exclamation mark"}, {0x2763, "heart exclamation"}, {0x2764, "red heart"}, {0x2795, "plus"},
    {0x2796, "minus"}, {0x2797, "divide"}, {0x27A1, "right arrow"}, {0x2B50, "star"}, {0x2B55, "hollow red circle"},
    {0x1F004, "mahjong red dragon"}, {0x1F0CF, "joker"}, {0x1F170, "A button (blood type)"},
    {0x1F171, "B button (blood type)"}, {0x1F17E, "O button (blood type)"}, {0x1F17F, "P button"},
    {0x1F18E, "AB button (blood type)"}, {0x1F191, "CL button"}, {0x1F192, "COOL button"}, {0x1F193, "FREE button"},
    {0x1F194, "ID button"}, {0x1F195, "NEW button"}, {0x1F196, "NG button"}, {0x1F197, "OK button"},
    {0x1F198, "SOS button"}, {0x1F199, "UP! button"}, {0x1F19A, "VS button"}, {0x1F201, "Japanese “here” button"},
    {0x1F202, "Japanese “service charge” button"}, {0x1F21A, "Japanese “free of charge” button"},
    {0x1F22F, "Japanese “reserved” button"}, {0x1F232, "Japanese “prohibited” button"},
    {0x1F233, "Japanese “vacancy” button"}, {0x1F234, "Japanese “passing grade” button"},
    {0x1F235, "Japanese “no vacancy” button"}, {0x1F236, "Japanese “not free of charge” button"},
    {0x1F237, "Japanese “monthly amount” button"}, {0x1F238, "Japanese “application” button"},
    {0x1F239, "Japanese “discount” button"}, {0x1F23A, "Japanese “open for business” button"},
    {0x1F250, "Japanese “bargain” button"}, {0x1F251, "Japanese “acceptable” button"}, {0x1F307, "sunset"},
    {0x1F30D, "globe showing Europe-Africa"}, {0x1F30E, "globe showing Americas"},
    {0x1F30F, "globe showing Asia-Australia"}, {0x1F311, "new moon"}, {0x1F312, "waxing crescent moon"},
    {0x1F313, "first quarter moon"}, {0x1F314, "waxing gibbous moon"}, {0x1F315, "full moon"},
    {0x1F316, "waning gibbous moon"}, {0x1F317, "last quarter moon"}, {0x1F318, "waning crescent moon"},
    {0x1F31A, "new moon face"}, {0x1F31B, "first quarter moon face"}, {0x1F31C, "last quarter moon face"},
    {0x1F31D, "full moon face"}, {0x1F324, "sun behind small cloud"}, {0x1F325, "sun behind large cloud"},
    {0x1F326, "sun behind rain cloud"}, {0x1F32A, "tornado"}, {0x1F32C, "wind face"}, {0x1F33D, "ear of corn"},
    {0x1F33E, "sheaf of rice"}, {0x1F346, "eggplant"}, {0x1F355, "pizza"}, {0x1F35B, "curry rice"},
    {0x1F365, "fish cake with swirl"}, {0x1F376, "sake"}, {0x1F381, "wrapped gift"}, {0x1F385, "Santa Claus"},
    {0x1F387, "sparkler"}, {0x1F392, "backpack"}, {0x1F3A3, "fishing pole"}, {0x1F3AF, "bullseye"},
    {0x1F3B1, "pool 8 ball"}, {0x1F3B6, "musical notes"}, {0x1F3BD, "running shirt"}, {0x1F3BE, "tennis"},
    {0x1F3BF, "skis"}, {0x1F3C0, "basketball"}, {0x1F3C3, "person running"}, {0x1F3C4, "person surfing"},
    {0x1F3CA, "person swimming"}, {0x1F3CB, "person lifting weights"}, {0x1F3CC, "person golfing"},
    {0x1F3CD, "motorcycle"}, {0x1F3CF, "cricket game"}, {0x1F3D1, "field hockey"}, {0x1F3D2, "ice hockey"},
    {0x1F3D3, "ping pong"}, {0x1F3D8, "houses"}, {0x1F3DA, "derelict house"}, {0x1F3E0, "house"},
    {0x1F3E4, "post office"}, {0x1F3E7, "ATM sign"}, {0x1F3EE, "red paper lantern"}, {0x1F3F0, "castle"},
    {0x1F3F3, "white flag"}, {0x1F3F4, "black flag"}, {0x1F3F8, "badminton"}, {0x1F411, "ewe"}, {0x1F42A, "camel"},
    {0x1F42B, "two-hump camel"}, {0x1F438, "frog"}, {0x1F439, "hamster"}, {0x1F43A, "wolf"}, {0x1F43B, "bear"},
    {0x1F43C, "panda"}, {0x1F446, "backhand index pointing up"}, {0x1F447, "backhand index pointing down"},
    {0x1F448, "backhand index pointing left"}, {0x1F449, "backhand index pointing right"}, {0x1F44A, "oncoming fist"},
    {0x1F44B, "waving hand"}, {0x1F44C, "OK hand"}, {0x1F44D, "thumbs up"}, {0x1F44E, "thumbs down"},
    {0x1F44F, "clapping hands"}, {0x1F450, "open hands"}, {0x1F452, "woman's hat"}, {0x1F453, "glasses"},
    {0x1F45A, "woman's clothes"}, {0x1F45D, "clutch bag"}, {0x1F45E, "man's shoe"}, {0x1F45F, "running shoe"},
    {0x1F461, "woman's sandal"}, {0x1F462, "woman's boot"}, {0x1F46B, "woman and man holding hands"},
    {0x1F46C, "men holding hands"}, {0x1F46D, "women holding hands"}, {0x1F46F, "people with bunny ears"},
    {0x1F470, "person with veil"}, {0x1F471, "person: blond hair"}, {0x1F472, "person with skullcap"},
    {0x1F473, "person wearing turban"}, {0x1F474, "old man"}, {0x1F475, "old woman"}, {0x1F479, "ogre"},
    {0x1F47A, "goblin"}, {0x1F47D, "alien"}, {0x1F47F, "angry face with horns"}, {0x1F481, "person tipping hand"},
    {0x1F482, "guard"}, {0x1F483, "woman dancing"}, {0x1F486, "person getting massage"},
    {0x1F487, "person getting haircut"}, {0x1F4A0, "diamond with a dot"}, {0x1F4A1, "light bulb"}, {0x1F4A4, "ZZZ"},
    {0x1F4A5, "collision"}, {0x1F4A6, "sweat droplets"}, {0x1F4A8, "dashing away"}, {0x1F4AB, "dizzy"},
    {0x1F4AF, "hundred points"}, {0x1F4B4, "yen banknote"}, {0x1F4B5, "dollar banknote"}, {0x1F4B6, "euro banknote"},
    {0x1F4B7, "pound banknote"}, {0x1F4B9, "chart increasing with yen"}, {0x1F4BB, "laptop"},
    {0x1F4BD, "computer disk"}, {0x1F4BF, "optical disk"}, {0x1F4C8, "chart increasing"},
    {0x1F4C9, "chart decreasing"}, {0x1F4E2, "loudspeaker"}, {0x1F4E3, "megaphone"}, {0x1F4E7, "e-mail"},
    {0x1F4E9, "envelope with arrow"}, {0x1F4F2, "mobile phone with arrow"}, {0x1F4F6, "antenna bars"},
    {0x1F500, "shuffle tracks button"}, {0x1F501, "repeat button"}, {0x1F502, "repeat single button"},
    {0x1F503, "clockwise vertical arrows"}, {0x1F504, "counterclockwise arrows button"}, {0x1F505, "dim button"},
    {0x1F506, "bright button"}, {0x1F507, "muted speaker"}, {0x1F508, "speaker low volume"},
    {0x1F509, "speaker medium volume"}, {0x1F50A, "speaker high volume"}, {0x1F50D, "magnifying glass tilted left"},
    {0x1F50E, "magnifying glass tilted right"}, {0x1F50F, "locked with pen"}, {0x1F510, "locked with key"},
    {0x1F512, "locked"}, {0x1F513, "unlocked"}, {0x1F515, "bell with slash"}, {0x1F517, "link"},
    {0x1F519, "BACK arrow"}, {0x1F51A, "END arrow"}, {0x1F51B, "ON! arrow"}, {0x1F51C, "SOON arrow"},
    {0x1F51D, "TOP arrow"}, {0x1F51E, "no one under eighteen"}, {0x1F520, "input latin uppercase"},
    {0x1F521, "input latin lowercase"}, {0x1F522, "input numbers"}, {0x1F523, "input symbols"},
    {0x1F524, "input latin letters"}, {0x1F526, "flashlight"}, {0x1F52A, "kitchen knife"}, {0x1F52B, "water pistol"},
    {0x1F52F, "dotted six-pointed star"}, {0x1F534, "red circle"}, {0x1F535, "blue circle"},
    {0x1F53A, "red triangle pointed up"}, {0x1F53B, "red triangle pointed down"}, {0x1F53C, "upwards button"},
    {0x1F53D, "downwards button"}, {0x1F549, "om"}, {0x1F54A, "dove"}, {0x1F54E, "menorah"}, {0x1F550, "one o'clock"},
    {0x1F551, "two o'clock"}, {0x1F552, "three o'clock"}, {0x1F553, "four o'clock"}, {0x1F554, "five o'clock"},
    {0x1F555, "six o'clock"}, {0x1F556, "seven o'clock"}, {0x1F557, "eight o'clock"}, {0x1F558, "nine o'clock"},
    {0x1F559, "ten o'clock"}, {0x1F55A, "eleven o'clock"}, {0x1F55B, "twelve o'clock"}, {0x1F55C, "one-thirty"},
    {0x1F55D, "two-thirty"}, {0x1F55E, "three-thirty"}, {0x1F55F, "four-thirty"}, {0x1F560, "five-thirty"},
    {0x1F561, "six-thirty"}, {0x1F562, "seven-thirty"}, {0x1F563, "eight-thirty"}, {0x1F564, "nine-thirty"},
    {0x1F565, "ten-thirty"}, {0x1F566, "eleven-thirty"}, {0x1F567, "twelve-thirty"},
    {0x1F574, "person in suit levitating"}, {0x1F575, "detective"}, {0x1F576, "sunglasses"}, {0x1F58A, "pen"},
    {0x1F58B, "fountain pen"}, {0x1F58C, "paintbrush"}, {0x1F58D, "crayon"}, {0x1F590, "hand with fingers splayed"},
    {0x1F595, "middle finger"}, {0x1F596, "vulcan salute"}, {0x1F5B1, "computer mouse"}, {0x1F5BC, "framed picture"},
    {0x1F5D2, "spiral notepad"}, {0x1F5D3, "spiral calendar"}, {0x1F5DC, "clamp"}, {0x1F5E1, "dagger"},
    {0x1F5E3, "speaking head"}, {0x1F5FE, "map of Japan"}, {0x1F5FF, "moai"},
    {0x1F601, "beaming face with smiling eyes"}, {0x1F603, "grinning face with big eyes"},
    {0x1F604, "grinning face with smiling eyes"}, {0x1F605, "grinning face with sweat"},
    {0x1F606, "grinning squinting face"}, {0x1F60B, "face savoring food"}, {0x1F60D, "smiling face with heart-eyes"},
    {0x1F613, "downcast face with sweat"}, {0x1F618, "face blowing a kiss"}, {0x1F61B, "face with tongue"},
    {0x1F61C, "winking face with tongue"}, {0x1F61D, "squinting face with tongue"}, {0x1F621, "enraged face"},
    {0x1F624, "face with steam from nose"}, {0x1F625, "sad but relieved face"}, {0x1F630, "anxious face with sweat"},
    {0x1F635, "face with crossed-out eyes"}, {0x1F638, "grinning cat with smiling eyes"},
    {0x1F639, "cat with tears of joy"}, {0x1F63A, "grinning cat"}, {0x1F63B, "smiling cat with heart-eyes"},
    {0x1F63C, "cat with wry smile"}, {0x1F63D, "kissing cat"}, {0x1F63E, "pouting cat"}, {0x1F63F, "crying cat"},
    {0x1F640, "weary cat"}, {0x1F645, "person gesturing NO"}, {0x1F646, "person gesturing OK"},
    {0x1F647, "person bowing"}, {0x1F64B, "person raising hand"}, {0x1F64C, "raising hands"},
    {0x1F64E, "person pouting"}, {0x1F64F, "folded hands"}, {0x1F682, "locomotive"}, {0x1F685, "bullet train"},
    {0x1F699, "sport utility vehicle"}, {0x1F6A3, "person rowing boat"}, {0x1F6A7, "construction"},
    {0x1F6A8, "police car light"}, {0x1F6A9, "triangular flag"}, {0x1F6AB, "prohibited"}, {0x1F6AC, "cigarette"},
    {0x1F6AD, "no smoking"}, {0x1F6AE, "litter in bin sign"}, {0x1F6AF, "no littering"}, {0x1F6B0, "potable water"},
    {0x1F6B1, "non-potable water"}, {0x1F6B4, "person biking"}, {0x1F6B5, "person mountain biking"},
    {0x1F6B6, "person walking"}, {0x1F6B9, "men's room"}, {0x1F6BA, "women's room"}, {0x1F6C0, "person taking bath"},
    {0x1F6CC, "person in bed"}, {0x1F6D1, "stop sign"}, {0x1F6D2, "shopping cart"}, {0x1F6EC, "airplane arrival"},
    {0x1F6F4, "kick scooter"}, {0x1F7E0, "orange circle"}, {0x1F7E1, "yellow circle"}, {0x1F7E2, "green circle"},
    {0x1F7E3, "purple circle"}, {0x1F7E4, "brown circle"}, {0x1F7E5, "red square"}, {0x1F7E6, "blue square"},
    {0x1F7E7, "orange square"}, {0x1F7E8, "yellow square"}, {0x1F7E9, "green square"}, {0x1F7EA, "purple square"},
    {0x1F7EB, "brown square"}, {0x1F916, "robot"}, {0x1F917, "smiling face with open hands"},
    {0x1F91E, "crossed fingers"}, {0x1F91F, "love-you gesture"}, {0x1F920, "cowboy hat face"},
    {0x1F926, "person facepalming"}, {0x1F928, "face with raised eyebrow"}, {0x1F929, "star-struck"},
    {0x1F92A, "zany face"}, {0x1F92B, "shushing face"}, {0x1F92C, "face with symbols on mouth"},
    {0x1F92D, "face with hand over mouth"}, {0x1F92E, "face vomiting"}, {0x1F92F, "exploding head"},
    {0x1F935, "person in tuxedo"}, {0x1F936, "Mrs. Claus"}, {0x1F937, "person shrugging"},
    {0x1F938, "person cartwheeling"}, {0x1F939, "person juggling"}, {0x1F93A, "person fencing"},
    {0x1F93C, "people wrestling"}, {0x1F93D, "person playing water polo"}, {0x1F93E, "person playing handball"},
    {0x1F941, "drum"}, {0x1F947, "1st place medal"}, {0x1F948, "2nd place medal"}, {0x1F949, "3rd place medal"},
    {0x1F94D, "lacrosse"}, {0x1F95D, "kiwi fruit"}, {0x1F970, "smiling face with hearts"}, {0x1F973, "partying face"},
    {0x1F974, "woozy face"}, {0x1F975, "hot face"}, {0x1F976, "cold face"}, {0x1F97A, "pleading face"},
    {0x1F981, "lion"}, {0x1F984, "unicorn"}, {0x1F98A, "fox"}, {0x1F992, "giraffe"}, {0x1F993, "zebra"},
    {0x1F9AF, "white cane"}, {0x1F9B0, "red hair"}, {0x1F9B1, "curly hair"}, {0x1F9B2, "bald"},
    {0x1F9B3, "white hair"}, {0x1F9C2, "salt"}, {0x1F9C9, "mate"}, {0x1F9CA, "ice"}, {0x1F9CD, "person standing"},
    {0x1F9CE, "person kneeling"}, {0x1F9D1, "person"}, {0x1F9D3, "older person"}, {0x1F9D4, "person: beard"},
    {0x1F9D5, "woman with headscarf"}, {0x1F9E7, "red envelope"}, {0x1F9E9, "puzzle piece"}, {0x1F9EC, "dna"},
    {0x1F9F5, "thread"}, {0x1F9F6, "yarn"}, {0x1F9FC, "soap"}, {0x1FA85, "piñata"},
    // clang-format on
};
static_assert(std::ranges::is_sorted(kShortNames, {}, &ShortName::code));

bool IsIndicator(char32_t c) { return c >= kFirstIndicator && c <= kLastIndicator; }
bool IsSkinTone(char32_t c) { return c >= kFirstSkinTone && c <= kLastSkinTone; }

bool IsPictograph(char32_t c) {
  constexpr char32_t kFirst = 0x2190;  // "©" and "™" are no pictures
  return c >= kFirst && c <= UCHAR_MAX_VALUE &&
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

// Returns the length of one emoji, with what belongs to it.
ptrdiff_t OneLength(const Reader& text, ptrdiff_t at) {
  if (IsIndicator(text[at])) return IsIndicator(text[at + 1]) ? 2 : 1;
  if (!IsPictograph(text[at])) return 0;
  ptrdiff_t end = at + 1;
  while (end < at + 24) {
    if (text[end] == kEmojiStyle || IsSkinTone(text[end])) {
      ++end;
    } else if (text[end] == kEmojiJoiner && IsPictograph(text[end + 1])) {
      end += 2;
    } else {
      break;
    }
  }
  return end - at;
}

std::string PictographName(char32_t c) {
  const auto* const found = std::ranges::lower_bound(kShortNames, c, {}, &ShortName::code);
  if (found != std::end(kShortNames) && found->code == c) return std::string(found->name);
  std::array<char, 128> name{};
  UErrorCode error = U_ZERO_ERROR;
  const int32_t length =
      u_charName(static_cast<UChar32>(c), U_UNICODE_CHAR_NAME, name.data(), static_cast<int32_t>(name.size()), &error);
  if (U_FAILURE(error)) return "";
  std::string lower(name.data(), static_cast<size_t>(length));
  for (char& letter : lower) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return lower;
}

std::string CountryName(char32_t first, char32_t second) {
  const std::string code = {static_cast<char>('A' + (first - kFirstIndicator)),
                            static_cast<char>('A' + (second - kFirstIndicator))};
  icu::UnicodeString display;
  icu::Locale("", code.c_str()).getDisplayCountry(icu::Locale::getEnglish(), display);
  std::string name;
  display.toUTF8String(name);
  return "flag of " + name;
}

}  // namespace

ptrdiff_t EmojiLength(const Reader& text, ptrdiff_t position) {
  const ptrdiff_t one = OneLength(text, position);
  if (one == 0) return 0;
  ptrdiff_t end = position + one;
  constexpr ptrdiff_t kMost = 200;
  while (end < position + kMost && text[end] == text[position] && OneLength(text, end) == one) end += one;
  return end - position;
}

std::string EmojiName(const Reader& text, ptrdiff_t position) {
  if (IsIndicator(text[position]))
    return IsIndicator(text[position + 1]) ? CountryName(text[position], text[position + 1]) : "";
  const ptrdiff_t end = position + OneLength(text, position);
  std::string name;
  for (ptrdiff_t i = position; i < end; ++i) {
    if (!IsPictograph(text[i])) continue;
    const std::string part = PictographName(text[i]);
    if (!name.empty() && !part.empty()) name += ' ';
    name += part;
  }
  return name;
}

}  // namespace qtts
