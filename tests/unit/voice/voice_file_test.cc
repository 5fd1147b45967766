// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "qtts/voice.h"
#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

using qtts::testing::ReadFile;
using qtts::testing::TempFolder;
using qtts::testing::WriteFile;

ClonedVoice Voice() {
  ClonedVoice voice;
  for (int i = 0; i < 48; ++i) voice.x_vector.push_back(static_cast<float>(i) / 7);
  for (int i = 0; i < 320; ++i) voice.reference_codes.push_back(i * 37 % 2048);
  voice.reference_text = "Was gesagt wird: \"Grüße\", 你好.\n";
  voice.model = "0123456789abcdef";
  return voice;
}

TEST(VoiceFileTest, ComesBackAsItWas) {
  const TempFolder folder;
  const std::string path = folder / "voice.safetensors";
  ClonedVoice voice = Voice();
  for (const bool icl : {true, false}) {
    if (!icl) {
      voice.reference_codes.clear();
      voice.reference_text.clear();
    }
    ASSERT_TRUE(SaveVoice(voice, path).ok());
    const auto loaded = LoadVoice(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ(loaded->x_vector, voice.x_vector);
    EXPECT_EQ(loaded->reference_codes, voice.reference_codes);
    EXPECT_EQ(loaded->reference_text, voice.reference_text);
    EXPECT_EQ(loaded->model, voice.model);
  }
}

// Check: 63
TEST(VoiceFileTest, KeepsItsLoudness) {
  const TempFolder folder;
  const std::string path = folder / "voice.safetensors";
  ClonedVoice voice = Voice();
  ASSERT_TRUE(SaveVoice(voice, path).ok());
  const std::string before = ReadFile(path);
  EXPECT_EQ(LoadVoice(path)->loudness, std::nullopt) << "a file of earlier versions";
  EXPECT_EQ(before.find("loudness"), std::string::npos);
  for (const double loudness : {-70.0, -23.25, -0.01, 0.0, 10.0}) {
    voice.loudness = loudness;
    ASSERT_TRUE(SaveVoice(voice, path).ok());
    EXPECT_EQ(LoadVoice(path)->loudness, loudness);
  }
  const std::string good = ReadFile(path);
  for (const char* wrong : {"10.01", "-99.5", "1e400", "-nan ", "loud ", "10,00", " 10.0"}) {
    std::string file = good;
    file.replace(file.find("10.00"), 5, wrong);
    WriteFile(path, file);
    EXPECT_EQ(LoadVoice(path).status().code(), StatusCode::kCorruptModel) << wrong;
  }
}

// A file without them has the bytes that it had before there were any.
// Check: 61
TEST(VoiceFileTest, DescriptionAndStyleAreKeptWhereThereAreAny) {
  const TempFolder folder;
  const std::string path = folder / "voice.safetensors";
  ASSERT_TRUE(SaveVoice(Voice(), path).ok());
  const std::string plain = ReadFile(path);
  for (const char* key : {"instruct", "style", "takes"}) EXPECT_EQ(plain.find(key), std::string::npos) << key;
  ClonedVoice designed = Voice();
  designed.x_vector.clear();
  designed.instruct = "Ein ruhiger alter Mann, \u00FCber siebzig.";
  designed.style = "calm";
  ASSERT_TRUE(SaveVoice(designed, path).ok());
  const auto loaded = LoadVoice(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_TRUE(loaded->designed());
  EXPECT_EQ(loaded->instruct, designed.instruct);
  EXPECT_EQ(loaded->style, "calm");
  EXPECT_FALSE(LoadVoice(path)->reference_codes.empty());
}

// Check: 61
TEST(VoiceFileTest, SeveralTakesComeBack) {
  const TempFolder folder;
  const std::string path = folder / "voice.safetensors";
  std::vector<ClonedVoice> takes(3, Voice());
  takes[1].reference_codes.clear();
  takes[1].reference_text.clear();
  takes[2].x_vector[0] = 5;
  takes[2].reference_text = "Laut!";
  const char* styles[] = {"calm", "excited", "loud"};
  for (size_t i = 0; i < takes.size(); ++i) takes[i].style = styles[i];
  ASSERT_TRUE(SaveTakes(takes, path).ok());
  const auto loaded = LoadTakes(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  ASSERT_EQ(loaded->size(), 3U);
  for (size_t i = 0; i < takes.size(); ++i) {
    EXPECT_EQ((*loaded)[i].style, takes[i].style);
    EXPECT_EQ((*loaded)[i].x_vector, takes[i].x_vector);
    EXPECT_EQ((*loaded)[i].reference_codes, takes[i].reference_codes);
    EXPECT_EQ((*loaded)[i].reference_text, takes[i].reference_text);
    EXPECT_EQ((*loaded)[i].model, takes[i].model);
  }
  EXPECT_EQ(LoadVoice(path, "LOUD")->x_vector[0], 5);
  EXPECT_EQ(LoadVoice(path)->style, "calm");
  EXPECT_EQ(LoadVoice(path, "shy").status().code(), StatusCode::kInvalidArgument);
  takes[2].style = "calm";
  EXPECT_EQ(SaveTakes(takes, path).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(LoadTakes(path)->size(), 3U) << "a refused file is not written";
  const std::string good = ReadFile(path);
  for (const char* count : {"0", "4", "9", "x"}) {
    std::string wrong = good;
    const std::string entry = "\"takes\":\"3\"";
    const size_t at = wrong.find(entry);
    ASSERT_NE(at, std::string::npos);
    std::string changed = entry;
    changed.replace(changed.size() - 2, 1, count);
    wrong.replace(at, entry.size(), changed);
    WriteFile(path, wrong);
    EXPECT_EQ(LoadTakes(path).status().code(), StatusCode::kCorruptModel) << count;
  }
}

TEST(VoiceFileTest, RepairsTextThatIsNoUtf8) {
  const TempFolder folder;
  const std::string path = folder / "voice.safetensors";
  ClonedVoice voice = Voice();
  voice.reference_text = "a\xFF";
  voice.model = "\xC3";
  ASSERT_TRUE(SaveVoice(voice, path).ok());
  const auto loaded = LoadVoice(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->reference_text, "a\uFFFD");
  EXPECT_EQ(loaded->model, "\uFFFD");
}

TEST(VoiceFileTest, RefusesWhatIsNoVoice) {
  const TempFolder folder;
  const std::string path = folder / "voice.safetensors";
  EXPECT_EQ(LoadVoice(path).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(SaveVoice(Voice(), folder / "missing/voice").ok());
  ASSERT_TRUE(SaveVoice(Voice(), path).ok());
  const std::string good = ReadFile(path);
  const auto refused = [&](const std::string& content) {
    WriteFile(path, content);
    const Status status = LoadVoice(path).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
    EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
    return status.message();
  };
  for (size_t length = 0; length < good.size(); length += 13) refused(good.substr(0, length));
  refused("RIFF....WAVEfmt and so on, which is no voice but a recording");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string content = good;
    const size_t at = content.find(from);
    EXPECT_NE(at, std::string::npos);
    return content.replace(at, from.size(), to);
  };
  EXPECT_NE(refused(changed("qttssrc-voice-1", "qttssrc-voice-9")).find("qtts-tool voice make"), std::string::npos);
  EXPECT_NE(refused(changed("x_vector", "y_vector")).find("x_vector"), std::string::npos);
  EXPECT_NE(refused(changed("I32", "F32")).find("reference_codes"), std::string::npos);
  EXPECT_NE(refused(changed("[48]", "[47]")).find(path), std::string::npos);
}

}  // namespace
}  // namespace qtts
