// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-tool as a user runs it: arguments, standard input, output and exit status.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cpu/bf16_kernels.h"
#include "qtts/sampling_numbers.h"
#include "text/tokenizer.h"
#include "tool_fixture.h"

namespace qtts {
namespace {

TEST(ToolTest, HelpNamesEveryCommand) {
  const Outcome help = RunTool({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_NE(help.out.find("  qtts-tool [OPTION"), std::string::npos) << help.out;
  for (const char* command : {"speak", "text", "inspect", "tokenize", "prompt", "codes", "decode", "voice make",
                              "voice design", "voice mix", "voice show", "check", "align", "loudness"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  }
  EXPECT_NE(help.out.find("DESCRIPTION a designed voice"), std::string::npos) << help.out;
}

// Check: 50
TEST(ToolTest, EveryCommandHasAManual) {
  const struct {
    std::vector<std::string> command;
    std::string has;
    std::string lacks;
  } manuals[] = {{{}, "--seed", "no such option"},          {{"inspect"}, "--json", "--text"},
                 {{"speak"}, "--raw", "--audio"},           {{"tokenize"}, "--pattern", "--text"},
                 {{"prompt"}, "--text", "--seed"},          {{"text"}, "--lexicon", "--seed"},
                 {{"codes"}, "--seed", "--output"},         {{"decode"}, "--output", "--text"},
                 {{"check"}, "--against", "--text"},        {{"voice"}, "voice show FILE", "--lexicon"},
                 {{"voice", "make"}, "--audio", "--text "}, {{"voice", "show"}, "--json", "--audio"},
                 {{"align"}, "--write", "--audio"},         {{"voice", "design"}, "--takes", "--audio"},
                 {{"voice", "mix"}, "--output", "--text"},  {{"loudness"}, "--write", "--audio"}};
  for (const auto& manual : manuals) {
    for (const char* help : {"--help", "-h"}) {
      // Before and after the command, and before and after a missing or wrong argument.
      for (const int place : {0, 1, 2, 3}) {
        std::vector<std::string> arguments = manual.command;
        arguments.insert(place == 0 ? arguments.begin() : arguments.end(), help);
        if (place == 2) arguments.emplace_back("--no-such-option");
        if (place == 3 && !manual.command.empty()) arguments.insert(arguments.end() - 1, kVoice);
        const Outcome outcome = RunTool(arguments);
        EXPECT_EQ(outcome.exit_status, 0) << manual.has << place << outcome.err;
        EXPECT_EQ(outcome.err, "");
        EXPECT_NE(outcome.out.find(manual.has), std::string::npos) << outcome.out;
        EXPECT_EQ(outcome.out.find(manual.lacks), std::string::npos) << outcome.out;
      }
    }
  }
  const Outcome unknown = RunTool({"sing", "--help"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_NE(unknown.err.find("unknown command sing"), std::string::npos) << unknown.err;
}

TEST(ToolTest, WrongUsageIsStatusTwo) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"sing"},
                                                    {"inspect", kVoice, "--no-such-option"},
                                                    {"voice"},
                                                    {"voice", "hear"},
                                                    {"codes", kVoice, "--seed", "many"}}) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 2);
    EXPECT_NE(outcome.err.find("--help"), std::string::npos) << outcome.err;
  }
}

// Also with --json, which is for what a command prints.
TEST(ToolTest, WhatACommandNeedsAndLacksIsWrongUsage) {
  const std::string folder = "name a model folder";
  const struct {
    std::vector<std::string> arguments;
    std::string part;
  } refused[] = {{{"inspect"}, folder},
                 {{"check"}, folder},
                 {{"tokenize"}, folder},
                 {{"prompt"}, folder},
                 {{"prompt", kVoice}, "name what to speak with --text"},
                 {{"codes"}, folder},
                 {{"codes", kVoice}, "name what to speak with --text"},
                 {{"align"}, folder},
                 {{"align", kVoice, "--codes", "x"}, "--text"},
                 {{"loudness"}, folder},
                 {{"text"}, "name a text"},
                 {{"speak", "Hi."}, "--output"},
                 {{"speak", "-o", "x.wav"}, "name what to speak"},
                 {{"speak", kVoice, "-o", "x.wav"}, "name what to speak"},
                 {{"decode"}, folder},
                 {{"decode", kVoice}, "--output"},
                 {{"voice", "make"}, folder},
                 {{"voice", "make", kVoice, "-o", "x.voice"}, "--audio"},
                 {{"voice", "make", kVoice, "--audio", "x.wav"}, "--output"},
                 {{"voice", "design"}, "describe the voice"},
                 {{"voice", "design", kVoice, "-o", "x.voice"}, "describe the voice"},
                 {{"voice", "design", kVoice, "A man."}, "--output"},
                 {{"voice", "mix", "-o", "x.voice"}, "two voices"},
                 {{"voice", "mix", "a.voice", "-o", "x.voice"}, "two voices"},
                 {{"voice", "mix", "a.voice", "b.voice"}, "--output"},
                 {{"voice", "show"}, "name a voice file"}};
  for (auto [arguments, part] : refused) {
    for (const bool json : {false, true}) {
      if (json) arguments.emplace_back("--json");
      const Outcome outcome = RunTool(arguments);
      EXPECT_EQ(outcome.exit_status, 2) << arguments[0] << ": " << part;
      EXPECT_EQ(outcome.out, "");
      EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    }
  }
}

// An option or argument without effect is refused.
// Check: 50
TEST(ToolTest, WhatACommandDoesNotTakeIsRefused) {
  const struct {
    std::vector<std::string> arguments;
    std::string part;
  } refused[] = {{{"speak", kVoice, "Hi.", "--audio", "x.wav"}, "speak takes no --audio"},
                 {{"speak", kVoice, "Hello", "there.", "-o", "x.wav"}, "\"there.\" is one argument too many"},
                 {{"decode", kVoice, "--raw"}, "decode takes no --raw"},
                 {{"inspect", kVoice, "--greedy"}, "inspect takes no --greedy"},
                 {{"codes", kVoice, "--normalize", "none"}, "codes takes no --normalize"},
                 {{"tokenize", kVoice, "--text", "Hi."}, "tokenize takes no --text"},
                 {{"prompt", kVoice, "--text", "Hi.", "--seed", "1"}, "prompt takes no --seed"},
                 {{"prompt", kVoice, "--text", "Hi.", "--device", "cpu"}, "prompt takes no --device"},
                 {{"codes", kVoice, "--text", "Hi.", "-o", "x.wav"}, "codes takes no --output"},
                 {{"decode", kVoice, "--output", "x.wav", "--pattern", "native"}, "decode takes no --pattern"},
                 {{"voice", "show", "x", "--audio", "x.wav"}, "voice show takes no --audio"},
                 {{"codes", kVoice, "--text", "Hello", "there."}, "\"there.\" is one argument too many"},
                 {{"codes", kVoice, "--seed", "1x"}, "\"1x\" is not a whole number"},
                 {{"codes", kVoice, "--top-p", "nan"}, "\"nan\" is not a number"}};
  for (const auto& [arguments, part] : refused) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 2) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

// Check: 50
TEST(ToolTest, ValuesThatAnOptionDoesNotHaveAreRefused) {
  const TemporaryFolder folder;
  const struct {
    std::vector<std::string> options;
    std::string part;
    int exit_status = 2;
  } refused[] = {{{"--pattern", "foo"}, "--pattern \"foo\": must be native or patched"},
                 {{"--device", "gpu"}, "--device \"gpu\": must be auto, cpu or cuda"},
                 {{"--precision", "f16"}, "--precision \"f16\": must be auto, bf16, f32, int8 or int4"},
                 {{"--layout", "sideways"}, "must be auto, streaming or non-streaming"},
                 {{"--threads", "-1"}, "--threads \"-1\""},
                 {{"--codec-precision", "f16"}, "--codec-precision \"f16\": must be exact or fast"},
                 {{"--codec-precision", "fast", "--device", "cpu"}, "codec-precision=fast is arithmetic of the GPU", 1},
                 {{"--precision", "int4", "--device", "cuda"}, "precision=int4 is arithmetic of the CPU", 1},
                 {{"--device", "cuda", "--threads", "2"}, "--threads is about the CPU"},
                 {{"--voices", "0"}, "--voices \"0\": must be 1 to 4096"},
                 {{"--voices", "4097"}, "--voices \"4097\": must be 1 to 4096"},
                 {{"--max-frames", "0"}, "--max-frames \"0\": must be 1 or more"},
                 {{"--top-k", "-2"}, "--top-k \"-2\""},
                 {{"--temperature", "-1"}, "temperature"},
                 {{"--repetition-penalty", "0"}, "repetition"}};
  for (const auto& [options, part, exit_status] : refused) {
    std::vector<std::string> arguments = {"codes", kVoice, "--text", "Hi."};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, exit_status) << part;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

TEST(ToolTest, EverySamplingNumberIsAnOption) {
  const std::string manual = RunTool({"codes", "--help"}).out;
  for (const SamplingNumber& number : kSamplingNumbers) {
    const std::string option = std::string("--") + number.name;
    EXPECT_NE(manual.find(option + "="), std::string::npos) << option << " of " << manual;
    const Outcome outcome = RunTool({"codes", kVoice, "--text", "Hi.", option, "-2"});
    EXPECT_EQ(outcome.exit_status, 2) << option;
    EXPECT_NE(outcome.err.find(option + " \"-2\": must be " + number.Range()), std::string::npos) << outcome.err;
  }
}

TEST(ToolTest, ATemperatureOfZeroIsGreedy) {
  const std::vector<std::string> codes = {"codes", kVoice, "--text", "Good morning.", "--max-frames", "4"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), codes.begin(), codes.end());
    return RunTool(more).out;
  };
  const std::string greedy = with({"--greedy", "--temperature", "2"});
  EXPECT_FALSE(greedy.empty());
  EXPECT_EQ(with({"--temperature", "0", "--subtalker-temperature", "0", "--seed", "4"}), greedy);
  EXPECT_NE(with({"--temperature", "0", "--subtalker-temperature", "1", "--seed", "4"}), greedy)
      << "a temperature samples, though the voice's own settings do not";
}

TEST(ToolTest, InspectTellsOfAGpuOnly) {
  const struct {
    std::vector<std::string> options;
    std::string part;
  } refused[] = {{{"--device", "cpu"}, "inspect --device \"cpu\": must be a GPU, such as cuda"},
                 {{"--voices", "100"}, "inspect: --precision and --voices are about --device cuda"},
                 {{"--precision", "f32"}, "inspect: --precision and --voices are about --device cuda"}};
  for (const auto& [options, part] : refused) {
    std::vector<std::string> arguments = {"inspect", kVoice};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 2) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

// Check: 50
TEST(ToolTest, DeviceAndPrecisionAreHeeded) {
  const TemporaryFolder folder;
  const Environment no_gpu = {{"QTTS_BACKEND_PATH", "/nonexistent"}};
  const std::vector<std::string> speak = {"codes", kVoice, "--text", "Good morning.", "--seed", "3"};
  const std::vector<std::string> decode = {"decode", kVoice, "--output", folder.File("out.wav")};
  const Outcome codes = RunTool(speak, "", no_gpu);
  ASSERT_EQ(codes.exit_status, 0) << codes.err;
  for (const std::vector<std::string>& command : {speak, decode}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), command.begin(), command.end());
      return RunTool(more, codes.out, no_gpu);
    };
    const Outcome automatic = with({"--device", "auto"});
    EXPECT_EQ(automatic.exit_status, 0) << automatic.err;
    EXPECT_EQ(with({"--device", "cpu", "--precision", "f32"}).out, automatic.out);
    const Outcome cuda = with({"--device", "cuda"});
    EXPECT_EQ(cuda.exit_status, 1);
    EXPECT_NE(cuda.err.find("the GPU backend is not installed"), std::string::npos) << cuda.err;
    for (const char* device : {"auto", "cpu"}) {
      const Outcome half = with({"--precision", "bf16", "--device", device});
      EXPECT_EQ(half.exit_status, cpu::HasBF16Products() ? 0 : 1) << half.err;
      if (!cpu::HasBF16Products()) {
        EXPECT_NE(half.err.find("precision=bf16 needs a GPU, or a processor"), std::string::npos) << half.err;
      }
      for (const char* precision : {"int8", "int4"}) {
        const Outcome quantised = with({"--precision", precision, "--device", device});
        EXPECT_EQ(quantised.exit_status, 0) << quantised.err;
        EXPECT_NE(quantised.out, automatic.out) << precision << " is not heeded";
      }
    }
  }
}

TEST(ToolTest, InspectSaysWhatAFolderHolds) {
  const Outcome json = RunTool({"inspect", kVoice, "--json"});
  ASSERT_EQ(json.exit_status, 0) << json.err;
  const Json info = Json::parse(json.out);
  EXPECT_EQ(info["type"], "custom_voice");
  EXPECT_EQ(info["dtype"], "F16");
  EXPECT_EQ(info["speakers"], Json({"clara", "grace", "hugh", "owen", "ross"}));
  EXPECT_EQ(info["languages"], Json({"english"}));
  EXPECT_EQ(info["samples_per_frame"], 1920);
  EXPECT_EQ(info["defaults"]["max_new_tokens"], 1024);
  EXPECT_FALSE(info["defaults"]["subtalker_do_sample"].get<bool>());
  const auto weight_bytes = info["weight_bytes"].get<int64_t>();
  const auto file_bytes = std::filesystem::file_size(kVoice + "/model.safetensors") +
                          std::filesystem::file_size(kVoice + "/speech_tokenizer/model.safetensors");
  EXPECT_GT(weight_bytes, 16000000);
  EXPECT_LT(weight_bytes, static_cast<int64_t>(file_bytes));

  const Outcome text = RunTool({"inspect", kVoice});
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_NE(text.out.find("custom_voice"), std::string::npos) << text.out;
}

TEST(ToolTest, ErrorsAreOneLineOrAnObject) {
  for (const char* command : {"inspect", "tokenize", "prompt", "codes"}) {
    std::vector<std::string> arguments = {command, "/nonexistent/model"};
    if (std::set<std::string>{"prompt", "codes"}.contains(command))
      arguments.insert(arguments.end(), {"--text", "Hi."});
    const Outcome plain = RunTool(arguments);
    EXPECT_EQ(plain.exit_status, 1) << command;
    EXPECT_NE(plain.err.find("/nonexistent/model"), std::string::npos) << plain.err;
    EXPECT_EQ(std::count(plain.err.begin(), plain.err.end(), '\n'), 1) << plain.err;
  }
  const Outcome json = RunTool({"inspect", "/nonexistent/model", "--json"});
  EXPECT_EQ(json.exit_status, 1);
  const Json error = Json::parse(json.out)["error"];
  EXPECT_EQ(error["code"], "not-found");
  EXPECT_NE(error["message"].get<std::string>().find("/nonexistent/model"), std::string::npos);
}

TEST(ToolTest, TokenizePrintsTheIdsOfEachLine) {
  auto tokenizer = Tokenizer::Load(kVoice);
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<std::string> lines = {"Hello, world.", "", "<|im_start|>assistant"};
  std::string input, expected, expected_json;
  for (const std::string& line : lines) {
    input += line + "\n";
    const auto ids = (*tokenizer)->Encode(line);
    ASSERT_TRUE(ids.ok());
    std::string row;
    for (const int32_t id : *ids) row += (row.empty() ? "" : " ") + std::to_string(id);
    expected += row + "\n";
    expected_json += Json(*ids).dump() + "\n";
  }
  EXPECT_EQ(RunTool({"tokenize", kVoice}, input).out, expected);
  EXPECT_EQ(RunTool({"tokenize", kVoice, "--json"}, input).out, expected_json);
  const auto patched = Tokenizer::Load(kVoice, TokenizerPattern::kPatched);
  ASSERT_TRUE(patched.ok());
  const auto ids = (*patched)->Encode("iPhone");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(RunTool({"tokenize", kVoice, "--pattern", "patched", "--json"}, "iPhone\n").out, Json(*ids).dump() + "\n");
  EXPECT_EQ(RunTool({"tokenize", kVoice, "--pattern", "other"}).exit_status, 2);
}

TEST(ToolTest, PromptPrintsTheRowsOfBothLayouts) {
  const std::string text = "Hello there.";
  for (const std::string layout : {"streaming", "non-streaming"}) {
    const Outcome outcome =
        RunTool({"prompt", kVoice, "--text", text, "--language", "english", "--layout", layout, "--json"});
    ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
    const Json prompt = Json::parse(outcome.out);
    // Role 3, language prefix 4, speaker 1, begin 1 (spec 3.3); then the text, or its first token.
    EXPECT_EQ(prompt["constant_rows"], 9);
    const size_t rows = prompt["rows"].size();
    const size_t queue = prompt["trailing_text"].size();
    if (layout == "streaming") {
      EXPECT_EQ(rows, 10U);
      EXPECT_GT(queue, 2U);
    } else {
      EXPECT_GT(rows, 12U);
      EXPECT_LE(queue, 1U);
    }
    const Outcome plain = RunTool({"prompt", kVoice, "--text", text, "--language", "english", "--layout", layout});
    EXPECT_EQ(std::count(plain.out.begin(), plain.out.end(), '\n'), static_cast<long>(rows) + 1) << plain.out;
  }
  EXPECT_EQ(RunTool({"prompt", kVoice, "--text", text, "--layout", "sideways"}).exit_status, 2);
  EXPECT_EQ(RunTool({"prompt", kVoice, "--text", " "}).exit_status, 1);
  const Outcome unknown = RunTool({"prompt", kVoice, "--text", text, "--speaker", "nobody"});
  EXPECT_EQ(unknown.exit_status, 1);
  EXPECT_NE(unknown.err.find("clara"), std::string::npos) << "names the speakers there are: " << unknown.err;
}

TEST(ToolTest, CodesFollowTheSeedAndGreedyHasNone) {
  const std::vector<std::string> base = {"codes", kVoice, "--text", "Good morning everyone."};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    const Outcome outcome = RunTool(more);
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(with({"--seed", "5"}), with({"--seed", "5"}));
  EXPECT_NE(with({"--seed", "5"}), with({"--seed", "6"}));
  EXPECT_EQ(with({"--greedy", "--seed", "5"}), with({"--greedy", "--seed", "6"}));
  const Outcome capped = RunTool({"codes", kVoice, "--text", "A rather long sentence.", "--max-frames", "3"});
  EXPECT_EQ(std::count(capped.out.begin(), capped.out.end(), '\n'), 3);
  EXPECT_NE(capped.err.find("limit"), std::string::npos) << capped.err;
}

TEST(ToolTest, CodesThenDecodeGivesWhatTheEngineSpeaks) {
  const std::vector<float> spoken = EngineSpeaks("Good morning.", 3);
  const TemporaryFolder folder;
  for (const bool json : {false, true}) {
    std::vector<std::string> arguments = {"codes", kVoice, "--text", "Good morning.", "--seed", "3"};
    if (json) arguments.emplace_back("--json");
    const Outcome codes = RunTool(arguments);
    ASSERT_EQ(codes.exit_status, 0) << codes.err;
    const std::string wav = folder.File("out.wav");
    const Outcome decoded = RunTool({"decode", kVoice, "--output", wav, "--format", "f32"}, codes.out);
    ASSERT_EQ(decoded.exit_status, 0) << decoded.err;
    EXPECT_EQ(ReadF32Wav(wav), spoken);
  }
}

TEST(ToolTest, TheVersionIsTheProjects) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--version"}, {"-V"}, {"speak", "--version"}, {"--version", "--no-such-option"}}) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "qtts-tool " QTTS_VERSION "\n");
  }
}

TEST(ToolTest, DecodeRefusesWhatAreNoCodes) {
  const TemporaryFolder folder;
  const std::string wav = folder.File("out.wav");
  const auto decode = [&](const std::string& input) {
    const Outcome outcome = RunTool({"decode", kVoice, "--output", wav}, input);
    EXPECT_EQ(outcome.exit_status, 1) << input;
    return outcome.err;
  };
  EXPECT_NE(decode("1 2 3\n").find("expected 12"), std::string::npos);
  EXPECT_NE(decode("0 0 0 0 0 0 0 0 0 0 0 256\n").find("256"), std::string::npos);
  EXPECT_NE(decode("0 0 0 0 0 0 0 0 0 0 0 -1\n").find("-1"), std::string::npos);
  EXPECT_NE(decode("one two\n").find("one"), std::string::npos);
  EXPECT_NE(decode("{\"codes\": 5}").find("codes"), std::string::npos);
  EXPECT_NE(decode("{\"codes\": [[\"a\"]]}").find("integer"), std::string::npos);
  EXPECT_EQ(RunTool({"decode", kVoice, "/nonexistent/codes", "--output", wav}).exit_status, 1);
  EXPECT_NE(decode("").find("there are no codes"), std::string::npos);
  EXPECT_NE(RunTool({"decode", kVoice, "--output", "/nonexistent/out.wav"}, "0 0 0 0 0 0 0 0 0 0 0 0\n")
                .err.find("/nonexistent"),
            std::string::npos);
}

// The tool's arguments are bytes: no locale may change them or refuse them.
// Check: 50
TEST(ToolTest, TextIsUtf8InEveryLocale) {
  const TemporaryFolder folder;
  const std::string base = folder.File("base");
  MakeBase(base, 3);
  const std::string design = folder.File("design");
  ASSERT_EQ(RunProgram(QTTS_GENERATOR, {"--preset", "tiny-design-1b7", design}).exit_status, 0);
  auto tokenizer = Tokenizer::Load(design);
  ASSERT_TRUE(tokenizer.ok());
  // The tokens of a prompt's text side, in order.
  const auto rows_of = [](const Outcome& outcome) {
    std::string ids;
    const Json prompt = Json::parse(outcome.out);
    for (const Json& row : prompt["rows"]) ids += " " + row["text_id"].dump();
    for (const Json& id : prompt["trailing_text"]) ids += " " + id.dump();
    return ids + " ";
  };
  const auto ids_of = [&](const std::string& text) {
    std::string all;
    const auto ids = (*tokenizer)->EncodePlain(text);
    EXPECT_TRUE(ids.ok());
    for (const int32_t id : *ids) all += " " + std::to_string(id);
    return all + " ";
  };
  for (const char* locale : {"C", "C.UTF-8", "de_DE.UTF-8", "de_DE.ISO-8859-1"}) {
    const Environment environment = {{"LC_ALL", locale}, {"LANG", locale}, {"LANGUAGE", "de"}};
    for (const std::string text : {"Grüße", "你好，世界", "👩‍🚀 liftoff"}) {
      SCOPED_TRACE(std::string(locale) + " " + text);
      const Outcome spoken =
          RunTool({"prompt", design, "--text", text, "--instruct", "So " + text, "--json"}, "", environment);
      ASSERT_EQ(spoken.exit_status, 0) << spoken.err;
      EXPECT_EQ(spoken.err, "");
      EXPECT_NE(rows_of(spoken).find(ids_of(text)), std::string::npos) << rows_of(spoken);
      EXPECT_NE(rows_of(spoken).find(ids_of("user\nSo " + text)), std::string::npos) << rows_of(spoken);
      const Outcome codes =
          RunTool({"codes", design, "--text", text, "--max-frames", "1", "--device", "cpu"}, "", environment);
      EXPECT_EQ(codes.exit_status, 0) << codes.err;
      for (const char* option : {"--speaker", "--language"}) {
        const Outcome refused = RunTool({"prompt", kVoice, "--text", "Hi.", option, text}, "", environment);
        EXPECT_EQ(refused.exit_status, 1);
        EXPECT_NE(refused.err.find("\"" + text + "\""), std::string::npos) << refused.err;
      }
      if (text != "你好，世界") continue;  // a voice takes a second
      const Outcome made = RunTool({"voice", "make", base, "--audio", kReferences + "/speech-48000-stereo.wav",
                                    "--reference-text", text, "--output", folder.File(text), "--json"},
                                   "", environment);
      ASSERT_EQ(made.exit_status, 0) << made.err;
      EXPECT_EQ(Json::parse(made.out)["reference_text"], text);
      EXPECT_EQ(RunTool({"voice", "show", folder.File(text), "--json"}, "", environment).out, made.out);
    }
    for (const char* option : {"--text", "--instruct"}) {
      SCOPED_TRACE(std::string(locale) + " " + option);
      const auto with = [&](const std::string& value) {
        return RunTool({"prompt", design, "--text", "Hi.", "--instruct", "Hi.", option, value, "--json"}, "",
                       environment);
      };
      const Outcome latin1 = with(
          "Gr\xFC\xDF"
          "e");
      ASSERT_EQ(latin1.exit_status, 0) << latin1.err;
      EXPECT_NE(latin1.err.find(option), std::string::npos) << latin1.err;
      EXPECT_NE(latin1.err.find("U+FFFD"), std::string::npos) << latin1.err;
      EXPECT_EQ(latin1.out, with("Gr\uFFFD\uFFFD"
                                 "e")
                                .out);
    }
  }
}

}  // namespace
}  // namespace qtts
