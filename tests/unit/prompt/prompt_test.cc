// SPDX-License-Identifier: LGPL-2.1-or-later
#include "prompt/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "prompt_fixture.h"

namespace qtts {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
// Check: 59
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

}  // namespace
}  // namespace qtts
