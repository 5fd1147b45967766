// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_TOOL_FIXTURE_H_
#define QTTS_TESTS_TOOL_FIXTURE_H_

#include <gio/gio.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "qtts/engine.h"

// Runs qtts-tool as a user does, and reads what it wrote.

namespace qtts {

using Json = nlohmann::json;

inline const std::string kVoice = QTTS_TEST_VOICE;

struct Outcome {
  int exit_status = -1;
  std::string out;
  std::string err;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

inline Outcome RunProgram(const std::string& program, std::vector<std::string> arguments, const std::string& input = "",
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

inline Outcome RunTool(const std::vector<std::string>& arguments, const std::string& input = "",
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

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Little-endian samples after the 44-byte header.
inline std::vector<float> ReadF32Wav(const std::string& path) {
  const std::string bytes = ReadBytes(path);
  std::vector<float> samples((bytes.size() - 44) / sizeof(float));
  memcpy(samples.data(), bytes.data() + 44, samples.size() * sizeof(float));
  return samples;
}

inline std::vector<float> EngineSpeaks(const std::string& text, uint64_t seed) {
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

// A random Base checkpoint of tiny size.
inline void MakeBase(const std::string& folder, int seed) {
  const Outcome outcome =
      RunProgram(QTTS_GENERATOR, {"--preset", "tiny-base-0b6", "--seed", std::to_string(seed), folder});
  ASSERT_EQ(outcome.exit_status, 0) << outcome.err;
}

inline const std::string kReferences = QTTS_TEST_REFERENCES;

// Silence or a tone of 16-bit samples.
inline void WriteSound(const std::string& path, int rate, int channels, double seconds, bool tone) {
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

}  // namespace qtts

#endif  // QTTS_TESTS_TOOL_FIXTURE_H_
