// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsvoices.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "gstqttsreference.h"
#include "qtts/voice.h"

namespace gstqtts {
namespace {

constexpr size_t kMostVoices = 32;

// What a voice depends on.
std::string KeyOf(const qtts::Engine& engine, const Settings& settings) {
  const std::string& file = settings.voice_file.empty() ? settings.reference_audio : settings.voice_file;
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(file, error);
  std::string key = engine.info().fingerprint;
  for (const std::string& part : {settings.voice_file, settings.reference_audio, settings.reference_text}) {
    key.append(1, '\0').append(part);
  }
  key.append(settings.pad_reference ? "+" : "-");
  return error ? key : key + std::to_string(changed.time_since_epoch().count());
}

qtts::Result<qtts::ClonedVoice> MakeVoice(const qtts::Engine& engine, const Settings& settings,
                                          const std::function<bool()>& cancelled) {
  if (!settings.voice_file.empty()) return qtts::LoadVoice(settings.voice_file);
  QTTS_ASSIGN_OR_RETURN(const qtts::Recording recording, ReadReference(settings.reference_audio, cancelled));
  qtts::CloneOptions options;
  options.reference_text = settings.reference_text;
  options.pad_reference = settings.pad_reference;
  return engine.CloneVoice(recording, options);
}

}  // namespace

qtts::Result<std::shared_ptr<const qtts::ClonedVoice>> VoiceStore::Get(const qtts::Engine& engine,
                                                                       const Settings& settings,
                                                                       const std::function<bool()>& cancelled) {
  if (!settings.voice_file.empty() && !(settings.reference_audio.empty() && settings.reference_text.empty())) {
    return qtts::Status::InvalidArgument(
        "Both voice-file and a reference are set. A voice file holds its own reference: unset one of them.");
  }
  if (settings.reference_audio.empty() && !settings.reference_text.empty()) {
    return qtts::Status::InvalidArgument(
        "reference-text is set without reference-audio, the recording that says it. Set both or none.");
  }
  if (settings.voice_file.empty() && settings.reference_audio.empty()) {
    return std::shared_ptr<const qtts::ClonedVoice>();
  }
  const std::string key = KeyOf(engine, settings);
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    std::rotate(entries_.begin(), found, found + 1);
    return entries_.front().voice;
  }
  QTTS_ASSIGN_OR_RETURN(qtts::ClonedVoice voice, MakeVoice(engine, settings, cancelled));
  entries_.push_front({key, std::make_shared<const qtts::ClonedVoice>(std::move(voice))});
  if (entries_.size() > kMostVoices) entries_.pop_back();
  return entries_.front().voice;
}

}  // namespace gstqtts
