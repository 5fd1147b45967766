// SPDX-License-Identifier: LGPL-2.1-or-later
#include "voice/clone.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/checks.h"
#include "base/log.h"
#include "qtts/utf8.h"
#include "voice/loudness.h"
#include "voice/reference.h"
#include "voice/reference_check.h"
#include "voice/reference_repair.h"

namespace qtts {
namespace {

// Half a second, see CloneOptions::pad_reference.
constexpr size_t kReferencePadding = kReferenceRate / 2;

}  // namespace

Result<ClonedVoice> CloneVoice(VoiceEncoder* encoder, const std::string& model, const Recording& recording,
                               const CloneOptions& options) {
  QTTS_ASSIGN_OR_RETURN(std::vector<float> pcm, PrepareReference(recording));
  if (options.prepare) {
    QTTS_ASSIGN_OR_RETURN(const auto done, RepairReference(!options.reference_text.empty(), &pcm));
    for (const std::string& change : done) Log(LogLevel::kInfo, "prepared the reference recording: " + change);
    if (done.empty()) Log(LogLevel::kInfo, "prepared the reference recording: nothing had to be changed");
  }
  ClonedVoice voice;
  for (const ReferenceFinding& finding : CheckReference(recording, pcm, options)) {
    voice.warnings.push_back(finding.message());
  }
  voice.model = model;
  QTTS_ASSIGN_OR_RETURN(voice.x_vector, encoder->SpeakerVector(pcm));
  if (!std::all_of(voice.x_vector.begin(), voice.x_vector.end(), [](float v) { return std::isfinite(v); })) {
    return DamagedModel(ModelPart::kSpeakerEncoder);
  }
  if (!options.reference_text.empty()) {
    // An in-context voice takes over the level of its example; an x-vector has none.
    voice.loudness = MeasureLoudness(pcm, kReferenceRate);
    voice.reference_text = RepairUtf8(options.reference_text);
    if (options.pad_reference) pcm.resize(pcm.size() + kReferencePadding);
    QTTS_ASSIGN_OR_RETURN(voice.reference_codes, encoder->Codes(pcm));
  }
  return voice;
}

Status CheckVoiceModel(const ClonedVoice& voice, const ModelInfo& model) {
  if (voice.model.empty() || voice.model == model.fingerprint) return Status::Ok();
  if (voice.designed()) {
    return Status::InvalidArgument("the designed voice was made with another model than " + model.path +
                                   "; design it again with this one");
  }
  return Status::InvalidArgument("the cloned voice was made with another model than " + model.path +
                                 "; make it again from its recording with this one");
}

}  // namespace qtts
