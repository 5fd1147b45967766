// SPDX-License-Identifier: LGPL-2.1-or-later
// The preparation as a whole: growing text, maps, languages.
#include "qtts/text_preparer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "qtts/utf8.h"
#include "unit/text/random_text.h"

namespace qtts {
namespace {

constexpr TextSteps kAllSteps = {true, true, true, true};

struct Row {
  std::string language;
  std::string written;
  std::string spoken;
};

// The rows of tests/data/spoken: language, written, spoken.
const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(QTTS_TEXT_DATA)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& path : files) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        const size_t first = line.find('\t');
        const size_t second = line.find('\t', first + 1);
        EXPECT_NE(second, std::string::npos) << path << ": " << line;
        if (second == std::string::npos) continue;
        // The data has white space and control characters as escapes.
        std::string written = line.substr(first + 1, second - first - 1);
        for (const auto& [escape, character] : {std::pair<std::string, std::string>{"\\n", "\n"},
                                                {"\\t", "\t"},
                                                {"\\f", "\f"},
                                                {"\\e", "\x1B"},
                                                {"\\0", std::string(1, '\0')}}) {
          for (size_t at = written.find(escape); at != std::string::npos; at = written.find(escape, at + 1)) {
            written.replace(at, escape.size(), character);
          }
        }
        all.push_back({line.substr(0, first), written, line.substr(second + 1)});
      }
    }
    return all;
  }();
  return rows;
}

TextPreparerOptions OptionsFor(const std::string& language, TextSteps steps = kAllSteps) {
  TextPreparerOptions options;
  options.language = language == "auto" ? "" : language;
  options.steps = steps;
  return options;
}

struct Prepared {
  std::string spoken;
  TextMap map;
};

void Take(TextPreparer* preparer, Prepared* to) {
  PreparedText part = preparer->Take();
  to->spoken += part.spoken;
  to->map.Append(part.map);
}

Prepared InPieces(const std::string& text, const TextPreparerOptions& options, std::mt19937* rng, size_t most) {
  TextPreparer preparer(options);
  Prepared prepared;
  std::uniform_int_distribution<size_t> size(1, most);
  for (size_t at = 0; at < text.size();) {
    const size_t piece = std::min(size(*rng), text.size() - at);
    EXPECT_TRUE(preparer.Append(std::string_view(text).substr(at, piece)).ok());
    at += piece;
    Take(&preparer, &prepared);
  }
  EXPECT_TRUE(preparer.Finish().ok());
  Take(&preparer, &prepared);
  return prepared;
}

Prepared Whole(const std::string& text, const TextPreparerOptions& options) {
  Prepared prepared;
  const PreparedText all = PrepareText(text, options);
  prepared.spoken = all.spoken;
  prepared.map.Append(all.map);
  return prepared;
}

// Pieces are contiguous and cover both texts; copied characters are the same but for their case.
void CheckMap(const std::string& text, const Prepared& prepared) {
  size_t spoken = 0;
  size_t source = 0;
  for (const TextMapPiece& piece : prepared.map.pieces()) {
    EXPECT_EQ(piece.spoken_begin, spoken);
    EXPECT_EQ(piece.source_begin, source);
    EXPECT_LE(piece.spoken_begin, piece.spoken_end);
    EXPECT_LE(piece.source_begin, piece.source_end);
    if (piece.copied) {
      EXPECT_EQ(piece.spoken_end - piece.spoken_begin, piece.source_end - piece.source_begin);
    }
    spoken = piece.spoken_end;
    source = piece.source_end;
  }
  EXPECT_EQ(spoken, CountUtf8(prepared.spoken));
  EXPECT_EQ(source, CountUtf8(RepairUtf8(text)));
}

void CheckCuts(const std::string& text, const TextPreparerOptions& options, std::mt19937* rng) {
  const Prepared whole = Whole(text, options);
  CheckMap(text, whole);
  for (const size_t most : {size_t{1}, size_t{3}, size_t{17}}) {
    const Prepared pieces = InPieces(text, options, rng, most);
    EXPECT_EQ(pieces.spoken, whole.spoken) << text;
    EXPECT_EQ(pieces.map.pieces(), whole.map.pieces()) << text;
  }
}

TEST(TextPreparerTest, RowsAreSpokenAsWritten) {
  ASSERT_GE(Rows().size(), 400U);
  for (const Row& row : Rows()) {
    EXPECT_EQ(PrepareText(row.written, OptionsFor(row.language)).spoken, row.spoken)
        << row.language << ": " << row.written;
  }
}

TEST(TextPreparerTest, RowsAreEqualHoweverCut) {
  std::mt19937 rng(1);
  for (const Row& row : Rows()) CheckCuts(row.written, OptionsFor(row.language), &rng);
}

// All rows as one text, in every language: rules meet text that they are not made for.
TEST(TextPreparerTest, LongTextsAreEqualHoweverCut) {
  std::mt19937 rng(2);
  std::vector<Row> rows = Rows();
  for (const char* language : {"", "en", "de", "fr", "es", "it", "pt", "ru", "zh", "ja", "ko", "en-GB"}) {
    std::shuffle(rows.begin(), rows.end(), rng);
    std::string text;
    for (size_t i = 0; i < 100; ++i) text += rows[i].written + (i % 3 == 0 ? "\n" : " ");
    CheckCuts(text, OptionsFor(language), &rng);
  }
}

TEST(TextPreparerTest, EachStepIsEqualHoweverCut) {
  std::mt19937 rng(3);
  const TextSteps steps[] = {{true, false, false, false},
                             {false, true, false, false},
                             {false, false, true, false},
                             {false, false, false, true}};
  for (const TextSteps& step : steps) {
    for (size_t i = 0; i < Rows().size(); i += 3)
      CheckCuts(Rows()[i].written, OptionsFor(Rows()[i].language, step), &rng);
  }
}

TEST(TextPreparerTest, RandomTextsAreEqualHoweverCut) {
  std::mt19937 rng(4);
  static constexpr const char* kLanguages[] = {"", "en", "de", "fr", "ru", "zh", "ko"};
  static const std::string kBits[] = {"1",
                                      "2",
                                      "12",
                                      "2024",
                                      "-",
                                      ".",
                                      ",",
                                      "/",
                                      ":",
                                      " ",
                                      " ",
                                      " ",
                                      "$",
                                      "%",
                                      "(",
                                      ")",
                                      "+",
                                      "IV",
                                      "VIII",
                                      "Henry ",
                                      "e.g.",
                                      "No. ",
                                      "km/h",
                                      "<b>",
                                      "&amp;",
                                      "\xE2\x80\x94",
                                      "\"",
                                      "*",
                                      "@",
                                      "example.com",
                                      "https://",
                                      "A",
                                      "NASA",
                                      "PLEASE ",
                                      "'",
                                      "s",
                                      "\xF0\x9F\x98\x82",
                                      "\n",
                                      "\n\n",
                                      "\x1B[0m",
                                      "[1]",
                                      "x",
                                      "March ",
                                      " Uhr",
                                      " EUR ",
                                      " US$",
                                      " www.",
                                      " https://",
                                      " Dr. ",
                                      " e.g. ",
                                      " p. ",
                                      "\xC2\xA0",
                                      "\xE5\xB9\xB4"};
  std::uniform_int_distribution<size_t> pick(0, std::size(kBits) - 1);
  std::uniform_int_distribution<size_t> length(1, 40);
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (size_t left = length(rng); left > 0; --left) text += kBits[pick(rng)];
    if (round % 8 == 0) text += RandomBytes(&rng, 40);
    TextPreparerOptions options = OptionsFor(kLanguages[static_cast<size_t>(round) % std::size(kLanguages)]);
    if (round % 2 == 0) options.emoji = Emoji::kNames;
    CheckCuts(text, options, &rng);
  }
}

// Runs that never end are decided bit by bit: little is held back, and nothing is looked at again and again.
TEST(TextPreparerTest, EndlessRunsAreDecided) {
  for (const std::string run :
       {"-", "=", "a", "A", "1", " ", ".", "(", "\xF0\x9F\x98\x82", "1.", "a.", "I", "https://", "+1", "&"}) {
    TextPreparer preparer(OptionsFor("en"));
    std::string text;
    while (text.size() < 20000) text += run;
    for (size_t at = 0; at < text.size(); at += 100) {
      ASSERT_TRUE(preparer.Append(std::string_view(text).substr(at, 100)).ok());
    }
    ASSERT_TRUE(preparer.Append("end").ok());
    Prepared prepared;
    Take(&preparer, &prepared);
    constexpr size_t kMostHeld = 6000;
    // Silent runs stand in the map with the next word.
    const size_t length = CountUtf8(text) + 3;
    const size_t decided = prepared.map.pieces().empty() ? length : prepared.map.pieces().back().source_end;
    EXPECT_GT(decided + kMostHeld, length) << run;
    EXPECT_TRUE(preparer.Finish().ok());
    Take(&preparer, &prepared);
    EXPECT_EQ(prepared.map.pieces().back().source_end, length) << run;
  }
}

TEST(TextPreparerTest, WordsAreDecidedWhenTheNextOneBegins) {
  TextPreparer preparer(OptionsFor("en"));
  ASSERT_TRUE(preparer.Append("The quick brown").ok());
  std::string spoken = preparer.Take().spoken;
  EXPECT_EQ(spoken, "The quick ") << "the last word may become an address of mail";
  ASSERT_TRUE(preparer.Append(" fox is 5").ok());
  spoken += preparer.Take().spoken;
  EXPECT_EQ(spoken, "The quick brown fox is") << "more digits may follow";
  ASSERT_TRUE(preparer.Append(" years").ok());
  spoken += preparer.Take().spoken;
  ASSERT_TRUE(preparer.Append(" old").ok());
  spoken += preparer.Take().spoken;
  EXPECT_EQ(spoken.substr(0, 33), "The quick brown fox is five years");
  ASSERT_TRUE(preparer.Finish().ok());
  EXPECT_EQ(spoken + preparer.Take().spoken, "The quick brown fox is five years old");
}

// The space before the word that has begun is decided, too: the tokenizer needs it to be sure of the word before it.
TEST(TextPreparerTest, MarksAreDecidedWhenTheNextWordBegins) {
  for (const char* const text : {"Hello, my", "Hello! My", "Hello - my", "\"Hello,\" my"}) {
    TextPreparer preparer(OptionsFor("en"));
    ASSERT_TRUE(preparer.Append(text).ok());
    const std::string spoken = preparer.Take().spoken;
    EXPECT_TRUE(spoken.starts_with("Hello")) << text;
    EXPECT_TRUE(spoken.ends_with(" ")) << text;
  }
}

// An address of which nothing is left takes no space with it.
TEST(TextPreparerTest, AnAddressWithoutAHostIsEqualHoweverCut) {
  std::mt19937 rng(5);
  for (const char* const text :
       {"see http://?x", "see http:///", "see http://# there", "see http://:80 there", "www. is"}) {
    CheckCuts(text, OptionsFor("en"), &rng);
  }
}

TEST(TextPreparerTest, NothingIsChangedWithoutSteps) {
  const std::string text = "  5 \xE2\x80\x94 \"NASA\"\n\n50% \xF0\x9F\x98\x82 ";
  const TextPreparerOptions none = OptionsFor("en", {});
  EXPECT_TRUE(TextPreparer(none).passes_through());
  EXPECT_FALSE(TextPreparer(OptionsFor("en")).passes_through());
  const PreparedText prepared = PrepareText(text, none);
  EXPECT_EQ(prepared.spoken, text);
  ASSERT_EQ(prepared.map.size(), 1U);
  EXPECT_EQ(prepared.map[0], (TextMapPiece{0, CountUtf8(text), 0, CountUtf8(text), true}));
  EXPECT_EQ(PrepareText("a\xFF\xE2\x82", none).spoken, "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(PrepareText("", none).spoken, "");
}

TEST(TextPreparerTest, TextAfterItsEndIsRefused) {
  TextPreparer preparer(OptionsFor("en"));
  ASSERT_TRUE(preparer.Append("5").ok());
  ASSERT_TRUE(preparer.Finish().ok());
  ASSERT_TRUE(preparer.Finish().ok());
  EXPECT_EQ(preparer.Append("6").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(preparer.Take().spoken, "five");
}

TEST(TextMapTest, PositionsGoBothWays) {
  TextMap map;
  //            0123456789
  const PreparedText prepared = PrepareText("It is $5 (now) ok", OptionsFor("en"));
  EXPECT_EQ(prepared.spoken, "It is five dollars, now, ok");
  map.Append(prepared.map);
  const auto source_of = [&](std::string_view word) {
    const size_t at = prepared.spoken.find(word);
    return map.SourceOf(at, at + word.size());
  };
  EXPECT_EQ(source_of("It"), std::make_pair(size_t{0}, size_t{2}));
  EXPECT_EQ(source_of("five"), std::make_pair(size_t{6}, size_t{8})) << "all of what the word is a part of";
  EXPECT_EQ(source_of("dollars"), std::make_pair(size_t{6}, size_t{8}));
  EXPECT_EQ(source_of("five dollars, now"), std::make_pair(size_t{6}, size_t{13}));
  EXPECT_EQ(source_of("now"), std::make_pair(size_t{10}, size_t{13}));
  EXPECT_EQ(source_of("ok"), std::make_pair(size_t{15}, size_t{17}));
  EXPECT_EQ(map.SourceOf(27, 29), std::make_pair(size_t{17}, size_t{19})) << "beyond the map positions are counted on";
  EXPECT_EQ(map.SpokenOf(0), 0U);
  EXPECT_EQ(map.SpokenOf(7), 6U);
  EXPECT_EQ(map.SpokenOf(10), prepared.spoken.find("now"));
  EXPECT_EQ(map.SpokenOf(16), prepared.spoken.size() - 1);
  EXPECT_EQ(map.SpokenOf(17), prepared.spoken.size());
  EXPECT_EQ(TextMap().SourceOf(3, 5), std::make_pair(size_t{3}, size_t{5}));
}

TEST(TextPreparerTest, LettersDecideTheLanguageIfNoneIsNamed) {
  EXPECT_EQ(PrepareText("It is 5.", OptionsFor("")).spoken, "It is five.");
  EXPECT_EQ(PrepareText("Это 5.", OptionsFor("")).spoken, "Это пять.");
  EXPECT_EQ(PrepareText("这是5个", OptionsFor("")).spoken, "这是五个");
  EXPECT_EQ(PrepareText("これは5です", OptionsFor("")).spoken, "これは五です");
  EXPECT_EQ(PrepareText("5 км", OptionsFor("")).spoken, "пять километров");
}

TEST(TextPreparerTest, LanguagesWithoutRulesKeepTheirNumbers) {
  EXPECT_EQ(PrepareText("Het is 5 km.", OptionsFor("nl")).spoken, "Het is 5 km.");
  EXPECT_EQ(PrepareText("5", OptionsFor("sichuan_dialect")).spoken, "5");
}

TEST(TextPreparerTest, PreparationLanguage) {
  EXPECT_EQ(PreparationLanguage("en-GB", {"english", "german"}), "en-GB");
  EXPECT_EQ(PreparationLanguage("", {"english"}), "english");
  EXPECT_EQ(PreparationLanguage("auto", {"english"}), "english");
  EXPECT_EQ(PreparationLanguage("auto", {"english", "german"}), "");
}

TEST(TextPreparerTest, ChooseSteps) {
  const TextDescription released;
  TextDescription bundled;
  bundled.steps = kAllSteps;
  EXPECT_FALSE(ChooseSteps(released, Normalize::kModel).any());
  EXPECT_EQ(ChooseSteps(released, Normalize::kSpoken), (TextSteps{true, true, true, false}));
  EXPECT_EQ(ChooseSteps(bundled, Normalize::kModel), kAllSteps);
  EXPECT_FALSE(ChooseSteps(bundled, Normalize::kNone).any());
}

TEST(TextPreparerTest, ExplainsEachStep) {
  const auto explained = ExplainPreparation("PAY  $5 (NOW)", OptionsFor("en"));
  ASSERT_EQ(explained.size(), 4U);
  EXPECT_EQ(explained[0], std::make_pair(std::string("characters"), std::string("PAY $5 (NOW)")));
  EXPECT_EQ(explained[1], std::make_pair(std::string("numbers"), std::string("PAY five dollars (NOW)")));
  EXPECT_EQ(explained[2], std::make_pair(std::string("symbols"), std::string("PAY five dollars, NOW")));
  EXPECT_EQ(explained[3], std::make_pair(std::string("capitals"), std::string("Pay five dollars, now")));
}

TEST(TextPreparerTest, EmojiHaveNamesOnRequest) {
  TextPreparerOptions options = OptionsFor("en");
  EXPECT_EQ(PrepareText("I love it 😂😂 so 👍🏽!", options).spoken, "I love it so!");
  options.emoji = Emoji::kNames;
  EXPECT_EQ(PrepareText("I love it 😂😂 so 👍🏽!", options).spoken,
            "I love it, face with tears of joy, so, thumbs up!");
  EXPECT_EQ(PrepareText("🇩🇪 won", options).spoken, "flag of Germany, won");
  options.language = "de";
  EXPECT_EQ(PrepareText("Toll 😂!", options).spoken, "Toll!");
}

// Several utterances are prepared at once, in all languages.
TEST(TextPreparerTest, ThreadsShareTables) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (size_t at = static_cast<size_t>(i); at < Rows().size(); at += 4) {
        const Row& row = Rows()[at];
        EXPECT_EQ(PrepareText(row.written, OptionsFor(row.language)).spoken, row.spoken);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace qtts
