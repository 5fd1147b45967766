// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-tool align and qtts-tool voice: what is measured, made and prepared of voices.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tool_fixture.h"

namespace qtts {
namespace {

// The head of the bundled voice is found without looking at its description, and written into that of a copy.
TEST(ToolTest, AlignFindsTheHead) {
  const TemporaryFolder folder;
  const std::string copy = folder.File("voice");
  std::filesystem::copy(kVoice, copy, std::filesystem::copy_options::recursive);
  std::ofstream(copy + "/qttssrc.json") << R"({"default_speaker": "grace", "alignment": false})";
  EXPECT_EQ(RunTool({"align", copy}).exit_status, 0);
  EXPECT_NE(ReadBytes(copy + "/qttssrc.json").find("false"), std::string::npos) << "nothing is written without --write";
  const Outcome outcome = RunTool({"align", copy, "--write", "--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json found = Json::parse(outcome.out);
  EXPECT_EQ(found["alignment"]["layer"], 1);
  EXPECT_EQ(found["alignment"]["head"], 0);
  EXPECT_NEAR(found["alignment"]["offset_ms"].get<double>(), 80, 50);
  EXPECT_EQ(found["heads"].size(), 28U);
  EXPECT_TRUE(found["used_so_far"].is_null());
  const Json description = Json::parse(ReadBytes(copy + "/qttssrc.json"));
  EXPECT_EQ(description["alignment"], found["alignment"]);
  EXPECT_EQ(description["default_speaker"], "grace");
}

// The bundled voice keeps the numbers that the tool measures; another processor may speak a little differently.
// Check: 63
TEST(ToolTest, LoudnessOfTheBundledVoice) {
  const TemporaryFolder folder;
  const std::string copy = folder.File("voice");
  std::filesystem::copy(kVoice, copy, std::filesystem::copy_options::recursive);
  const Json kept = Json::parse(ReadBytes(copy + "/qttssrc.json"));
  std::ofstream(copy + "/qttssrc.json") << R"({"default_speaker": "grace"})";
  const Outcome outcome = RunTool({"loudness", copy, "--write", "--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json measured = Json::parse(outcome.out)["loudness"];
  ASSERT_EQ(measured.size(), 5U);
  for (const auto& [speaker, loudness] : measured.items()) {
    EXPECT_NEAR(loudness.get<double>(), kept["loudness"][speaker].get<double>(), 0.5) << speaker;
  }
  const Json description = Json::parse(ReadBytes(copy + "/qttssrc.json"));
  EXPECT_EQ(description["loudness"], measured);
  EXPECT_EQ(description["default_speaker"], "grace");
  const Outcome none = RunTool({"loudness"});
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_NE(none.err.find("name a model folder"), std::string::npos) << none.err;
}

TEST(ToolTest, AlignTimesAFinishedUtterance) {
  const TemporaryFolder folder;
  const std::string text = "Hello there, this is it.";
  const std::string json = folder.File("a.json");
  const std::string codes = folder.File("a.codes");
  ASSERT_EQ(RunTool({"speak", kVoice, text, "-o", folder.File("a.wav"), "--words", json, "--normalize", "none",
                     "--seed", "4"})
                .exit_status,
            0);
  std::ofstream(codes) << RunTool({"codes", kVoice, "--text", text, "--seed", "4"}).out;
  const Outcome outcome = RunTool({"align", kVoice, "--text", text, "--codes", codes, "--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json aligned = Json::parse(outcome.out);
  const Json spoken = Json::parse(ReadBytes(json));
  ASSERT_EQ(aligned["words"].size(), spoken["words"].size());
  for (size_t i = 0; i < spoken["words"].size(); ++i) {
    EXPECT_NEAR(aligned["words"][i]["start"].get<double>(), spoken["words"][i]["start"].get<double>(), 0.02) << i;
  }
  EXPECT_EQ(RunTool({"align", kVoice, "--codes", codes}).exit_status, 2) << "without the text";
  EXPECT_EQ(RunTool({"align", kVoice, "--text", text, "--codes", codes, "--write"}).exit_status, 2);
  EXPECT_EQ(RunTool({"align", kVoice, "--words", json}).exit_status, 2) << "without an utterance";
}

TEST(ToolTest, AVoiceFromARecordingToSpeech) {
  const TemporaryFolder folder;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  const std::string voice = folder.File("voice.safetensors");
  const std::string audio = kReferences + "/speech-48000-stereo.wav";
  const Outcome made = RunTool(
      {"voice", "make", base, "--audio", audio, "--reference-text", "So it goes.", "--output", voice, "--json"});
  ASSERT_EQ(made.exit_status, 0) << made.err;
  const Json json = Json::parse(made.out);
  EXPECT_EQ(json["mode"], "icl");
  EXPECT_EQ(json["x_vector"], 48);
  EXPECT_EQ(json["reference_codes"], 14 * 16);
  EXPECT_EQ(json["reference_text"], "So it goes.");
  ASSERT_TRUE(json["loudness"].is_number()) << made.out;
  EXPECT_NE(RunTool({"voice", "show", voice}).out.find(" LUFS"), std::string::npos);
  EXPECT_EQ(RunTool({"voice", "show", voice, "--json"}).out, made.out);
  EXPECT_NE(RunTool({"voice", "show", voice}).out.find("in-context"), std::string::npos);

  const Outcome codes = RunTool({"codes", base, "--text", "Hi.", "--voice", voice, "--greedy", "--max-frames", "4"});
  EXPECT_EQ(codes.exit_status, 0) << codes.err;
  EXPECT_EQ(std::count(codes.out.begin(), codes.out.end(), '\n'), 4);
  const Outcome prompt = RunTool({"prompt", base, "--text", "Hi.", "--voice", voice});
  EXPECT_NE(prompt.out.find("x-vector"), std::string::npos) << prompt.out;

  // Half a second more of the reference.
  const Outcome padded = RunTool({"voice", "make", base, "--audio", audio, "--reference-text", "So it goes.",
                                  "--pad-reference", "--output", voice, "--json"});
  EXPECT_EQ(Json::parse(padded.out)["reference_codes"], 20 * 16);
  const Outcome timbre = RunTool({"voice", "make", base, "--audio", audio, "--output", voice});
  EXPECT_NE(timbre.out.find("timbre only"), std::string::npos) << timbre.out;
  EXPECT_EQ(RunTool({"codes", base, "--text", "Hi.", "--voice", voice, "--max-frames", "2"}).exit_status, 0);

  // Another model of the same sizes.
  const std::string other = folder.File("other");
  MakeBase(other, 4);
  for (const char* command : {"codes", "prompt"}) {
    const Outcome refused = RunTool({command, other, "--text", "Hi.", "--voice", voice});
    EXPECT_EQ(refused.exit_status, 1);
    EXPECT_NE(refused.err.find("another model"), std::string::npos) << refused.err;
  }
  const Outcome custom = RunTool({"codes", kVoice, "--text", "Hi.", "--voice", voice});
  EXPECT_NE(custom.err.find("Qwen3-TTS-12Hz-0.6B-Base"), std::string::npos) << custom.err;
  EXPECT_NE(RunTool({"inspect", base}).out.find("cloning     yes"), std::string::npos);
  EXPECT_NE(RunTool({"inspect", kVoice}).out.find("cloning     no"), std::string::npos);
}

TEST(ToolTest, BadReferencesSayWhatToDo) {
  const TemporaryFolder folder;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  const std::string voice = folder.File("voice.safetensors");
  const auto make = [&](const std::string& model, const std::string& audio) {
    return RunTool({"voice", "make", model, "--audio", audio, "--output", voice});
  };
  const std::string wav = folder.File("reference.wav");
  const struct {
    int rate;
    int channels;
    double seconds;
    bool tone;
    const char* part;  // of the error; empty: the voice is made
  } sounds[] = {{24000, 1, 3, false, "silent"},
                {24000, 1, 0.2, true, "0.2 s long"},
                {8000, 1, 600, true, "600 s long"},
                {96000, 2, 2, true, ""}};
  for (const auto& sound : sounds) {
    SCOPED_TRACE(sound.part);
    WriteSound(wav, sound.rate, sound.channels, sound.seconds, sound.tone);
    const Outcome outcome = make(base, wav);
    EXPECT_EQ(outcome.exit_status, *sound.part == '\0' ? 0 : 1) << outcome.err;
    EXPECT_NE(outcome.err.find(sound.part), std::string::npos) << outcome.err;
  }
  EXPECT_NE(make(base, kVoice + "/config.json").err.find("convert it"), std::string::npos);
  EXPECT_NE(make(base, "/nonexistent.wav").err.find("no such file"), std::string::npos);
  EXPECT_NE(make(kVoice, wav).err.find("needs a base checkpoint"), std::string::npos);
  EXPECT_EQ(RunTool({"voice", "show", wav}).exit_status, 1);
}

// A VoiceDesign checkpoint that ends its utterances.
void MakeDesign(const std::string& folder, int seed) {
  const Outcome outcome = RunProgram(
      QTTS_GENERATOR, {"--preset", "tiny-design-1b7", "--seed", std::to_string(seed), "--eos-logit", "4", folder});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
}

// Check: 59
TEST(ToolTest, ADesignedVoiceIsPinnedByItsTake) {
  const TemporaryFolder folder;
  const std::string design = folder.File("design");
  MakeDesign(design, 13);
  const std::string voice = folder.File("calm.voice");
  const std::vector<std::string> make = {"voice",       "design", design, "A calm old man.", "--text",
                                         "So it goes.", "--seed", "3",    "--json"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTool(arguments);
  };
  const Outcome made = with(make, {"-o", voice, "--wav", folder.File("calm.wav")});
  ASSERT_EQ(made.exit_status, 0) << made.err;
  const Json json = Json::parse(made.out);
  EXPECT_EQ(json["mode"], "designed");
  EXPECT_EQ(json["x_vector"], 0);
  EXPECT_EQ(json["instruct"], "A calm old man.");
  EXPECT_EQ(json["reference_text"], "So it goes.");
  // The take is what the model says with that description and seed.
  const Outcome take =
      RunTool({"codes", design, "--text", "So it goes.", "--instruct", "A calm old man.", "--seed", "3"});
  const auto frames = std::count(take.out.begin(), take.out.end(), '\n');
  EXPECT_GT(frames, 0);
  EXPECT_EQ(json["reference_codes"], 16 * frames);
  EXPECT_GT(std::filesystem::file_size(folder.File("calm.wav")), 44U);
  EXPECT_NE(RunTool({"voice", "show", voice}).out.find("description A calm old man."), std::string::npos);

  // Description and take stand in front; there is no speaker's row.
  const Outcome prompt = RunTool({"prompt", design, "--text", "Hi.", "--voice", voice, "--json"});
  ASSERT_EQ(prompt.exit_status, 0) << prompt.err;
  size_t of_take = 0;
  const Json document = Json::parse(prompt.out);
  for (const Json& row : document["rows"]) {
    EXPECT_FALSE(row["x_vector"]);
    of_take += row["codes"].size() == 16 ? 1 : 0;
  }
  EXPECT_EQ(of_take, static_cast<size_t>(frames));
  const std::vector<std::string> speak = {"codes", design,   "--text", "Hi there.",    "--voice",
                                          voice,   "--seed", "1",      "--max-frames", "6"};
  const Outcome spoken = with(speak, {});
  ASSERT_EQ(spoken.exit_status, 0) << spoken.err;
  EXPECT_EQ(with(speak, {"--subtalker-temperature", "0.5"}).out, spoken.out) << "the temperature of designed voices";
  EXPECT_NE(with(speak, {"--subtalker-temperature", "5"}).out, spoken.out);
  EXPECT_NE(with(speak, {"--instruct", "A shrill voice."}).out, spoken.out);

  // Several takes to choose among, each with the next seed.
  const Outcome several = with(make, {"--takes", "2", "-o", folder.File("many.voice")});
  ASSERT_EQ(several.exit_status, 0) << several.err;
  const Outcome first = RunTool({"voice", "show", folder.File("many.1.voice"), "--json"});
  EXPECT_EQ(Json::parse(first.out)["reference_codes"], json["reference_codes"]);
  EXPECT_EQ(RunTool({"voice", "show", folder.File("many.2.voice")}).exit_status, 0);

  const std::string other = folder.File("other");
  MakeDesign(other, 14);
  const Outcome foreign = RunTool({"codes", other, "--text", "Hi.", "--voice", voice});
  EXPECT_NE(foreign.err.find("another model"), std::string::npos) << foreign.err;
  EXPECT_NE(foreign.err.find("design it again"), std::string::npos) << foreign.err;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  const Outcome no_design = RunTool({"codes", base, "--text", "Hi.", "--voice", voice});
  EXPECT_NE(no_design.err.find("a designed voice needs a voice_design checkpoint"), std::string::npos) << no_design.err;

  const struct {
    std::vector<std::string> arguments;
    const char* part;
    int exit_status = 1;
  } refused[] = {
      {{"voice", "design", base, "A man.", "-o", voice}, "needs a voice_design checkpoint"},
      {{"voice", "design", design, "A man.", "-o", voice, "--text", "..."}, "nothing to say"},
      {{"voice", "design", design, "A man.", "-o", voice, "--max-frames", "1"}, "did not come to its end"},
      {{"voice", "design", design, "A man.", "-o", voice, "--takes", "0"}, "must be 1 to 64", 2},
      {{"voice", "design", design, "A man.", "--add-to", voice}, "--add-to needs --style", 2},
      {{"voice", "design", design, "A man.", "--add-to", voice, "--style", "calm", "--takes", "2"}, "adds one take", 2},
  };
  for (const auto& [arguments, part, exit_status] : refused) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, exit_status) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

// Writes a voice of the recording with a style into a file, or into a file that is there.
Outcome MakeStyle(const std::string& base, const std::string& audio, const char* style, const char* option,
                  const std::string& file) {
  return RunTool({"voice", "make", base, "--audio", kReferences + audio, "--style", style, option, file, "--json"});
}

// Check: 61
TEST(ToolTest, TakesOfAVoiceAreChosenByStyle) {
  const TemporaryFolder folder;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  const std::string voice = folder.File("me.voice");
  const Outcome first = MakeStyle(base, "/speech-24000.wav", "Calm", "--output", voice);
  ASSERT_EQ(first.exit_status, 0);
  EXPECT_TRUE(Json::parse(first.out)["loudness"].is_number()) << "its speech is measured: " << first.err;
  EXPECT_EQ(first.err.find("warning: voice make"), std::string::npos) << first.err;
  const Outcome added = MakeStyle(base, "/speech-8000.wav", "excited", "--add-to", voice);
  ASSERT_EQ(added.exit_status, 0) << added.err;
  const Json takes = Json::parse(added.out)["takes"];
  ASSERT_EQ(takes.size(), 2U);
  EXPECT_EQ(takes[0]["style"], "calm");
  EXPECT_EQ(takes[1]["style"], "excited");
  const auto codes = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"codes", base, "--text", "Hi.", "--voice", voice, "--greedy", "--max-frames", "4",
                               "--layout", "non-streaming"});
    return RunTool(more);
  };
  const Outcome calm = codes({});
  const Outcome excited = codes({"--style", "Excited"});
  EXPECT_EQ(excited.exit_status, 0) << excited.err;
  EXPECT_NE(calm.out, excited.out);
  EXPECT_EQ(codes({"--style", "calm"}).out, calm.out);
  // The first word of an instruction, which a Base checkpoint does not heed otherwise.
  const Outcome by_instruct = codes({"--instruct", "Excited, and fast!"});
  EXPECT_EQ(by_instruct.out, excited.out);
  EXPECT_EQ(by_instruct.err.find("instruction"), std::string::npos) << by_instruct.err;
  const Outcome unknown = codes({"--style", "angry"});
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_NE(unknown.err.find("no style \"angry\"; it has: calm, excited"), std::string::npos) << unknown.err;
  const Outcome twice = MakeStyle(base, "/speech-8000.wav", "calm", "--add-to", voice);
  EXPECT_NE(twice.out.find("calm\\\" already"), std::string::npos) << twice.out;
  EXPECT_NE(RunTool({"codes", base, "--text", "Hi.", "--style", "calm"}).err.find("--voice"), std::string::npos);
  // A voice without a style gets no second take.
  const std::string plain = folder.File("plain.voice");
  ASSERT_EQ(RunTool({"voice", "make", base, "--audio", kReferences + "/speech-8000.wav", "-o", plain}).exit_status, 0);
  const Outcome styled = MakeStyle(base, "/speech-8000.wav", "calm", "--add-to", plain);
  EXPECT_NE(styled.out.find("make it again with --style"), std::string::npos) << styled.out;
}

// Check: 62
TEST(ToolTest, VoicesAreMixed) {
  const TemporaryFolder folder;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  const std::string a = folder.File("a.voice");
  const std::string b = folder.File("b.voice");
  const std::string mix = folder.File("mix.voice");
  ASSERT_EQ(RunTool({"voice", "make", base, "--audio", kReferences + "/speech-24000.wav", "-o", a}).exit_status, 0);
  ASSERT_EQ(RunTool({"voice", "make", base, "--audio", kReferences + "/speech-8000.wav", "--reference-text",
                     "So it goes.", "-o", b})
                .exit_status,
            0);
  const Outcome mixed = RunTool({"voice", "mix", a + ":0.7", b + ":0.3", "-o", mix, "--json"});
  ASSERT_EQ(mixed.exit_status, 0) << mixed.err;
  EXPECT_NE(mixed.err.find("timbre only"), std::string::npos) << mixed.err;
  EXPECT_EQ(Json::parse(mixed.out)["mode"], "x-vector");
  EXPECT_EQ(Json::parse(mixed.out)["x_vector"], 48);
  const auto codes = [&](const std::string& voice) {
    return RunTool({"codes", base, "--text", "Hi.", "--voice", voice, "--greedy", "--max-frames", "4"}).out;
  };
  EXPECT_NE(codes(mix), "");
  EXPECT_NE(codes(mix), codes(a));
  ASSERT_EQ(RunTool({"voice", "mix", a, a + ":3", "-o", folder.File("same.voice")}).exit_status, 0);
  EXPECT_EQ(codes(folder.File("same.voice")), codes(a));
  const std::string other = folder.File("other");
  MakeBase(other, 4);
  const std::string c = folder.File("c.voice");
  ASSERT_EQ(RunTool({"voice", "make", other, "--audio", kReferences + "/speech-8000.wav", "-o", c}).exit_status, 0);
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{a, b + ":0", "-o", mix}, "has the weight 0"},
      {{a, b + ":-1", "-o", mix}, "above 0"},
      {{a, c, "-o", mix}, "different checkpoints"},
      {{a, b + ":much", "-o", mix}, ":much"},
  };
  for (const auto& [operands, part] : refused) {
    std::vector<std::string> arguments = {"voice", "mix"};
    arguments.insert(arguments.end(), operands.begin(), operands.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 1) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

TEST(ToolTest, ARecordingIsCheckedAndPrepared) {
  const TemporaryFolder folder;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  // 2.7 s of speech with a transcript that is too long for it.
  std::vector<std::string> make = {"voice",
                                   "make",
                                   base,
                                   "--audio",
                                   kReferences + "/speech-8000.wav",
                                   "--reference-text",
                                   std::string(200, 'a'),
                                   "--output",
                                   folder.File("a.voice")};
  const Outcome warned = RunTool(make);
  ASSERT_EQ(warned.exit_status, 0) << warned.err;
  EXPECT_NE(warned.err.find("warning: the transcript does not fit the reference recording"), std::string::npos)
      << warned.err;
  EXPECT_EQ(warned.err.find("prepared"), std::string::npos) << warned.err;
  make.emplace_back("--prepare");
  const Outcome prepared = RunTool(make);
  ASSERT_EQ(prepared.exit_status, 0) << prepared.err;
  EXPECT_NE(prepared.err.find("prepared the reference recording: "), std::string::npos) << prepared.err;
}

}  // namespace
}  // namespace qtts
