// SPDX-License-Identifier: LGPL-2.1-or-later
#include "prompt/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "golden/vocabulary/released_vocabulary.h"
#include "qtts/sampling_numbers.h"
#include "text/text_feed.h"

namespace qtts {

void PrintTo(const PromptRow& row, std::ostream* out) {
  *out << "{" << row.text_id << " [";
  for (const int32_t code : row.codes) *out << code << " ";
  *out << "]" << (row.x_vector ? " x}" : "}");
}

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Ids = std::vector<int32_t>;
using Rows = std::vector<PromptRow>;

// The released ids (spec 1.3, 2).
constexpr int32_t kStart = 151644;
constexpr int32_t kEnd = 151645;
constexpr int32_t kAssistant = 77091;
constexpr int32_t kUser = 872;
constexpr int32_t kNewline = 198;
constexpr int32_t kPad = 151671;
constexpr int32_t kBos = 151672;
constexpr int32_t kEos = 151673;
constexpr int32_t kCodecPad = 2148;
constexpr int32_t kCodecBos = 2149;
constexpr int32_t kThink = 2154;
constexpr int32_t kNoThink = 2155;
constexpr int32_t kThinkBos = 2156;
constexpr int32_t kThinkEos = 2157;
constexpr int32_t kEnglish = 2050;

// "Hello, world."
constexpr int32_t kHello = 9707;
constexpr int32_t kComma = 11;
constexpr int32_t kWorld = 1879;
constexpr int32_t kDot = 13;
constexpr char kText[] = "Hello, world.";

std::shared_ptr<const Tokenizer> Released() {
  static const auto tokenizer = *Tokenizer::Create(ReleasedVocabulary());
  return tokenizer;
}

// As in the released configs, with vectors and codes small enough to write down.
ModelConfig Config(ModelType type, std::string size = "1b7") {
  ModelConfig config;
  config.type = type;
  config.size = std::move(size);
  config.im_start_token_id = kStart;
  config.im_end_token_id = kEnd;
  config.tts_pad_token_id = kPad;
  config.tts_bos_token_id = kBos;
  config.tts_eos_token_id = kEos;
  TalkerConfig& talker = config.talker;
  talker.transformer.hidden_size = 3;
  talker.transformer.max_positions = 300;
  talker.vocab_size = 3072;
  talker.text_vocab_size = 151936;
  talker.num_code_groups = 2;
  talker.codec_pad_id = kCodecPad;
  talker.codec_bos_id = kCodecBos;
  talker.codec_eos_id = 2150;
  talker.codec_think_id = kThink;
  talker.codec_nothink_id = kNoThink;
  talker.codec_think_bos_id = kThinkBos;
  talker.codec_think_eos_id = kThinkEos;
  talker.languages = {{"chinese", 2055}, {"english", kEnglish}, {"german", 2053}};
  if (type == ModelType::kCustomVoice) {
    talker.languages["beijing_dialect"] = 2074;
    talker.languages["sichuan_dialect"] = 2062;
    talker.speakers = {{"ryan", 3061}, {"eric", 2875}, {"vivian", 3065}};
    talker.dialects = {{"eric", "sichuan_dialect"}};
  }
  config.predictor.vocab_size = 2048;
  config.codec.codebook_size = 2048;
  return config;
}

PromptBuilder Builder(const ModelConfig& config) {
  auto builder = PromptBuilder::Create(config, Released());
  EXPECT_TRUE(builder.ok()) << builder.status().message();
  return *std::move(builder);
}

Ids TextIds(std::string_view text, bool finish = true) {
  TextFeed feed(Released());
  EXPECT_TRUE(feed.Append(text).ok());
  if (finish) {
    EXPECT_TRUE(feed.Finish().ok());
  }
  return feed.TakeIds();
}

Prompt Build(const ModelConfig& config, const Request& request, std::string_view text = kText) {
  auto prompt = Builder(config).Build(request, TextIds(text), true);
  if (prompt.ok()) return *prompt;
  ADD_FAILURE() << prompt.status().message();
  return {};
}

PromptRow Text(int32_t id) { return {id, {}, false}; }
PromptRow Both(int32_t id, Ids codes) { return {id, std::move(codes), false}; }
PromptRow Vector() { return {kPad, {}, true}; }

std::shared_ptr<ClonedVoice> Voice() {
  auto voice = std::make_shared<ClonedVoice>();
  voice->x_vector = {0.5F, -1.0F, 2.0F};
  return voice;
}

// With `frames` frames of codes (1, 1001), (2, 1002), … and the reference text "Hello, world.".
std::shared_ptr<ClonedVoice> IclVoice(int32_t frames) {
  auto voice = Voice();
  for (int32_t f = 1; f <= frames; ++f) {
    voice->reference_codes.push_back(f);
    voice->reference_codes.push_back(1000 + f);
  }
  voice->reference_text = kText;
  return voice;
}

std::vector<std::string> Warnings(const ModelConfig& config, const Request& request) {
  auto warnings = Builder(config).Validate(request);
  EXPECT_TRUE(warnings.ok()) << warnings.status().message();
  return warnings.ok() ? *std::move(warnings) : std::vector<std::string>();
}

void ExpectInvalid(const ModelConfig& config, const Request& request, const ::testing::Matcher<std::string>& message) {
  const PromptBuilder builder = Builder(config);
  const Status statuses[] = {builder.Validate(request).status(), builder.TextIdsNeeded(request).status(),
                             builder.Build(request, TextIds(kText), true).status()};
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), message);
  }
}

TEST(PromptCustomVoice, NonStreamingIsTheDefault) {
  Request request;
  request.speaker = "Ryan";
  request.language = "English";
  const Prompt prompt = Build(Config(ModelType::kCustomVoice), request);
  EXPECT_EQ(prompt.rows, (Rows{
                             Text(kStart),
                             Text(kAssistant),
                             Text(kNewline),
                             Both(kPad, {kThink}),
                             Both(kPad, {kThinkBos}),
                             Both(kPad, {kEnglish}),
                             Both(kPad, {kThinkEos}),
                             Both(kPad, {3061}),
                             Both(kBos, {kCodecPad}),
                             Both(kHello, {kCodecPad}),
                             Both(kComma, {kCodecPad}),
                             Both(kWorld, {kCodecPad}),
                             Both(kDot, {kCodecPad}),
                             Both(kEos, {kCodecPad}),
                             Both(kPad, {kCodecBos}),
                         }));
  EXPECT_EQ(prompt.constant_rows, 9U);
  EXPECT_THAT(prompt.trailing_text, IsEmpty());
  EXPECT_TRUE(prompt.text_complete);
  EXPECT_EQ(prompt.pad_text_id, kPad);
  EXPECT_THAT(prompt.x_vector, IsEmpty());
  EXPECT_THAT(prompt.reference_codes, IsEmpty());
  EXPECT_THAT(Warnings(Config(ModelType::kCustomVoice), request), IsEmpty());
}

TEST(PromptCustomVoice, Streaming) {
  Request request;
  request.speaker = "ryan";
  request.layout = PromptLayout::kStreaming;
  const Prompt prompt = Build(Config(ModelType::kCustomVoice), request);
  EXPECT_EQ(prompt.rows, (Rows{
                             Text(kStart),
                             Text(kAssistant),
                             Text(kNewline),
                             Both(kPad, {kNoThink}),
                             Both(kPad, {kThinkBos}),
                             Both(kPad, {kThinkEos}),
                             Both(kPad, {3061}),
                             Both(kBos, {kCodecPad}),
                             Both(kHello, {kCodecBos}),
                         }));
  EXPECT_EQ(prompt.constant_rows, 8U);
  EXPECT_EQ(prompt.trailing_text, (Ids{kComma, kWorld, kDot, kEos}));
}

TEST(PromptCustomVoice, Instruct) {
  Request request;
  request.speaker = "ryan";
  request.instruct = "Hello, world.<|im_end|>";
  request.layout = PromptLayout::kStreaming;
  const Prompt prompt = Build(Config(ModelType::kCustomVoice), request, "Hello");
  EXPECT_EQ(prompt.rows, (Rows{
                             Text(kStart),
                             Text(kUser),
                             Text(kNewline),
                             Text(kHello),
                             Text(kComma),
                             Text(kWorld),
                             Text(15757),  // ".<", since a user's control tokens are spelled out
                             Text(91),
                             Text(318),
                             Text(6213),
                             Text(91),
                             Text(29),
                             Text(kEnd),
                             Text(kNewline),
                             Text(kStart),
                             Text(kAssistant),
                             Text(kNewline),
                             Both(kPad, {kNoThink}),
                             Both(kPad, {kThinkBos}),
                             Both(kPad, {kThinkEos}),
                             Both(kPad, {3061}),
                             Both(kBos, {kCodecPad}),
                             Both(kHello, {kCodecBos}),
                         }));
  EXPECT_EQ(prompt.constant_rows, 22U);
  EXPECT_EQ(prompt.trailing_text, (Ids{kEos}));
  EXPECT_THAT(Warnings(Config(ModelType::kCustomVoice), request), IsEmpty());
}

TEST(PromptCustomVoice, TheSmallModelIgnoresTheInstructionAndSaysSo) {
  Request request;
  request.speaker = "ryan";
  const ModelConfig config = Config(ModelType::kCustomVoice, "0b6");
  const Prompt plain = Build(config, request);
  EXPECT_THAT(Warnings(config, request), IsEmpty());
  request.instruct = "Speak softly.";
  EXPECT_EQ(Build(config, request).rows, plain.rows);
  EXPECT_THAT(Warnings(config, request), ElementsAre(AllOf(HasSubstr("instruction was ignored"), HasSubstr("0b6"))));
}

TEST(PromptCustomVoice, DialectsComeThroughTheSpeaker) {
  const ModelConfig config = Config(ModelType::kCustomVoice);
  const auto language_row = [&](std::string speaker, std::string language) {
    Request request;
    request.speaker = std::move(speaker);
    request.language = std::move(language);
    return Build(config, request).rows.at(5);
  };
  EXPECT_EQ(language_row("Eric", "CHINESE"), Both(kPad, {2062}));
  EXPECT_EQ(language_row("eric", "auto"), Both(kPad, {2062}));
  EXPECT_EQ(language_row("eric", ""), Both(kPad, {2062}));
  EXPECT_EQ(language_row("eric", "english"), Both(kPad, {kEnglish}));
  EXPECT_EQ(language_row("ryan", "chinese"), Both(kPad, {2055}));
  EXPECT_EQ(language_row("ryan", "auto"), Both(kPad, {kThinkEos}));
}

TEST(PromptCustomVoice, NoSpeakerIsTheDescribedOneOrTheFirst) {
  Request request;
  const Prompt prompt = Build(Config(ModelType::kCustomVoice), request);
  Request named;
  named.speaker = "eric";
  EXPECT_EQ(prompt.rows, Build(Config(ModelType::kCustomVoice), named).rows);

  ModelConfig config = Config(ModelType::kCustomVoice);
  config.description.default_speaker = "vivian";
  named.speaker = "vivian";
  EXPECT_EQ(Build(config, request).rows, Build(config, named).rows);
  config.description.default_speaker.clear();
  config.talker.speakers.clear();
  config.talker.dialects.clear();
  EXPECT_EQ(Build(config, request).rows.at(6), Both(kBos, {kCodecPad}));  // as the official code for ""
}

TEST(PromptVoiceDesign, HasNoSpeakerSlot) {
  Request request;
  request.language = "german";
  request.instruct = "Hello";
  const Prompt prompt = Build(Config(ModelType::kVoiceDesign), request, "Hello");
  EXPECT_EQ(prompt.rows, (Rows{
                             Text(kStart),
                             Text(kUser),
                             Text(kNewline),
                             Text(kHello),
                             Text(kEnd),
                             Text(kNewline),
                             Text(kStart),
                             Text(kAssistant),
                             Text(kNewline),
                             Both(kPad, {kThink}),
                             Both(kPad, {kThinkBos}),
                             Both(kPad, {2053}),
                             Both(kPad, {kThinkEos}),
                             Both(kBos, {kCodecPad}),
                             Both(kHello, {kCodecPad}),
                             Both(kEos, {kCodecPad}),
                             Both(kPad, {kCodecBos}),
                         }));
  EXPECT_EQ(prompt.constant_rows, 14U);
}

TEST(PromptVoiceDesign, EmptyInstructIsNone) {
  Request request;
  const Prompt prompt = Build(Config(ModelType::kVoiceDesign), request, "Hello");
  EXPECT_EQ(prompt.rows.size(), 10U);
  EXPECT_EQ(prompt.constant_rows, 7U);
  EXPECT_THAT(Warnings(Config(ModelType::kVoiceDesign), request), IsEmpty());
}

// The take's text and codes in front of the text, as in cloning, and its description; no speaker's row.
TEST(PromptVoiceDesign, APinnedTakeIsAnExampleWithItsDescription) {
  const auto pinned = IclVoice(2);
  pinned->x_vector.clear();
  pinned->instruct = "Hello";
  Request request;
  request.voice = pinned;
  const Prompt prompt = Build(Config(ModelType::kVoiceDesign), request, "world");
  Request cloned;
  cloned.voice = IclVoice(2);
  cloned.layout = PromptLayout::kNonStreaming;
  const Prompt as_cloned = Build(Config(ModelType::kBase), cloned, "world");
  Rows expected = {Text(kStart), Text(kUser), Text(kNewline), Text(kHello), Text(kEnd), Text(kNewline)};
  for (const PromptRow& row : as_cloned.rows) {
    if (!row.x_vector) expected.push_back(row);
  }
  EXPECT_EQ(prompt.rows, expected);
  EXPECT_TRUE(prompt.x_vector.empty());
  EXPECT_EQ(prompt.reference_codes, as_cloned.reference_codes);
  EXPECT_EQ(prompt.constant_rows, as_cloned.constant_rows + 5);
  EXPECT_THAT(Warnings(Config(ModelType::kVoiceDesign), request), IsEmpty());
  // Another instruction takes the description's place.
  request.instruct = kText;
  EXPECT_EQ(Build(Config(ModelType::kVoiceDesign), request, "world").rows.at(4), Text(kComma));
  ExpectInvalid(Config(ModelType::kBase), request,
                AllOf(HasSubstr("a designed voice needs a voice_design checkpoint"), HasSubstr("a base checkpoint")));
  pinned->reference_text.clear();
  ExpectInvalid(Config(ModelType::kVoiceDesign), request, HasSubstr("no reference text"));
}

TEST(PromptBase, AdvisesTheWholeTextLayout) {
  Request request;
  request.voice = Voice();
  EXPECT_THAT(Warnings(Config(ModelType::kBase), request), ElementsAre(HasSubstr("17 %")));
  for (const PromptLayout layout : {PromptLayout::kStreaming, PromptLayout::kNonStreaming}) {
    request.layout = layout;
    EXPECT_THAT(Warnings(Config(ModelType::kBase), request), IsEmpty()) << "it was chosen";
  }
  request.layout = PromptLayout::kDefault;
  request.more_text = true;
  EXPECT_THAT(Warnings(Config(ModelType::kBase), request), IsEmpty()) << "growing text has no other layout";
}

TEST(PromptBase, XVectorStreamsByDefault) {
  Request request;
  request.voice = Voice();
  request.language = "english";
  const Prompt prompt = Build(Config(ModelType::kBase), request);
  EXPECT_EQ(prompt.rows, (Rows{
                             Text(kStart),
                             Text(kAssistant),
                             Text(kNewline),
                             Both(kPad, {kThink}),
                             Both(kPad, {kThinkBos}),
                             Both(kPad, {kEnglish}),
                             Both(kPad, {kThinkEos}),
                             Vector(),
                             Both(kBos, {kCodecPad}),
                             Both(kHello, {kCodecBos}),
                         }));
  EXPECT_EQ(prompt.constant_rows, 9U);
  EXPECT_EQ(prompt.trailing_text, (Ids{kComma, kWorld, kDot, kEos}));
  EXPECT_EQ(prompt.x_vector, (std::vector<float>{0.5F, -1.0F, 2.0F}));
  EXPECT_THAT(prompt.reference_codes, IsEmpty());
}

TEST(PromptBase, XVectorNonStreaming) {
  Request request;
  request.voice = Voice();
  request.layout = PromptLayout::kNonStreaming;
  const Prompt prompt = Build(Config(ModelType::kBase), request, "Hello");
  EXPECT_EQ(prompt.rows, (Rows{
                             Text(kStart),
                             Text(kAssistant),
                             Text(kNewline),
                             Both(kPad, {kNoThink}),
                             Both(kPad, {kThinkBos}),
                             Both(kPad, {kThinkEos}),
                             Vector(),
                             Both(kBos, {kCodecPad}),
                             Both(kHello, {kCodecPad}),
                             Both(kEos, {kCodecPad}),
                             Both(kPad, {kCodecBos}),
                         }));
  EXPECT_EQ(prompt.constant_rows, 8U);
  EXPECT_THAT(prompt.trailing_text, IsEmpty());
}

TEST(PromptBase, AnInstructionIsIgnoredAndSaysSo) {
  Request request;
  request.voice = Voice();
  request.instruct = "Speak softly.";
  const Prompt prompt = Build(Config(ModelType::kBase), request);
  EXPECT_EQ(prompt.rows.front(), Text(kStart));
  EXPECT_EQ(prompt.rows[1], Text(kAssistant));
  EXPECT_THAT(Warnings(Config(ModelType::kBase), request),
              ElementsAre(HasSubstr("17 %"), HasSubstr("a base checkpoint")));
  request.more_text = true;
  EXPECT_THAT(Warnings(Config(ModelType::kBase), request), ElementsAre(HasSubstr("a base checkpoint")))
      << "known before the text is";
}

Rows IclHead() {
  return {
      Text(kStart),
      Text(kAssistant),
      Text(kNewline),
      Both(kPad, {kNoThink}),
      Both(kPad, {kThinkBos}),
      Both(kPad, {kThinkEos}),
      Vector(),
      Both(kBos, {kCodecPad}),
  };
}

Rows Append(Rows rows, const Rows& more) {
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

TEST(PromptIcl, StreamingWithMoreTextThanCodes) {
  Request request;
  request.voice = IclVoice(4);
  const Prompt prompt = Build(Config(ModelType::kBase), request, "Hello, Hello");
  EXPECT_EQ(prompt.rows, Append(IclHead(), {
                                               Both(kHello, {kCodecBos}),
                                               Both(kComma, {1, 1001}),
                                               Both(kWorld, {2, 1002}),
                                               Both(kDot, {3, 1003}),
                                               Both(kHello, {4, 1004}),
                                           }));
  EXPECT_EQ(prompt.constant_rows, 12U);
  EXPECT_EQ(prompt.trailing_text, (Ids{kComma, 21927, kEos}));
  EXPECT_EQ(prompt.reference_codes, (Ids{1, 1001, 2, 1002, 3, 1003, 4, 1004}));
  EXPECT_EQ(prompt.x_vector.size(), 3U);
}

TEST(PromptIcl, StreamingWithMoreReferenceTextThanCodes) {
  Request request;
  request.voice = IclVoice(1);
  const Prompt prompt = Build(Config(ModelType::kBase), request, "Hello");
  EXPECT_EQ(prompt.rows, Append(IclHead(), {
                                               Both(kHello, {kCodecBos}),
                                               Both(kComma, {1, 1001}),
                                           }));
  EXPECT_EQ(prompt.constant_rows, 10U);
  EXPECT_EQ(prompt.trailing_text, (Ids{kWorld, kDot, kHello, kEos}));
}

TEST(PromptIcl, StreamingWithAsMuchTextAsCodes) {
  Request request;
  request.voice = IclVoice(5);  // 6 rows: 4 of the reference's text, 1 of text, the end
  const Prompt prompt = Build(Config(ModelType::kBase), request, "Hello");
  EXPECT_EQ(prompt.rows.back(), Both(kEos, {5, 1005}));
  EXPECT_EQ(prompt.rows.size(), 14U);
  EXPECT_THAT(prompt.trailing_text, IsEmpty());
}

TEST(PromptIcl, StreamingWithMoreCodesThanText) {
  Request request;
  request.voice = IclVoice(7);
  const Prompt prompt = Build(Config(ModelType::kBase), request, "Hello");
  EXPECT_EQ(prompt.rows, Append(IclHead(), {
                                               Both(kHello, {kCodecBos}),
                                               Both(kComma, {1, 1001}),
                                               Both(kWorld, {2, 1002}),
                                               Both(kDot, {3, 1003}),
                                               Both(kHello, {4, 1004}),
                                               Both(kEos, {5, 1005}),
                                               Both(kPad, {6, 1006}),
                                               Both(kPad, {7, 1007}),
                                           }));
  EXPECT_EQ(prompt.constant_rows, 12U);
  EXPECT_THAT(prompt.trailing_text, IsEmpty());
}

TEST(PromptIcl, NonStreaming) {
  Request request;
  request.voice = IclVoice(2);
  request.layout = PromptLayout::kNonStreaming;
  const Prompt prompt = Build(Config(ModelType::kBase), request, "Hello");
  EXPECT_EQ(prompt.rows, Append(IclHead(), {
                                               Both(kHello, {kCodecPad}),
                                               Both(kComma, {kCodecPad}),
                                               Both(kWorld, {kCodecPad}),
                                               Both(kDot, {kCodecPad}),
                                               Both(kHello, {kCodecPad}),
                                               Both(kEos, {kCodecPad}),
                                               Both(kPad, {kCodecBos}),
                                               Both(kPad, {1, 1001}),
                                               Both(kPad, {2, 1002}),
                                           }));
  EXPECT_EQ(prompt.constant_rows, 12U);
  EXPECT_THAT(prompt.trailing_text, IsEmpty());
  EXPECT_EQ(prompt.reference_codes, (Ids{1, 1001, 2, 1002}));
}

// Spec 13: with language and speaker, 5 ids of text, 6 of reference text, 38 frames.
TEST(Prompt, LengthsOfTheSpec) {
  Request request;
  request.language = "english";
  request.voice = Voice();
  const std::string five = "Hello, world. Hello";
  ASSERT_EQ(TextIds(five).size(), 7U);
  const ModelConfig config = Config(ModelType::kBase);
  EXPECT_EQ(Build(config, request, five).rows.size(), 10U);
  request.layout = PromptLayout::kNonStreaming;
  EXPECT_EQ(Build(config, request, five).rows.size(), 16U);
  auto voice = IclVoice(38);
  voice->reference_text = "Hello, world, Hello,";
  ASSERT_EQ(TextIds(voice->reference_text).size(), 8U);
  request.voice = voice;
  EXPECT_EQ(Build(config, request, five).rows.size(), 60U);
  request.layout = PromptLayout::kStreaming;
  EXPECT_EQ(Build(config, request, five).rows.size(), 48U);
}

// The official code cuts off the first three ids, whatever they are. Newlines at the start of the text become one token
// with the newline of the role.
TEST(Prompt, NewlinesInFrontOfTheTextAreTheRoles) {
  Request request;
  request.speaker = "ryan";
  request.layout = PromptLayout::kStreaming;
  const ModelConfig config = Config(ModelType::kCustomVoice);
  const Prompt prompt = Build(config, request, "\nHello");
  EXPECT_EQ(prompt.rows[1], Text(kAssistant));
  EXPECT_EQ(prompt.rows[2], Text(271));  // two newlines
  EXPECT_EQ(prompt.rows.back(), Both(kHello, {kCodecBos}));
  EXPECT_EQ(prompt.constant_rows, 2U);
  EXPECT_EQ(prompt.trailing_text, (Ids{kEos}));
}

TEST(Prompt, ConstantRowsDoNotDependOnTheText) {
  Request request;
  for (const ModelType type : {ModelType::kCustomVoice, ModelType::kVoiceDesign, ModelType::kBase}) {
    for (const PromptLayout layout : {PromptLayout::kStreaming, PromptLayout::kNonStreaming}) {
      for (const int32_t frames : {0, 1, 3, 4, 5, 9}) {
        request.layout = layout;
        request.instruct = "Speak softly.";
        request.voice = nullptr;
        if (type == ModelType::kBase) request.voice = frames > 0 ? IclVoice(frames) : Voice();
        const Prompt a = Build(Config(type), request, "A");
        const Prompt b = Build(Config(type), request, "Something quite different, and longer.");
        ASSERT_EQ(a.constant_rows, b.constant_rows);
        ASSERT_LE(a.constant_rows, a.rows.size());
        for (size_t i = 0; i < a.constant_rows; ++i) EXPECT_EQ(a.rows[i], b.rows[i]);
        // The next row does so too, unless the reference's text fills the prompt.
        if (a.constant_rows < a.rows.size()) {
          EXPECT_NE(a.rows[a.constant_rows], b.rows[a.constant_rows]);
        }
      }
    }
  }
}

// Rows and queue together are the same for any amount of text that has come before the prompt is built.
TEST(Prompt, OpenTextComesToTheSameAsTheWhole) {
  const std::string text = "Hello, world. Hello, world. Hello, world.";
  const Ids ids = TextIds(text);
  for (const int32_t frames : {0, 1, 3, 4, 6, 9}) {
    Request request;
    request.more_text = true;
    request.voice = frames > 0 ? IclVoice(frames) : Voice();
    const PromptBuilder builder = Builder(Config(ModelType::kBase));
    const auto whole = builder.Build(request, ids, true);
    ASSERT_TRUE(whole.ok());
    const auto needed = builder.TextIdsNeeded(request);
    ASSERT_TRUE(needed.ok());
    EXPECT_EQ(*needed, 2U + static_cast<size_t>(frames > 3 ? frames - 3 : 1));
    for (size_t count = *needed; count <= ids.size(); ++count) {
      const auto open = builder.Build(request, std::span(ids).first(count), false);
      ASSERT_TRUE(open.ok()) << open.status().message();
      EXPECT_FALSE(open->text_complete);
      EXPECT_EQ(open->rows, whole->rows);
      EXPECT_EQ(open->constant_rows, whole->constant_rows);
      Ids queue = open->trailing_text;
      queue.insert(queue.end(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end());
      queue.push_back(builder.eos_text_id());
      EXPECT_EQ(queue, whole->trailing_text);
    }
    const auto early = builder.Build(request, std::span(ids).first(*needed - 1), false);
    EXPECT_EQ(early.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(early.status().message(), HasSubstr("needs " + std::to_string(*needed) + " text ids"));
  }
}

TEST(PromptErrors, UnknownNamesListTheKnown) {
  Request request;
  request.speaker = "Nobody\xFF";
  ExpectInvalid(Config(ModelType::kCustomVoice), request,
                AllOf(HasSubstr("\"Nobody\uFFFD\""), HasSubstr("eric, ryan, vivian")));
  request.speaker = "ryan";
  request.language = "Klingon";
  ExpectInvalid(Config(ModelType::kCustomVoice), request,
                AllOf(HasSubstr("\"Klingon\""), HasSubstr("auto, chinese, english, german")));
  request.language = "beijing_dialect";  // only through a speaker
  ExpectInvalid(Config(ModelType::kCustomVoice), request, HasSubstr("unknown language"));
}

TEST(PromptTest, LanguagesByTag) {
  const ModelConfig config = Config(ModelType::kCustomVoice);
  for (const auto& [tag, name] : {std::pair{"de-AT", "german"}, {"EN", "english"}, {"und", "auto"}}) {
    Request request;
    request.speaker = "ryan";
    request.language = tag;
    const Prompt by_tag = Build(config, request, "Hello.");
    request.language = name;
    EXPECT_EQ(by_tag.rows, Build(config, request, "Hello.").rows) << tag;
  }
  Request request;
  request.language = "fr";  // this model has no French
  ExpectInvalid(config, request, HasSubstr("unknown language \"fr\""));
}

TEST(PromptErrors, VoicesOfOtherTypesOfCheckpoint) {
  Request request;
  ExpectInvalid(Config(ModelType::kBase), request,
                AllOf(HasSubstr("cloned voice only"), HasSubstr("Qwen3-TTS-12Hz-0.6B-CustomVoice")));
  request.voice = Voice();
  ExpectInvalid(Config(ModelType::kCustomVoice), request,
                AllOf(HasSubstr("needs a base checkpoint, such as Qwen3-TTS-12Hz-0.6B-Base"),
                      HasSubstr("a custom_voice checkpoint")));
  ExpectInvalid(Config(ModelType::kVoiceDesign), request,
                AllOf(HasSubstr("needs a base checkpoint"), HasSubstr("a voice_design checkpoint")));
  request.speaker = "ryan";
  ExpectInvalid(Config(ModelType::kBase), request,
                AllOf(HasSubstr("\"ryan\""), HasSubstr("a base checkpoint"), HasSubstr("custom_voice")));
}

// Before a voice file is read, it may hold either kind.
TEST(PromptErrors, KindsOfVoicesByCheckpoint) {
  const struct {
    ModelType type;
    VoiceKind kind;
    bool usable;
  } cases[] = {
      {ModelType::kBase, VoiceKind::kNone, false},
      {ModelType::kBase, VoiceKind::kCloned, true},
      {ModelType::kBase, VoiceKind::kDesigned, false},
      {ModelType::kBase, VoiceKind::kFile, true},
      {ModelType::kVoiceDesign, VoiceKind::kNone, true},
      {ModelType::kVoiceDesign, VoiceKind::kCloned, false},
      {ModelType::kVoiceDesign, VoiceKind::kDesigned, true},
      {ModelType::kVoiceDesign, VoiceKind::kFile, true},
      {ModelType::kCustomVoice, VoiceKind::kNone, true},
      {ModelType::kCustomVoice, VoiceKind::kCloned, false},
      {ModelType::kCustomVoice, VoiceKind::kDesigned, false},
      {ModelType::kCustomVoice, VoiceKind::kFile, false},
  };
  for (const auto& choice : cases) {
    EXPECT_EQ(CheckVoiceChoice(choice.type, {}, "", choice.kind).ok(), choice.usable)
        << ModelTypeName(choice.type) << static_cast<int>(choice.kind);
  }
}

TEST(PromptErrors, ClonedVoices) {
  const ModelConfig config = Config(ModelType::kBase);
  const auto expect = [&](const std::shared_ptr<ClonedVoice>& voice, const ::testing::Matcher<std::string>& message) {
    Request request;
    request.voice = voice;
    ExpectInvalid(config, request, message);
  };
  auto voice = Voice();
  voice->x_vector.push_back(0);
  expect(voice, AllOf(HasSubstr("4 values"), HasSubstr("have 3")));
  voice = Voice();
  voice->x_vector[1] = std::nanf("");
  expect(voice, HasSubstr("no finite numbers"));
  voice = IclVoice(2);
  voice->reference_codes.pop_back();
  expect(voice, AllOf(HasSubstr("3 reference codes"), HasSubstr("2 of a frame")));
  voice = IclVoice(2);
  voice->reference_codes[3] = 2048;
  expect(voice, AllOf(HasSubstr("2048"), HasSubstr("frame 1, group 1"), HasSubstr("0 to 2047")));
  voice = IclVoice(2);
  voice->reference_codes[0] = -1;
  expect(voice, AllOf(HasSubstr("-1"), HasSubstr("frame 0, group 0")));
  voice = IclVoice(2);
  voice->reference_text.clear();
  expect(voice, HasSubstr("no reference text"));
  voice = IclVoice(2);
  voice->reference_text.assign(70000, 'a');
  Request request;
  request.voice = voice;
  EXPECT_EQ(Builder(config).Validate(request).status().code(), StatusCode::kResourceExhausted);
}

TEST(PromptErrors, EachGroupHasItsOwnRange) {
  ModelConfig config = Config(ModelType::kBase);
  config.predictor.vocab_size = 1002;
  config.talker.vocab_size = 2200;
  Request request;
  request.voice = IclVoice(1);
  EXPECT_TRUE(Builder(config).Validate(request).ok());
  request.voice = IclVoice(2);
  ExpectInvalid(config, request, AllOf(HasSubstr("1002"), HasSubstr("frame 1, group 1"), HasSubstr("0 to 1001")));
}

TEST(PromptErrors, Settings) {
  const ModelConfig config = Config(ModelType::kCustomVoice);
  const auto expect = [&](auto change, const ::testing::Matcher<std::string>& message) {
    Request request;
    change(&request.settings);
    ExpectInvalid(config, request, message);
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0F, -1.0F, kNan, kInfinity}) {
    expect([&](GenerationSettings* s) { s->talker.temperature = value; }, StartsWith("temperature is"));
    expect([&](GenerationSettings* s) { s->predictor.temperature = value; }, StartsWith("subtalker-temperature is"));
    expect([&](GenerationSettings* s) { s->repetition_penalty = value; }, HasSubstr("repetition-penalty is"));
  }
  for (const float value : {0.0F, -0.5F, 1.5F, kNan}) {
    expect([&](GenerationSettings* s) { s->talker.top_p = value; }, StartsWith("top-p is"));
    expect([&](GenerationSettings* s) { s->predictor.top_p = value; }, StartsWith("subtalker-top-p is"));
  }
  expect([](GenerationSettings* s) { s->talker.top_k = -1; }, StartsWith("top-k is -1, expected 0 or more"));
  expect([](GenerationSettings* s) { s->predictor.top_k = -1; }, StartsWith("subtalker-top-k is -1"));
  for (const SamplingNumber& number : kSamplingNumbers) {
    const auto message = StartsWith(std::string(number.name) + " is -2, expected " + number.Range());
    expect([&](GenerationSettings* s) { number.Set(-2, s); }, message);
  }
  expect([](GenerationSettings* s) { s->max_new_tokens = 1; }, HasSubstr("max_new_tokens is 1"));
  Request request;
  request.settings.max_new_tokens = 2;
  request.settings.talker.top_k = 0;
  EXPECT_TRUE(Builder(config).Validate(request).ok());
}

TEST(PromptErrors, OpenTextInTheNonStreamingLayout) {
  Request request;
  request.more_text = true;
  ExpectInvalid(Config(ModelType::kCustomVoice), request, HasSubstr("streaming prompt layout"));
  request.layout = PromptLayout::kStreaming;
  EXPECT_TRUE(Builder(Config(ModelType::kCustomVoice)).Validate(request).ok());
  request.more_text = false;
  request.layout = PromptLayout::kNonStreaming;
  const auto prompt = Builder(Config(ModelType::kCustomVoice)).Build(request, TextIds(kText), false);
  EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(prompt.status().message(), HasSubstr("whole text"));
}

TEST(PromptErrors, NoText) {
  Request request;
  for (const PromptLayout layout : {PromptLayout::kStreaming, PromptLayout::kNonStreaming}) {
    request.layout = layout;
    for (const char* text : {"", "\n", "\n\n"}) {
      const auto prompt = Builder(Config(ModelType::kCustomVoice)).Build(request, TextIds(text), true);
      EXPECT_EQ(prompt.status().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(prompt.status().message(), HasSubstr("no text"));
    }
    EXPECT_FALSE(Builder(Config(ModelType::kCustomVoice)).Build(request, {}, true).ok());
  }
}

TEST(PromptErrors, APromptLongerThanTheModel) {
  Request request;
  std::string text;
  for (int i = 0; i < 400; ++i) text += " word";
  const auto prompt = Builder(Config(ModelType::kCustomVoice)).Build(request, TextIds(text), true);
  EXPECT_EQ(prompt.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(prompt.status().message(), HasSubstr("of the model's 300"));
}

TEST(PromptErrors, TokenizersThatDoNotBelongToTheConfig) {
  const auto expect = [](const ModelConfig& config, const std::shared_ptr<const Tokenizer>& tokenizer, StatusCode code,
                         const ::testing::Matcher<std::string>& message) {
    const auto builder = PromptBuilder::Create(config, tokenizer);
    ASSERT_FALSE(builder.ok());
    EXPECT_EQ(builder.status().code(), code);
    EXPECT_THAT(builder.status().message(), message);
  };
  ModelConfig config = Config(ModelType::kBase);
  config.talker.text_vocab_size = 151675;
  expect(config, Released(), StatusCode::kCorruptModel, AllOf(HasSubstr("151675"), HasSubstr("text_vocab_size")));
  config = Config(ModelType::kBase);
  config.im_start_token_id = kEnd;
  expect(config, Released(), StatusCode::kCorruptModel, AllOf(HasSubstr("im_start_token_id"), HasSubstr("151645")));
  config = Config(ModelType::kBase);
  config.im_end_token_id = kStart;
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("im_end_token_id"));
  config = Config(ModelType::kBase);
  config.tts_pad_token_id = 5;  // an ordinary piece, which text could spell
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("tts_pad_token_id"));
  config = Config(ModelType::kBase);
  config.tts_bos_token_id = 151700;
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("tts_bos_token_id"));
  config = Config(ModelType::kBase);
  config.tts_eos_token_id = -1;
  expect(config, Released(), StatusCode::kCorruptModel, HasSubstr("tts_eos_token_id"));

  const auto letters = Tokenizer::Create(MakeVocabulary("", {"<|im_start|>", "<|im_end|>", "<p>", "<b>", "<e>"}));
  ASSERT_TRUE(letters.ok());
  config = Config(ModelType::kBase);
  config.im_start_token_id = 256;
  config.im_end_token_id = 257;
  config.tts_pad_token_id = 258;
  config.tts_bos_token_id = 259;
  config.tts_eos_token_id = 260;
  expect(config, *letters, StatusCode::kUnsupported, HasSubstr("\"assistant\""));
}

TEST(PromptErrors, ADialectWithoutAnId) {
  ModelConfig config = Config(ModelType::kCustomVoice);
  config.talker.languages.erase("sichuan_dialect");
  Request request;
  request.speaker = "eric";
  const Status status = Builder(config).Validate(request).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"eric\""), HasSubstr("\"sichuan_dialect\"")));
}

}  // namespace
}  // namespace qtts
