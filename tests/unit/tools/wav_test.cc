// SPDX-License-Identifier: LGPL-2.1-or-later
#include "tools/wav.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "unit/checkpoint/support.h"

namespace qtts {
namespace {

using qtts::testing::ReadFile;
using qtts::testing::TempFolder;
using qtts::testing::WriteFile;

std::string Int(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string Chunk(const std::string& name, const std::string& content) {
  return name + Int(content.size(), 4) + content + (content.size() % 2 == 1 ? std::string(1, '\0') : "");
}

std::string Layout(int format, int channels, int rate, int bits) {
  return Int(static_cast<uint64_t>(format), 2) + Int(static_cast<uint64_t>(channels), 2) +
         Int(static_cast<uint64_t>(rate), 4) + Int(0, 6) + Int(static_cast<uint64_t>(bits), 2);
}

std::string Wav(const std::string& layout, const std::string& data) {
  const std::string body = "WAVE" + Chunk("LIST", "odd") + Chunk("fmt ", layout) + Chunk("data", data);
  return "RIFF" + Int(body.size(), 4) + body;
}

class WavTest : public ::testing::Test {
 protected:
  Result<Recording> Read(const std::string& content) {
    WriteFile(path_, content);
    return ReadWav(path_);
  }

  TempFolder folder_;
  std::string path_ = folder_ / "file.wav";
};

TEST_F(WavTest, EverySampleFormat) {
  const struct {
    int format;
    int bits;
    std::string half;        // +0.5
    std::string minus_full;  // -1
  } formats[] = {{1, 8, Int(0xC0, 1), Int(0, 1)},
                 {1, 16, Int(0x4000, 2), Int(0x8000, 2)},
                 {1, 24, Int(0x400000, 3), Int(0x800000, 3)},
                 {1, 32, Int(0x40000000, 4), Int(0x80000000, 4)},
                 {3, 32, Int(std::bit_cast<uint32_t>(0.5F), 4), Int(std::bit_cast<uint32_t>(-1.0F), 4)},
                 {3, 64, Int(std::bit_cast<uint64_t>(0.5), 8), Int(std::bit_cast<uint64_t>(-1.0), 8)}};
  for (const auto& format : formats) {
    const auto recording =
        Read(Wav(Layout(format.format, 2, 44100, format.bits), format.half + format.minus_full + format.half));
    ASSERT_TRUE(recording.ok()) << recording.status().message();
    EXPECT_EQ(recording->channels, 2);
    EXPECT_EQ(recording->sample_rate, 44100);
    // The second frame is incomplete.
    EXPECT_EQ(recording->samples, (std::vector<float>{0.5F, -1.0F})) << format.bits << " bits";
  }
}

TEST_F(WavTest, ExtensibleAndUnknownLength) {
  const std::string extensible =
      Layout(0xFFFE, 1, 48000, 16) + Int(22, 2) + Int(16, 2) + Int(4, 4) + Int(1, 2) + std::string(14, '\7');
  std::string content = Wav(extensible, Int(0x4000, 2));
  const auto recording = Read(content);
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ(recording->samples, std::vector<float>{0.5F});
  // As written to a pipe.
  content.replace(content.size() - 6, 4, Int(0xFFFFFFFF, 4));
  const auto piped = Read(content);
  ASSERT_TRUE(piped.ok());
  EXPECT_EQ(piped->samples, std::vector<float>{0.5F});
}

TEST_F(WavTest, WhatIsWrittenIsRead) {
  const std::vector<float> samples = {0.25F, -0.5F, 0.999F};
  ASSERT_TRUE(WriteWav(path_, samples, 24000, WavFormat::kF32).ok());
  const auto recording = ReadWav(path_);
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ(recording->samples, samples);
}

TEST_F(WavTest, RefusesOtherFiles) {
  EXPECT_EQ(ReadWav(folder_ / "missing.wav").status().code(), StatusCode::kNotFound);
  const std::string data = Int(0, 8);
  for (const std::string& content :
       {std::string("ID3 is an MP3 file, and so on"), std::string("RIFF"), Wav(Layout(2, 1, 24000, 4), data),
        Wav(Layout(1, 0, 24000, 16), data), Wav(Layout(1, 1, 24000, 12), data), Wav("short", data),
        Wav(Layout(1, 1, 24000, 16), data).substr(0, 50)}) {
    const Status status = Read(content).status();
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << content;
    EXPECT_NE(status.message().find("convert it"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace qtts
