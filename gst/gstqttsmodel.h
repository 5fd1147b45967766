// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MODEL_H_
#define GST_QTTS_MODEL_H_

#include <gst/gst.h>

#include <optional>
#include <string>

#include "gstqttsloader.h"
#include "gstqttsspeech.h"
#include "qtts/engine_options.h"
#include "qtts/model_info.h"
#include "qtts/mutex.h"

namespace gstqtts {

// The model of the element. Inspected from NULL to READY, for early errors and the lists of voices; loaded from READY
// on, with progress messages.
//
// Owned by the element. The thread that changes states calls the first group; the second is thread-safe. Its mutex is
// held for nothing but its members.
class ElementModel {
 public:
  ElementModel(GstElement* element, Speech& speech) : element_(element), speech_(speech) {}
  ElementModel(const ElementModel&) = delete;
  ElementModel& operator=(const ElementModel&) = delete;

  // Inspects the model folder and the device, unless done already. Posts an error on failure.
  bool Inspect(const qtts::EngineOptions& options);
  // Releases the engine if the next run needs another.
  void ReleaseOther();
  // Starts the load for a run that has begun, if needed. Must follow the start of the streaming thread, for which the
  // engine's threads could otherwise leave none.
  void Load();
  // Ends the run. `cancelled`: before the load had ended.
  void EndRun(bool cancelled);
  // Releases the engine and forgets the model.
  void Forget();

  // Returns what is known of the model from READY on.
  std::optional<qtts::ModelInfo> info() const;
  // Returns the device name of the loaded engine; empty before.
  std::string device_name() const;
  bool on_cpu() const;
  // Returns the number of the GPU of the loaded engine; -1: the CPU, or nothing is loaded.
  int gpu() const;

 private:
  void Set(const std::optional<qtts::EngineOptions>& options, const std::optional<qtts::ModelInfo>& model);
  qtts::EngineOptions inspected() const;
  void LoadEnded(EngineLoader::Outcome outcome);
  void WarnIfGpuIsUnused(const std::string& warning);
  void PostProgress(GstProgressType type, const gchar* text);

  GstElement* const element_;
  Speech& speech_;

  mutable qtts::Mutex mutex_;
  std::optional<qtts::EngineOptions> inspected_
      QTTS_GUARDED_BY(mutex_);  // options for which `model_` was read; none in NULL
  std::optional<qtts::ModelInfo> model_ QTTS_GUARDED_BY(mutex_);
  std::string device_name_ QTTS_GUARDED_BY(mutex_);
  bool on_cpu_ QTTS_GUARDED_BY(mutex_) = false;
  int gpu_ QTTS_GUARDED_BY(mutex_) = -1;
};

}  // namespace gstqtts

#endif  // GST_QTTS_MODEL_H_
