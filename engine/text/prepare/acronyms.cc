// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/prepare/acronyms.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>

namespace qtts {
namespace {

using AcronymSet = std::unordered_set<std::string_view>;

// Returns the words separated by spaces, as a set. Made once.
AcronymSet* SetOf(std::string_view words) {
  auto* const set = new AcronymSet;
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (end > 0) set->insert(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return set;
}

bool IsVowel(char c) { return std::string_view("AEIOUY").find(c) != std::string_view::npos; }

// Groups of consonants.
constexpr std::string_view kBeginnings =
    " BL BR CH CHR CL CR DR DW FL FR GH GL GN GR KL KN KR PH PL PR PS QU RH SC SCH SCR SH SHR SK SL SM SN SP SPH SPL "
    "SPR SQ SQU ST "
    "STR SW TH THR TR TW WH WR ";
constexpr std::string_view kEndings =
    " BT CK CKS CT CTS CH DS FF FFS FT FTS GH GHS GHT GHTS GN GS KS LB LCH LD LDS LF LFS LFTH LK LKS LL LLS LM LMS LP "
    "LPS "
    "LS LT LTH LTS LVES MB MBS MN "
    "MP MPS MPT MS MPTS NCH ND NDS NG NGS NGTH NK NKS NN NS NT NTH NTHS NTS NX PH PHS PS PT PTS RB RBS RC RCH RD RDS "
    "RF RGH RG RK RKS RL "
    "RLD RLDS RLS RM RMS RN RNS RP RPS RS RSH RST RT RTH RTS SH SK SKS SM SMS SP SS ST STS TCH TH THM THS TS TT TTS WD "
    "WDS "
    "WK WL WLS WN WNS WS WTH XT "
    "XTS BS DTH FTH PTH XTH ZZ RR GHTH ";

bool IsIn(std::string_view groups, std::string_view group) {
  for (size_t at = groups.find(group); at != std::string_view::npos; at = groups.find(group, at + 1)) {
    if (groups[at - 1] == ' ' && groups[at + group.size()] == ' ') return true;
  }
  return false;
}

}  // namespace

bool IsSpelledAcronym(std::string_view word) {
  static const AcronymSet* const words = SetOf(
      "IBAN API HTTP HTTPS URL XML HTML CSS SQL USB HDMI PDF TCP UDP IP DNS VPN SSH FTP TLS SSL AMD ARM LLM AI TTS ASR "
      "NLP "
      "AAC PCM SSD LED LCD "
      "FPS DSP FFT SDK IDE CLI PNG GPS SMS HLS RTP RTSP RTCP GPU CPU FBI USA UK EU UN BBC CNN ID ATM TV DVD CD FAQ CEO "
      "PC QR CSV UTF PCI "
      "SVG DJ MRI HIV DNA RNA BMW IBM HR NBA NFL CIA GDP VAT VIP SUV ETA RSVP ISBN JFK LAX NYC PH MIT UCLA BC AD KLM "
      "CFO CTO COO NSA IRS "
      "DIY TBD TBA EST PST GMT UTC AC DC UV IQ PR PE NGO PTSD ADHD STD OCD ICU ER EMT NHS WHO IMF WTO ECB EEC USSR GDR "
      "UAE IEEE AARP "
      "ASAP ESPN MBA BA MA MD RPG PVP NPC FOMO USB EUR OECD UPS UHF VHF CV DOJ DOD EPA FDA FCC SEC SUV AKA OS UI UX IT "
      "US "
      "KGB SOS ISO IOS HBO IRA NRA MLB NHL UFC XXL RPM AWS GCP JWT CPR ADAC ARD ZDF EDF RTL SMTP IMAP SNCF TGV PSG "
      "RAI");
  return words->contains(word);
}

bool IsSpokenAcronym(std::string_view word) {
  static const AcronymSet* const words = SetOf(
      "NATO UNESCO UNICEF OPEC LASER RADAR SONAR SCUBA AIDS COVAX SWAT FEMA UEFA FIFA IKEA NAFTA ASEAN BAFTA BREXIT "
      "EBITDA FOMO YOLO WIFI LIDAR NIMBY TASER ZIP CERN NASDAQ HIPAA OSHA CAPTCHA LEGO DAX BIOS LAN WAN SARS MERS SIM "
      "CAD CAM "
      "DOS RAID SATA SAAB SEAT FIAT NIKE SQUAD");
  return words->contains(word) || IsKeptAcronym(word);
}

bool IsKeptAcronym(std::string_view word) {
  static const AcronymSet* const words =
      SetOf("NASA COVID ASCII JPEG MPEG JSON YAML ONNX CUDA GIF GUI RAM ROM PIN SIP FLAC ALSA");
  return words->contains(word);
}

bool IsShortWord(std::string_view word) {
  static const AcronymSet* const words = SetOf(
      "AM AN AS AT BE BY DO GO HE HI IF IN IS IT ME MY NO OF OH ON OR SO TO UP US WE AH HA YO "
      "ACT ADD AGE AGO AIR ALL AND ANY ARE ARM ART ASK ATE BAD BAG BED BIG BIT BOX BOY BUS BUT BUY BYE CAN CAR CAT CUP "
      "CUT DAD DAY DID DIE "
      "DOG DRY EAR EAT EGG END EYE FAR FAT FEW FIT FIX FLY FOR FUN GAS GET GOD GOT GUN GUY HAD HAS HAT HER HEY HIM HIS "
      "HIT HOT HOW HUG ICE "
      "ILL ITS JOB JOY KEY KID LAW LAY LED LEG LET LIE LOT LOW MAD MAN MAP MAY MEN MET MIX MOM MUD NET NEW NOR NOT NOW "
      "NUT ODD OFF OIL OLD "
      "ONE OUR OUT OWE OWN PAY PEN PET PIE PUT RAN RAW RED RID ROW RUN SAD SAT SAW SAY SEA SEE SET SHE SHY SIR SIT SIX "
      "SKY SON SUM SUN TAX "
      "TEA TEN THE TIE TIP TOO TOP TOY TRY TWO USE WAR WAS WAY WET WHO WHY WIN WON WOW YES YET YOU YUM ZOO");
  return words->contains(word);
}

bool IsPronounceable(std::string_view word) {
  if (word.size() < 4) return false;
  if (word[0] == 'Y' && !IsVowel(word[1])) return false;
  size_t vowels = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= word.size(); ++i) {
    if (i < word.size() && !IsVowel(word[i])) continue;
    const std::string_view group = word.substr(begin, i - begin);
    const bool first = begin == 0;
    const bool last = i == word.size();
    if (first && last) return false;
    if (group.size() > 1) {
      const bool double_letter = group.size() == 2 && group[0] == group[1];
      if (first && !IsIn(kBeginnings, group)) return false;
      if (last && !double_letter && !IsIn(kEndings, group)) return false;
      constexpr size_t kLongest = 4;
      if (!first && !last && group.size() > kLongest) return false;
    }
    if (!last) ++vowels;
    begin = i + 1;
  }
  // Three vowels in a row are letters: "IEEE".
  constexpr size_t kMaxTogether = 3;
  size_t together = 0;
  for (const char c : word) {
    together = IsVowel(c) && c != 'Y' ? together + 1 : 0;
    if (together > kMaxTogether) return false;
  }
  return vowels > 0 && vowels < word.size();
}

}  // namespace qtts
