// SPDX-License-Identifier: LGPL-2.1-or-later
// qtts-tool speak and qtts-tool text.
#include <fcntl.h>
#include <gio/gio.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tool_fixture.h"

namespace qtts {
namespace {

const std::string kText = "Good morning.";

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

// Check: 52
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

// Check: 52
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
    int exit_status = 1;
  } refused[] = {{{"--normalize", "all"}, "--normalize \"all\": must be model, none or spoken", 2},
                 {{"--emoji", "loud"}, "--emoji \"loud\": must be silent or names", 2},
                 {{"--lexicon", "/nowhere/lexicon"}, "/nowhere/lexicon"}};
  for (const auto& [options, part, exit_status] : refused) {
    std::vector<std::string> arguments = {"text", kVoice, "Hi."};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = RunTool(arguments);
    EXPECT_EQ(outcome.exit_status, exit_status);
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

// Check: 52
TEST(ToolTest, SpeakRefusesBeforeAnyWork) {
  const TemporaryFolder folder;
  const Environment no_voice = {{"QTTS_VOICE_PATH", "/nonexistent/voice"}};
  const std::string out = folder.File("out.wav");
  const struct {
    std::vector<std::string> words;
    std::string part;
    std::string input;
    int exit_status = 1;
  } refused[] = {{{kVoice, "Hi."}, "name the file to write with --output", "", 2},
                 {{"-o", out}, "name what to speak", "", 2},
                 {{kVoice, "-o", out}, "name what to speak", "", 2},
                 {{kVoice, "Hi.", "--text", "Hi.", "-o", out}, "are two texts", "", 2},
                 {{kVoice, "  ", "-o", out}, "nothing to say", ""},
                 {{kVoice, "\xF0\x9F\x99\x82!", "-o", out}, "nothing to say", ""},
                 {{kVoice, "-", "-o", out}, "nothing to say", "\n\n"},
                 {{kVoice, "Hi.", "-o", folder.File("out.mp3")}, "the extension must be .wav or .raw", ""},
                 {{kVoice, "Hi.", "-o", folder.File("out")}, "the extension must be .wav or .raw", ""},
                 {{kVoice, "Hi.", "-o", folder.File("")}, "is a folder", ""},
                 {{kVoice, "Hi.", "-o", out, "--raw"}, "--raw contradicts", ""},
                 {{kVoice, "Hi.", "-o", out, "--format", "s24"}, "--format \"s24\": must be s16 or f32", "", 2},
                 {{kVoice, "Hi.", "-o", "/nonexistent/out.wav"}, "cannot be written: No such file", ""},
                 {{kVoice, "Hi.", "-o", out, "--device", "gpu"}, "must be auto, cpu or cuda", "", 2},
                 {{kVoice, "Hi.", "-o", out, "--speaker", "nobody"}, "unknown speaker", ""},
                 {{"Hi.", "-o", out}, "there is no bundled voice: /nonexistent/voice", ""}};
  for (const auto& [words, part, input, exit_status] : refused) {
    std::vector<std::string> arguments = {"speak"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = RunTool(arguments, input, no_voice);
    EXPECT_EQ(outcome.exit_status, exit_status) << part;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(FilesIn(folder.File("")), 0U) << part;
  }
  const Outcome both = RunTool({"speak", kVoice, "Hi.", "-o", "-", "--json"});
  EXPECT_EQ(both.exit_status, 2);
  EXPECT_NE(both.err.find("both write to standard output"), std::string::npos) << both.err;
  const Outcome utf16 = RunProgram(
      "/bin/sh", {"-c", "printf 'H\\000i\\000' | \"$0\" speak \"$1\" - -o \"$2\"", QTTS_TEST_TOOL, kVoice, out});
  EXPECT_EQ(utf16.exit_status, 1);
  EXPECT_NE(utf16.err.find("zero bytes"), std::string::npos) << utf16.err;
  EXPECT_EQ(FilesIn(folder.File("")), 0U);
}

// Check: 53
TEST(ToolTest, SpeakWarnsOfTextThatTheModelCannotSpeak) {
  const TemporaryFolder folder;
  const std::vector<std::string> speak = {"speak", kVoice, "你好。", "--max-frames", "2", "-o", folder.File("out.wav")};
  EXPECT_NE(RunTool(speak).err.find("warning: The text is in Han script."), std::string::npos);
  std::vector<std::string> named = speak;
  named.insert(named.end(), {"--language", "english"});
  EXPECT_EQ(RunTool(named).err.find("Han"), std::string::npos);
}

// The old file stays until the new one is complete. If the path is a link, its target is replaced.
// Check: 52
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

// Check: 52
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

// Check: 52
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
// Check: 52
TEST(ToolTest, ASignalThatIsIgnoredStaysSo) {
  const TemporaryFolder folder;
  LongSpeech speech(folder.File("out.wav"), "trap '' INT; ");
  ASSERT_TRUE(WaitForPart(folder.File("")));
  speech.Send(SIGINT);
  g_usleep(50000);
  speech.Send(SIGTERM);
  EXPECT_EQ(speech.Wait().exit_status, 128 + SIGTERM);
}

// Check: 52
TEST(ToolTest, SpeakWritesSoundWhileItIsMade) {
  LongSpeech speech("-");
  speech.WaitForSound();
  speech.Send(SIGTERM);
  EXPECT_EQ(speech.Wait().exit_status, 128 + SIGTERM) << "it had not ended yet";
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
    EXPECT_NE(ReadBytes(path).find(file.has), std::string::npos) << ReadBytes(path);
    EXPECT_NE(ReadBytes(path).find("there"), std::string::npos);
  }
  const std::string json = folder.File("a.json");
  ASSERT_EQ(RunTool({"speak", kVoice, text, "-o", wav, "--words", json}).exit_status, 0);
  const Json words = Json::parse(ReadBytes(json));
  ASSERT_EQ(words["words"].size(), 5U);
  EXPECT_EQ(words["words"][1]["word"], "there");
  EXPECT_EQ(words["words"][1]["bytes"], Json({6, 11}));
  EXPECT_TRUE(words["report"]["measured"]);
  const Outcome wrong = RunTool({"speak", kVoice, text, "-o", wav, "--words", folder.File("a.txt")});
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_NE(wrong.err.find(".vtt, .srt, .json or .TextGrid"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace qtts
