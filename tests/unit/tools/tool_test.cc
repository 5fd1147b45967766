// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-tool as a user runs it: arguments, standard input, output and exit status.
#include <fcntl.h>
#include <gio/gio.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cpu/bf16_kernels.h"
#include "qtts/engine.h"
#include "qtts/sampling_numbers.h"
#include "text/tokenizer.h"

namespace qtts {
namespace {

using Json = nlohmann::json;

const std::string kVoice = QTTS_TEST_VOICE;

struct Outcome {
  int exit_status = -1;
  std::string out;
  std::string err;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

Outcome RunProgram(const std::string& program, std::vector<std::string> arguments, const std::string& input = "",
                   const Environment& environment = {}) {
  arguments.insert(arguments.begin(), program);
  std::vector<const gchar*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  argv.push_back(nullptr);
  constexpr int kPipes =
      G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE;
  GError* error = nullptr;
  GSubprocessLauncher* const launcher = g_subprocess_launcher_new(static_cast<GSubprocessFlags>(kPipes));
  for (const auto& [name, value] : environment) {
    g_subprocess_launcher_setenv(launcher, name.c_str(), value.c_str(), TRUE);
  }
  GSubprocess* const process = g_subprocess_launcher_spawnv(launcher, argv.data(), &error);
  g_object_unref(launcher);
  Outcome outcome;
  if (!process) {
    ADD_FAILURE() << error->message;
    g_error_free(error);
    return outcome;
  }
  gchar *out = nullptr, *err = nullptr;
  EXPECT_TRUE(g_subprocess_communicate_utf8(process, input.c_str(), nullptr, &out, &err, nullptr));
  outcome.exit_status = g_subprocess_get_if_exited(process) ? g_subprocess_get_exit_status(process) : -1;
  if (out) outcome.out = out;
  if (err) outcome.err = err;
  g_free(out);
  g_free(err);
  g_object_unref(process);
  return outcome;
}

Outcome RunTool(const std::vector<std::string>& arguments, const std::string& input = "",
                const Environment& environment = {}) {
  return RunProgram(QTTS_TEST_TOOL, arguments, input, environment);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "qtts-tool-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

TEST(ToolTest, HelpNamesEveryCommand) {
  const Outcome help = RunTool({"--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_NE(help.out.find("  qtts-tool [OPTION"), std::string::npos) << help.out;
  for (const char* command : {"speak", "text", "inspect", "tokenize", "prompt", "codes", "decode", "voice make",
                              "voice design", "voice mix", "voice show", "check", "align", "loudness"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
  }
}

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

// An option or argument without effect is refused.
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

TEST(ToolTest, ValuesThatAnOptionDoesNotHaveAreRefused) {
  const TemporaryFolder folder;
  const struct {
    std::vector<std::string> options;
    std::string part;
  } refused[] = {{{"--pattern", "foo"}, "--pattern \"foo\": must be native or patched"},
                 {{"--device", "gpu"}, "--device \"gpu\": must be auto, cpu or cuda"},
                 {{"--precision", "f16"}, "--precision \"f16\": must be auto, bf16, f32, int8 or int4"},
                 {{"--layout", "sideways"}, "must be auto, streaming or non-streaming"},
                 {{"--threads", "-1"}, "--threads \"-1\""},
                 {{"--codec-precision", "f16"}, "--codec-precision \"f16\": must be exact or fast"},
                 {{"--codec-precision", "fast", "--device", "cpu"}, "codec-precision=fast is arithmetic of the GPU"},
                 {{"--precision", "int4", "--device", "cuda"}, "precision=int4 is arithmetic of the CPU"},
                 {{"--device", "cuda", "--threads", "2"}, "--threads is about the CPU"},
                 {{"--voices", "0"}, "--voices \"0\": must be 1 to 4096"},
                 {{"--voices", "4097"}, "--voices \"4097\": must be 1 to 4096"},
                 {{"--max-frames", "0"}, "--max-frames \"0\": must be 1 or more"},
                 {{"--top-k", "-2"}, "--top-k \"-2\""},
                 {{"--temperature", "-1"}, "temperature"},
                 {{"--repetition-penalty", "0"}, "repetition"}};
  for (const auto& [options, part] : refused) {
    std::vector<std::string> arguments = {"codes", kVoice, "--text", "Hi."};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 1) << part;
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
    EXPECT_EQ(outcome.exit_status, 1) << option;
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
    EXPECT_EQ(outcome.exit_status, 1) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

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
    const Outcome plain = RunTool({command, "/nonexistent/model"});
    EXPECT_EQ(plain.exit_status, 1) << command;
    EXPECT_NE(plain.err.find("/nonexistent/model"), std::string::npos) << plain.err;
    EXPECT_EQ(std::count(plain.err.begin(), plain.err.end(), '\n'), 1) << plain.err;
    EXPECT_EQ(RunTool({command}).exit_status, 1) << command << " without a folder";
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
  EXPECT_EQ(RunTool({"tokenize", kVoice, "--pattern", "other"}).exit_status, 1);
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
  EXPECT_EQ(RunTool({"prompt", kVoice, "--text", text, "--layout", "sideways"}).exit_status, 1);
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

// Little-endian samples after the 44-byte header.
std::vector<float> ReadF32Wav(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<float> samples((bytes.size() - 44) / sizeof(float));
  memcpy(samples.data(), bytes.data() + 44, samples.size() * sizeof(float));
  return samples;
}

std::vector<float> EngineSpeaks(const std::string& text, uint64_t seed) {
  EngineOptions options;
  options.model_path = kVoice;
  const auto engine = Engine::Load(options);
  EXPECT_TRUE(engine.ok());
  Request request;
  request.text = text;
  request.seed = seed;
  request.settings = (*engine)->info().defaults;
  const auto stream = (*engine)->Start(request);
  EXPECT_TRUE(stream.ok());
  std::vector<float> spoken;
  Frame frame;
  while ((*stream)->Read(&frame) == ReadState::kFrame) spoken.insert(spoken.end(), frame.pcm.begin(), frame.pcm.end());
  return spoken;
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

// --- speak

const std::string kText = "Good morning.";

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint32_t NumberAt(const std::string& bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4 && at + i < bytes.size(); ++i) {
    number |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return number;
}

// A header with the length of its data.
void ExpectWholeWav(const std::string& path) {
  const std::string bytes = ReadBytes(path);
  ASSERT_GT(bytes.size(), 44U);
  EXPECT_EQ(bytes.substr(0, 4), "RIFF");
  EXPECT_EQ(NumberAt(bytes, 4), bytes.size() - 8);
  EXPECT_EQ(NumberAt(bytes, 40), bytes.size() - 44);
}

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(ToolTest, SpeakWritesWhatTheEngineSpeaks) {
  const std::vector<float> spoken = EngineSpeaks(kText, 3);
  const TemporaryFolder folder;
  const Environment bundled = {{"QTTS_VOICE_PATH", kVoice}};
  const Environment none = {{"QTTS_VOICE_PATH", "/nonexistent"}};
  const std::string file = folder.File("Out.WAV");
  const struct {
    std::vector<std::string> words;
    std::string input;
    Environment environment;
  } ways[] = {{{kVoice, kText}, "", none},           {{kText}, "", bundled},
              {{"--text", kText, kVoice}, "", none}, {{"--text", kText}, "", bundled},
              {{"-"}, "\n" + kText + "\n", bundled}, {{kVoice, "-"}, kText, none}};
  for (const auto& way : ways) {
    std::filesystem::remove(file);
    std::vector<std::string> arguments = {"speak", "--seed", "3", "--format", "f32", "-o", file};
    arguments.insert(arguments.end(), way.words.begin(), way.words.end());
    const Outcome outcome = RunTool(arguments, way.input, way.environment);
    ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
    EXPECT_EQ(ReadF32Wav(file), spoken) << way.words[0];
    ExpectWholeWav(file);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(file + ": "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("times real time"), std::string::npos) << outcome.err;
    EXPECT_EQ(FilesIn(folder.File("")), 1U);
  }
}

TEST(ToolTest, SpeakWritesRawSamplesAndToStandardOutput) {
  const TemporaryFolder folder;
  const std::string script = "exec \"$0\" speak \"$1\" 'Good morning.' --seed 3 ";
  const auto shell = [&](const std::string& rest) {
    return RunProgram("/bin/sh", {"-c", script + rest, QTTS_TEST_TOOL, kVoice});
  };
  const std::string wav = folder.File("a.wav");
  const std::string raw = folder.File("a.raw");
  const std::string wav_pipe = folder.File("pipe.wav");
  const std::string raw_pipe = folder.File("pipe.raw");
  EXPECT_EQ(shell("-o " + wav).exit_status, 0);
  EXPECT_EQ(shell("-o " + raw).exit_status, 0);
  const Outcome piped = shell("-o - >" + wav_pipe);
  EXPECT_EQ(piped.exit_status, 0);
  EXPECT_NE(piped.err.find("standard output: "), std::string::npos) << piped.err;
  EXPECT_EQ(shell("-o - --raw >" + raw_pipe).exit_status, 0);
  const std::string samples = ReadBytes(wav).substr(44);
  EXPECT_GT(samples.size(), 1000U);
  EXPECT_EQ(ReadBytes(raw), samples);
  EXPECT_EQ(ReadBytes(raw_pipe), samples);
  const std::string stream = ReadBytes(wav_pipe);
  EXPECT_EQ(stream.substr(44), samples);
  EXPECT_EQ(NumberAt(stream, 4), 0xFFFFFFFFU) << "nobody knows the length";
  EXPECT_EQ(NumberAt(stream, 40), 0xFFFFFFFFU);
  // A device file is written to, not replaced.
  EXPECT_EQ(shell("-o /dev/null").exit_status, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));

  const Outcome json = shell("--json -o " + raw);
  const Json summary = Json::parse(json.out);
  EXPECT_EQ(summary["file"], raw);
  EXPECT_EQ(summary["samples"], samples.size() / 2);
  EXPECT_EQ(summary["end"], "complete");
  EXPECT_GT(summary["speed"].get<double>(), 0);
  const Outcome capped = shell("--max-frames 2 -o " + raw);
  EXPECT_EQ(ReadBytes(raw).size(), 2U * 1920 * 2);
  EXPECT_NE(capped.err.find("limit"), std::string::npos) << capped.err;
}

// One line of error, and no file.
TEST(ToolTest, TextPrintsEachStepAndTheMap) {
  const Outcome outcome = RunTool({"text", kVoice, "It is $5 (now). PLEASE go!"});
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  for (const char* line :
       {"utterance 1, from character 0\n", "  written     It is $5 (now).\n", "  characters  as before\n",
        "  numbers     It is five dollars (now).\n", "  symbols     It is five dollars, now.\n",
        "  map         6-8 \"$5\" as \"five dollars\"\n", "utterance 2, from character 16\n",
        "  capitals    Please go!\n", "  spoken      Please go!\n"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << outcome.out;
  }
  const Outcome json = RunTool({"text", kVoice, "-", "--json"}, "Yes.\n\nIt is $5.");
  EXPECT_EQ(json.exit_status, 0) << json.err;
  const Json utterance = Json::parse(json.out)["utterances"][1];
  EXPECT_EQ(utterance["written"], "It is $5.");
  EXPECT_EQ(utterance["begin"], 6);
  EXPECT_EQ(utterance["spoken"], "It is five dollars.");
  EXPECT_EQ(utterance["steps"]["numbers"], "It is five dollars.");
  EXPECT_EQ(utterance["map"][1], Json::parse(R"({"spoken": [6, 18], "source": [12, 14], "copied": false})"));
  // Positions are those of the text, whose lines are joined.
  const Outcome joined = RunTool({"text", kVoice, "-"}, "It is psycho-\nlogical at $5.");
  EXPECT_NE(joined.out.find("written     It is psychological at $5."), std::string::npos) << joined.out;
  EXPECT_NE(joined.out.find("25-27 \"$5\" as \"five dollars\""), std::string::npos) << joined.out;
}

TEST(ToolTest, TextHeedsItsOptions) {
  const TemporaryFolder folder;
  std::ofstream(folder.File("lexicon")) << "five\tfife\n$5\ta fiver\n";
  const auto spoken = [](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"text", kVoice, "It is $5 😂.", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return Json::parse(outcome.out)["utterances"][0]["spoken"].get<std::string>();
  };
  EXPECT_EQ(spoken({}), "It is five dollars.");
  EXPECT_EQ(spoken({"--normalize", "none"}), "It is $5 😂.");
  EXPECT_EQ(spoken({"--normalize", "spoken"}), "It is five dollars.");
  EXPECT_EQ(spoken({"--lexicon", folder.File("lexicon")}), "It is a fiver.");
  EXPECT_EQ(spoken({"--emoji", "names"}), "It is five dollars, face with tears of joy.");
  EXPECT_EQ(spoken({"--language", "de"}), "It is fünf Dollar.");
  const struct {
    std::vector<std::string> options;
    std::string part;
  } refused[] = {{{"--normalize", "all"}, "--normalize \"all\": must be model, none or spoken"},
                 {{"--emoji", "loud"}, "--emoji \"loud\": must be silent or names"},
                 {{"--lexicon", "/nowhere/lexicon"}, "/nowhere/lexicon"}};
  for (const auto& [options, part] : refused) {
    std::vector<std::string> arguments = {"text", kVoice, "Hi."};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  EXPECT_NE(RunTool({"text"}).err.find("name a text"), std::string::npos);
}

// Speech follows the text that `text` shows.
TEST(ToolTest, SpeakPreparesItsText) {
  const TemporaryFolder folder;
  const auto speak = [&](const std::string& text, const std::string& normalize, const std::string& file) {
    const Outcome outcome = RunTool({"speak", kVoice, text, "--normalize", normalize, "--output", folder.File(file)});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    std::ifstream sound(folder.File(file), std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(sound), {}};
  };
  const std::string prepared = speak("It is $5 (now).", "model", "a.wav");
  EXPECT_EQ(prepared, speak("It is five dollars, now.", "none", "b.wav"));
  EXPECT_NE(prepared, speak("It is $5 (now).", "none", "c.wav"));
}

TEST(ToolTest, TextPrintsTheStepOfTheMarkup) {
  const std::string text = "See [the *docs*](http://x) now.\n\n- $5";
  const Outcome outcome = RunTool({"text", kVoice, text, "--markup", "markdown", "--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json utterances = Json::parse(outcome.out)["utterances"];
  ASSERT_EQ(utterances.size(), 2U);
  EXPECT_EQ(utterances[0]["source"], "See [the *docs*](http://x) now.");
  EXPECT_EQ(utterances[0]["spoken"], "See the docs now.");
  EXPECT_EQ(utterances[1]["spoken"], "five dollars");
  for (const Json& piece : utterances[0]["map"]) {
    if (!piece["copied"].get<bool>()) continue;
    const auto spoken = piece["spoken"].get<std::vector<size_t>>();
    const auto source = piece["source"].get<std::vector<size_t>>();
    EXPECT_EQ(text.substr(source[0], source[1] - source[0]),
              utterances[0]["spoken"].get<std::string>().substr(spoken[0], spoken[1] - spoken[0]));
  }
  const Outcome ssml = RunTool({"text", kVoice, "<speak>One<break time='1s'/><mark name='m'/>two & three</speak>"});
  for (const char* const part :
       {"break of 1000 ms, at character 10", "mark        m, before character 0", "written     two & three"}) {
    EXPECT_NE(ssml.out.find(part), std::string::npos) << ssml.out;
  }
  EXPECT_NE(ssml.err.find("warning: SSML, line 1, character "), std::string::npos) << ssml.err;
  EXPECT_NE(
      RunTool({"text", kVoice, "x", "--markup", "html"}).err.find("must be auto, none, ssml, markdown or subtitle"),
      std::string::npos);
  EXPECT_NE(RunTool({"text", kVoice, "x", "--markup-rules", "code"}).err.find("the rule \"code\" is unknown"),
            std::string::npos);
}

// A break has exactly its samples, and a document's utterances sound as they do alone.
TEST(ToolTest, SpeakReadsMarkup) {
  const TemporaryFolder folder;
  const auto speak = [&](const std::string& text) {
    const Outcome outcome = RunTool({"speak", kVoice, text, "--seed", "3", "--json", "-o", folder.File("out.wav")});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const int64_t alone = speak("Good morning.")["samples"].get<int64_t>();
  const Json document = speak(
      "<speak><s>Good morning.</s><break time='250ms'/><mark name='here'/><break time='1ms'/>Good morning.</speak>");
  EXPECT_EQ(document["samples"].get<int64_t>(), 2 * alone + 24 * 251);
  ASSERT_EQ(document["marks"].size(), 1U);
  EXPECT_EQ(document["marks"][0]["name"], "here");
  EXPECT_EQ(document["marks"][0]["seconds"].get<double>(), static_cast<double>(alone + 24 * 250) / 24000);
  EXPECT_NE(
      RunTool({"speak", kVoice, "<speak><p/></speak>", "-o", folder.File("out.wav")}).err.find("nothing of the text"),
      std::string::npos);
}

TEST(ToolTest, SpeakSplitsALongText) {
  const TemporaryFolder folder;
  const auto samples = [&](const std::string& text, const std::vector<std::string>& options) {
    std::vector<std::string> words = {"speak", kVoice, text, "--json", "-o", folder.File("out.wav")};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(words);
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return Json::parse(outcome.out)["samples"].get<int64_t>();
  };
  const std::string first = "This is the first sentence of two.";
  const std::string both = first + " And here is the second one.";
  const int64_t whole = samples(both, {});
  EXPECT_EQ(samples(both, {"--part-length", "0"}), whole) << "it fits";
  EXPECT_NE(samples(both, {"--part-length", "40"}), whole);
  // The first part has the seed of the request, and so the frames of its text alone.
  const int64_t alone = samples(first, {"--part-length", "40"});
  EXPECT_GT(samples(both, {"--part-length", "40"}), alone);
  EXPECT_NE(RunTool({"speak", kVoice, both, "--part-length", "-1", "-o", folder.File("out.wav")})
                .err.find("--part-length \"-1\": must be 0 to 1000000"),
            std::string::npos);
}

TEST(ToolTest, SpeakChangesTheRate) {
  const TemporaryFolder folder;
  const auto speak = [&](const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"speak", kVoice, text, "--seed", "3", "--json", "-o", folder.File("out.wav")};
    words.insert(words.end(), more.begin(), more.end());
    return Json::parse(RunTool(words).out);
  };
  const std::string text = "Please leave a message.";
  const auto whole = speak(text, {})["samples"].get<int64_t>();
  EXPECT_EQ(speak(text, {"--rate", "2"})["samples"], whole / 2);
  EXPECT_EQ(speak(text, {"--rate", "0.5"})["samples"], whole * 2);
  EXPECT_EQ(speak("<speak><prosody rate='200%'>" + text + "</prosody></speak>", {})["samples"], whole / 2);
  const Outcome wrong = RunTool({"speak", kVoice, text, "--rate", "9", "-o", folder.File("out.wav")});
  EXPECT_NE(wrong.err.find(R"(--rate "9": must be 0.25 to 4)"), std::string::npos) << wrong.err;
}

TEST(ToolTest, SpeakRefusesBeforeAnyWork) {
  const TemporaryFolder folder;
  const Environment no_voice = {{"QTTS_VOICE_PATH", "/nonexistent/voice"}};
  const std::string out = folder.File("out.wav");
  const struct {
    std::vector<std::string> words;
    std::string part;
    std::string input;
  } refused[] = {{{kVoice, "Hi."}, "name the file to write with --output", ""},
                 {{"-o", out}, "name what to speak", ""},
                 {{kVoice, "-o", out}, "name what to speak", ""},
                 {{kVoice, "Hi.", "--text", "Hi.", "-o", out}, "are two texts", ""},
                 {{kVoice, "  ", "-o", out}, "nothing to say", ""},
                 {{kVoice, "\xF0\x9F\x99\x82!", "-o", out}, "nothing to say", ""},
                 {{kVoice, "-", "-o", out}, "nothing to say", "\n\n"},
                 {{kVoice, "Hi.", "-o", folder.File("out.mp3")}, "the extension must be .wav or .raw", ""},
                 {{kVoice, "Hi.", "-o", folder.File("out")}, "the extension must be .wav or .raw", ""},
                 {{kVoice, "Hi.", "-o", folder.File("")}, "is a folder", ""},
                 {{kVoice, "Hi.", "-o", out, "--raw"}, "--raw contradicts", ""},
                 {{kVoice, "Hi.", "-o", out, "--format", "s24"}, "--format \"s24\": must be s16 or f32", ""},
                 {{kVoice, "Hi.", "-o", "/nonexistent/out.wav"}, "cannot be written: No such file", ""},
                 {{kVoice, "Hi.", "-o", out, "--device", "gpu"}, "must be auto, cpu or cuda", ""},
                 {{kVoice, "Hi.", "-o", out, "--speaker", "nobody"}, "unknown speaker", ""},
                 {{"Hi.", "-o", out}, "there is no bundled voice: /nonexistent/voice", ""}};
  for (const auto& [words, part, input] : refused) {
    std::vector<std::string> arguments = {"speak"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = RunTool(arguments, input, no_voice);
    EXPECT_EQ(outcome.exit_status, 1) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(FilesIn(folder.File("")), 0U) << part;
  }
  const Outcome both = RunTool({"speak", kVoice, "Hi.", "-o", "-", "--json"});
  EXPECT_EQ(both.exit_status, 1);
  EXPECT_NE(both.out.find("both write to standard output"), std::string::npos) << both.out;
  const Outcome utf16 = RunProgram(
      "/bin/sh", {"-c", "printf 'H\\000i\\000' | \"$0\" speak \"$1\" - -o \"$2\"", QTTS_TEST_TOOL, kVoice, out});
  EXPECT_EQ(utf16.exit_status, 1);
  EXPECT_NE(utf16.err.find("zero bytes"), std::string::npos) << utf16.err;
  EXPECT_EQ(FilesIn(folder.File("")), 0U);
}

TEST(ToolTest, SpeakWarnsOfTextThatTheModelCannotSpeak) {
  const TemporaryFolder folder;
  const std::vector<std::string> speak = {"speak", kVoice, "你好。", "--max-frames", "2", "-o", folder.File("out.wav")};
  EXPECT_NE(RunTool(speak).err.find("warning: The text is in Han script."), std::string::npos);
  std::vector<std::string> named = speak;
  named.insert(named.end(), {"--language", "english"});
  EXPECT_EQ(RunTool(named).err.find("Han"), std::string::npos);
}

// The old file stays until the new one is complete. If the path is a link, its target is replaced.
TEST(ToolTest, SpeakReplacesAFileAtOnce) {
  const TemporaryFolder folder;
  const std::string file = folder.File("out.wav");
  const std::string link = folder.File("link.wav");
  std::ofstream(file) << "old";
  std::filesystem::create_symlink("out.wav", link);
  EXPECT_EQ(RunTool({"speak", kVoice, "Hi.", "--speaker", "nobody", "-o", link}).exit_status, 1);
  EXPECT_EQ(ReadBytes(file), "old");
  EXPECT_EQ(RunTool({"speak", kVoice, "Hi.", "-o", link}).exit_status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  ExpectWholeWav(file);
  EXPECT_EQ(FilesIn(folder.File("")), 2U);
}

TEST(ToolTest, SpeakDoesNotWriteSoundToATerminal) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const Outcome outcome = RunProgram(
      "/bin/sh", {"-c", "exec \"$0\" speak \"$1\" Hi. -o - >\"$2\"", QTTS_TEST_TOOL, kVoice, ptsname(terminal)});
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_NE(outcome.err.find("is a terminal"), std::string::npos) << outcome.err;
  close(terminal);
}

// `qtts-tool speak` with a text that takes seconds.
class LongSpeech {
 public:
  explicit LongSpeech(const std::string& output, const std::string& before = "") {
    std::string text = "This goes on";
    for (int i = 0; i < 60; ++i) text += " and on";
    const std::string script = before + "exec \"$0\" speak \"$1\" \"$2.\" --threads 1 -o \"$3\"";
    const gchar* const argv[] = {"/bin/sh",      "-c",         script.c_str(), QTTS_TEST_TOOL,
                                 kVoice.c_str(), text.c_str(), output.c_str(), nullptr};
    process_ = g_subprocess_newv(
        argv, static_cast<GSubprocessFlags>(G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_PIPE), nullptr);
  }
  ~LongSpeech() {
    g_subprocess_force_exit(process_);
    g_object_unref(process_);
  }
  LongSpeech(const LongSpeech&) = delete;
  LongSpeech& operator=(const LongSpeech&) = delete;

  void Send(int signal) { g_subprocess_send_signal(process_, signal); }
  // The first bytes of standard output.
  void WaitForSound() {
    std::vector<char> bytes(4000);
    gsize count = 0;
    EXPECT_TRUE(g_input_stream_read_all(g_subprocess_get_stdout_pipe(process_), bytes.data(), bytes.size(), &count,
                                        nullptr, nullptr));
    EXPECT_EQ(count, bytes.size());
  }
  Outcome Wait() {
    Outcome outcome;
    GBytes *sound = nullptr, *err = nullptr;
    EXPECT_TRUE(g_subprocess_communicate(process_, nullptr, nullptr, &sound, &err, nullptr));
    if (g_subprocess_get_if_exited(process_)) outcome.exit_status = g_subprocess_get_exit_status(process_);
    outcome.err.assign(static_cast<const char*>(g_bytes_get_data(err, nullptr)), g_bytes_get_size(err));
    g_bytes_unref(sound);
    g_bytes_unref(err);
    return outcome;
  }

 private:
  GSubprocess* process_ = nullptr;
};

// Waits until some file in `folder` holds sound.
bool WaitForPart(const std::string& folder) {
  for (int i = 0; i < 12000; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::error_code error;
      if (entry.file_size(error) > 10000 && !error) return true;
    }
    g_usleep(5000);
  }
  return false;
}

TEST(ToolTest, CtrlCFinishesWhatIsSpoken) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    const std::string file = folder.File("out.wav");
    LongSpeech speech(file, "trap - INT; ");
    ASSERT_TRUE(WaitForPart(folder.File("")));
    EXPECT_FALSE(std::filesystem::exists(file)) << "it is not whole yet";
    speech.Send(signal);
    const Outcome outcome = speech.Wait();
    EXPECT_EQ(outcome.exit_status, 128 + signal);
    EXPECT_NE(outcome.err.find(" up to the interruption, made in "), std::string::npos) << outcome.err;
    ExpectWholeWav(file);
    EXPECT_EQ(FilesIn(folder.File("")), 1U);
  }
}

// As under nohup, or in the background of a shell.
TEST(ToolTest, ASignalThatIsIgnoredStaysSo) {
  const TemporaryFolder folder;
  LongSpeech speech(folder.File("out.wav"), "trap '' INT; ");
  ASSERT_TRUE(WaitForPart(folder.File("")));
  speech.Send(SIGINT);
  g_usleep(50000);
  speech.Send(SIGTERM);
  EXPECT_EQ(speech.Wait().exit_status, 128 + SIGTERM);
}

TEST(ToolTest, SpeakWritesSoundWhileItIsMade) {
  LongSpeech speech("-");
  speech.WaitForSound();
  speech.Send(SIGTERM);
  EXPECT_EQ(speech.Wait().exit_status, 128 + SIGTERM) << "it had not ended yet";
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ToolTest, SpeakWritesItsWords) {
  const TemporaryFolder folder;
  const std::string wav = folder.File("a.wav");
  const std::string text = "Hello there, this is it.";
  const struct {
    const char* name;
    const char* has;
  } files[] = {{"a.vtt", "WEBVTT\n\n00:00:0"}, {"a.srt", " --> 00:00:0"}, {"a.TextGrid", "text = \"there\""}};
  for (const auto& file : files) {
    const std::string path = folder.File(file.name);
    const Outcome outcome = RunTool({"speak", kVoice, text, "-o", wav, "--words", path});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    EXPECT_NE(Contents(path).find(file.has), std::string::npos) << Contents(path);
    EXPECT_NE(Contents(path).find("there"), std::string::npos);
  }
  const std::string json = folder.File("a.json");
  ASSERT_EQ(RunTool({"speak", kVoice, text, "-o", wav, "--words", json}).exit_status, 0);
  const Json words = Json::parse(Contents(json));
  ASSERT_EQ(words["words"].size(), 5U);
  EXPECT_EQ(words["words"][1]["word"], "there");
  EXPECT_EQ(words["words"][1]["bytes"], Json({6, 11}));
  EXPECT_TRUE(words["report"]["measured"]);
  const Outcome wrong = RunTool({"speak", kVoice, text, "-o", wav, "--words", folder.File("a.txt")});
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_NE(wrong.err.find(".vtt, .srt, .json or .TextGrid"), std::string::npos) << wrong.err;
}

// The head of the bundled voice is found without looking at its description, and written into that of a copy.
TEST(ToolTest, AlignFindsTheHead) {
  const TemporaryFolder folder;
  const std::string copy = folder.File("voice");
  std::filesystem::copy(kVoice, copy, std::filesystem::copy_options::recursive);
  std::ofstream(copy + "/qttssrc.json") << R"({"default_speaker": "grace", "alignment": false})";
  EXPECT_EQ(RunTool({"align", copy}).exit_status, 0);
  EXPECT_NE(Contents(copy + "/qttssrc.json").find("false"), std::string::npos) << "nothing is written without --write";
  const Outcome outcome = RunTool({"align", copy, "--write", "--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json found = Json::parse(outcome.out);
  EXPECT_EQ(found["alignment"]["layer"], 1);
  EXPECT_EQ(found["alignment"]["head"], 0);
  EXPECT_NEAR(found["alignment"]["offset_ms"].get<double>(), 80, 50);
  EXPECT_EQ(found["heads"].size(), 28U);
  EXPECT_TRUE(found["used_so_far"].is_null());
  const Json description = Json::parse(Contents(copy + "/qttssrc.json"));
  EXPECT_EQ(description["alignment"], found["alignment"]);
  EXPECT_EQ(description["default_speaker"], "grace");
}

// The bundled voice keeps the numbers that the tool measures; another processor may speak a little differently.
TEST(ToolTest, LoudnessOfTheBundledVoice) {
  const TemporaryFolder folder;
  const std::string copy = folder.File("voice");
  std::filesystem::copy(kVoice, copy, std::filesystem::copy_options::recursive);
  const Json kept = Json::parse(Contents(copy + "/qttssrc.json"));
  std::ofstream(copy + "/qttssrc.json") << R"({"default_speaker": "grace"})";
  const Outcome outcome = RunTool({"loudness", copy, "--write", "--json"});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json measured = Json::parse(outcome.out)["loudness"];
  ASSERT_EQ(measured.size(), 5U);
  for (const auto& [speaker, loudness] : measured.items()) {
    EXPECT_NEAR(loudness.get<double>(), kept["loudness"][speaker].get<double>(), 0.5) << speaker;
  }
  const Json description = Json::parse(Contents(copy + "/qttssrc.json"));
  EXPECT_EQ(description["loudness"], measured);
  EXPECT_EQ(description["default_speaker"], "grace");
  const Outcome none = RunTool({"loudness"});
  EXPECT_EQ(none.exit_status, 1);
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
  const Json spoken = Json::parse(Contents(json));
  ASSERT_EQ(aligned["words"].size(), spoken["words"].size());
  for (size_t i = 0; i < spoken["words"].size(); ++i) {
    EXPECT_NEAR(aligned["words"][i]["start"].get<double>(), spoken["words"][i]["start"].get<double>(), 0.02) << i;
  }
  EXPECT_EQ(RunTool({"align", kVoice, "--codes", codes}).exit_status, 1) << "without the text";
  EXPECT_EQ(RunTool({"align", kVoice, "--text", text, "--codes", codes, "--write"}).exit_status, 1);
  EXPECT_EQ(RunTool({"align", kVoice, "--words", json}).exit_status, 1) << "without an utterance";
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
  EXPECT_EQ(RunTool({"decode", kVoice}, "").exit_status, 1) << "no --output";
  EXPECT_EQ(RunTool({"decode", kVoice, "--output", "/nonexistent/out.wav"}, "").exit_status, 1);
}

// A random Base checkpoint of tiny size.
void MakeBase(const std::string& folder, int seed) {
  const Outcome outcome =
      RunProgram(QTTS_GENERATOR, {"--preset", "tiny-base-0b6", "--seed", std::to_string(seed), folder});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
}

const std::string kReferences = QTTS_TEST_REFERENCES;

// Silence or a tone of 16-bit samples.
void WriteSound(const std::string& path, int rate, int channels, double seconds, bool tone) {
  const auto samples = static_cast<uint32_t>(seconds * rate) * static_cast<uint32_t>(channels);
  std::string data = "WAVEfmt ";
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) data += static_cast<char>(value >> (8 * i));
  };
  put(16, 4);
  put(1, 2);
  put(static_cast<uint32_t>(channels), 2);
  put(static_cast<uint32_t>(rate), 4);
  put(static_cast<uint32_t>(2 * rate * channels), 4);
  put(static_cast<uint32_t>(2 * channels), 2);
  put(16, 2);
  data += "data";
  put(2 * samples, 4);
  for (uint32_t i = 0; i < samples; ++i) put(tone ? (i % 200) * 100 : 0, 2);
  std::ofstream file(path, std::ios::binary);
  const auto size = static_cast<uint32_t>(data.size());
  std::string head = "RIFF";
  for (int i = 0; i < 4; ++i) head += static_cast<char>(size >> (8 * i));
  file << head << data;
}

// --- check

const Json& OwnReport() {
  static const Json report = [] {
    const Outcome outcome = RunTool({"check", kVoice, "--json"});
    EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  }();
  return report;
}

Outcome CheckAgainst(const Json& report, std::vector<std::string> more = {}) {
  const TemporaryFolder folder;
  const std::string path = folder.File("report.json");
  std::ofstream(path) << report.dump();
  std::vector<std::string> arguments = {"check", kVoice, "--against", path};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunTool(arguments);
}

TEST(ToolTest, CheckReportsTheModelAndAFixedRequest) {
  const Json& report = OwnReport();
  EXPECT_EQ(report["model"]["type"], "custom_voice");
  EXPECT_EQ(report["model"]["talker_layers"], 7);
  EXPECT_EQ(report["request"]["speaker"], "clara");
  EXPECT_EQ(report["tokens"].size(), report["request"]["lines"].size());
  EXPECT_GT(report["prompt"]["rows"].size(), 10U);
  ASSERT_EQ(report["runs"].size(), 1U);
  const Json& run = report["runs"][0];
  EXPECT_EQ(run["precision"], "f32");
  EXPECT_EQ(run["codes"].size(), 16U);
  EXPECT_EQ(run["codes"][0].size(), 12U);
  EXPECT_EQ(run["samples"]["count"], 16 * 1920);
  EXPECT_EQ(run["samples"]["sums"].size(), 16U);

  // The codes are those of the command `codes`.
  const Outcome codes = RunTool({"codes", kVoice, "--text", report["request"]["text"], "--speaker", "clara",
                                 "--language", "english", "--greedy", "--max-frames", "16", "--json"});
  ASSERT_EQ(codes.exit_status, 0) << codes.err;
  EXPECT_EQ(Json::parse(codes.out)["codes"], run["codes"]);
}

TEST(ToolTest, CheckRunsTheNamedPrecisionToo) {
  const Outcome outcome = CheckAgainst(OwnReport(), {"--device", "cpu", "--precision", "int8", "--json"});
  EXPECT_EQ(outcome.exit_status, 0) << outcome.err;
  const Json report = Json::parse(outcome.out);
  ASSERT_EQ(report["runs"].size(), 2U);
  EXPECT_EQ(report["runs"][0]["codes"], OwnReport()["runs"][0]["codes"]);
  EXPECT_EQ(report["runs"][1]["precision"], "int8");
  EXPECT_TRUE(report["against"]["equal"].get<bool>());
}

TEST(ToolTest, CheckNamesTheFirstDifference) {
  const Outcome equal = CheckAgainst(OwnReport());
  EXPECT_EQ(equal.exit_status, 0) << equal.err;
  EXPECT_NE(equal.out.find("result      equal"), std::string::npos) << equal.out;

  const struct {
    const char* pointer;
    Json value;
    const char* says;
  } changes[] = {{"/runs/0/codes/3/2", 99999, "frame 3, group 2: "},
                 {"/tokens/1/0", -1, "tokens: first difference at line 1, token 0: "},
                 {"/prompt/rows/4", Json::array({1, 2}), "prompt: first difference at row 4: "},
                 {"/model/talker_layers", 8, "talker_layers: 7 here, 8 in the file"},
                 {"/request/lines/0", "Other.", "lines, line 0: \"Hello, world.\" here"},
                 {"/runs/0/samples/picked/5", 0.5, "sample 5: "},
                 {"/runs/0/samples/sums/7", 99, "frame 7: "}};
  for (const auto& change : changes) {
    Json other = OwnReport();
    other[Json::json_pointer(change.pointer)] = change.value;
    const Outcome outcome = CheckAgainst(other);
    EXPECT_EQ(outcome.exit_status, 1) << change.pointer;
    EXPECT_NE(outcome.out.find(change.says), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("result      different"), std::string::npos) << outcome.out;
  }
}

TEST(ToolTest, CheckFindsAMissingPart) {
  Json other = OwnReport();
  other["runs"][0].erase("codes");
  const Outcome outcome = CheckAgainst(other);
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_NE(outcome.out.find("in F32: missing in the file"), std::string::npos) << outcome.out;
}

TEST(ToolTest, CheckRefusesAFileThatIsNoReport) {
  const Json wrong[] = {Json::array(),
                        Json::object(),
                        {{"format", "qtts-check-0"}, {"runs", Json::array()}},
                        {{"format", "qtts-check-1"}, {"runs", Json::array()}}};
  for (const Json& report : wrong) {
    const Outcome outcome = CheckAgainst(report);
    EXPECT_EQ(outcome.exit_status, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("not a report of the format"), std::string::npos) << outcome.err;
  }
  const Outcome missing = RunTool({"check", kVoice, "--against", "/nonexistent/report"});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_NE(missing.err.find("/nonexistent/report: cannot be read"), std::string::npos) << missing.err;
}

TEST(ToolTest, CheckAndTheOfficialScriptHaveOneRequest) {
  const Outcome script = RunProgram("python3", {QTTS_TEST_OFFICIAL_CHECK, "--request", kVoice});
  ASSERT_EQ(script.exit_status, 0) << script.err;
  EXPECT_EQ(Json::parse(script.out), OwnReport()["request"]);
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

// The tool's arguments are bytes: no locale may change them or refuse them.
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
  EXPECT_EQ(RunTool({"voice", "make"}).exit_status, 1);
  EXPECT_EQ(RunTool({"voice", "make", base, "--output", voice}).exit_status, 1);
  EXPECT_EQ(RunTool({"voice", "make", base, "--audio", wav}).exit_status, 1);
  EXPECT_EQ(RunTool({"voice", "show"}).exit_status, 1);
  EXPECT_EQ(RunTool({"voice", "show", wav}).exit_status, 1);
}

// A VoiceDesign checkpoint that ends its utterances.
void MakeDesign(const std::string& folder, int seed) {
  const Outcome outcome = RunProgram(
      QTTS_GENERATOR, {"--preset", "tiny-design-1b7", "--seed", std::to_string(seed), "--eos-logit", "4", folder});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
}

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

  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"voice", "design", base, "A man.", "-o", voice}, "needs a voice_design checkpoint"},
      {{"voice", "design", design, "-o", voice}, "describe the voice"},
      {{"voice", "design", design, "A man."}, "--output"},
      {{"voice", "design", design, "A man.", "-o", voice, "--text", "..."}, "nothing to say"},
      {{"voice", "design", design, "A man.", "-o", voice, "--takes", "0"}, "must be 1 to 64"},
      {{"voice", "design", design, "A man.", "-o", voice, "--max-frames", "1"}, "did not come to its end"},
      {{"voice", "design", design, "A man.", "--add-to", voice}, "--add-to needs --style"},
  };
  for (const auto& [arguments, part] : refused) {
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, 1) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

// Writes a voice of the recording with a style into a file, or into a file that is there.
Outcome MakeStyle(const std::string& base, const std::string& audio, const char* style, const char* option,
                  const std::string& file) {
  return RunTool({"voice", "make", base, "--audio", kReferences + audio, "--style", style, option, file, "--json"});
}

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
      {{a, "-o", mix}, "two voices"},         {{a, b + ":0", "-o", mix}, "has the weight 0"},
      {{a, b + ":-1", "-o", mix}, "above 0"}, {{a, c, "-o", mix}, "different checkpoints"},
      {{a, b + ":much", "-o", mix}, ":much"}, {{a, b}, "--output"},
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
