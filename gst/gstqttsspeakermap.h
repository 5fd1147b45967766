// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_SPEAKER_MAP_H_
#define GST_QTTS_SPEAKER_MAP_H_

#include <gst/gst.h>

#include <map>
#include <string>
#include <vector>

namespace gstqtts {

// Custom event of transcribers: the text that follows was said by `speaker`, a string; unset: by nobody known.
inline constexpr gchar kSpeakerChangeEvent[] = "rstranscribe/speaker-change";

// The voices of the speakers of a transcript, by the property "speaker-map". In this order, a speaker has
//
//   1. the value of the field with its name: the name of a preset voice, or a structure with fields as `params` has
//   them
//   2. the preset voice of the same name
//   3. the value of the field "default"
//   4. the first preset voice that is neither in the map nor given to another speaker; it keeps that for the run
//   5. the voice of the properties
//
// Not thread-safe.
class SpeakerMap {
 public:
  // Takes back the voices that were given by rules 2 and 4.
  void Restart() { given_.clear(); }
  // Returns the settings for the text of `name`, to be freed by the caller. Null: those of the properties. `presets`:
  // the preset voices of the model.
  GstStructure* SettingsOf(const GstStructure* map, const std::string& name, const std::vector<std::string>& presets);

 private:
  std::string Give(const GstStructure* map, const std::string& name, const std::vector<std::string>& presets);

  // Preset voices by the names to which rules 2 and 4 gave them: at most two names a voice.
  std::map<std::string, std::string> given_;
};

}  // namespace gstqtts

#endif  // GST_QTTS_SPEAKER_MAP_H_
