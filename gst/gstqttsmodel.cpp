// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsmodel.h"

#include <atomic>
#include <utility>

#include "gstqttserror.h"
#include "gstqttslog.h"
#include "gstqttspcm.h"
#include "qtts/bundled_voice.h"
#include "qtts/engine.h"

#define GST_CAT_DEFAULT gst_qtts_src_debug

namespace gstqtts {

std::optional<qtts::ModelInfo> ElementModel::info() const {
  const qtts::MutexLock lock(mutex_);
  return model_;
}

std::string ElementModel::device_name() const {
  const qtts::MutexLock lock(mutex_);
  return device_name_;
}

bool ElementModel::on_cpu() const {
  const qtts::MutexLock lock(mutex_);
  return on_cpu_;
}

int ElementModel::gpu() const {
  const qtts::MutexLock lock(mutex_);
  return gpu_;
}

qtts::EngineOptions ElementModel::inspected() const {
  const qtts::MutexLock lock(mutex_);
  return inspected_.value_or(qtts::EngineOptions());
}

void ElementModel::Set(const std::optional<qtts::EngineOptions>& options, const std::optional<qtts::ModelInfo>& model) {
  {
    const qtts::MutexLock lock(mutex_);
    inspected_ = options;
    model_ = model;
  }
  g_object_notify(G_OBJECT(element_), "speakers");
  g_object_notify(G_OBJECT(element_), "default-speaker");
  g_object_notify(G_OBJECT(element_), "languages");
}

bool ElementModel::Inspect(const qtts::EngineOptions& options) {
  const std::string& path = options.model_path;
  {
    const qtts::MutexLock lock(mutex_);
    if (inspected_ == options) return true;
  }
  // Release a model loaded with other options before loading the new one: both may not fit into memory.
  speech_.player().Release();
  auto model = qtts::Engine::Inspect(options);
  qtts::Status status = qtts::ExplainMissingVoice(model.status(), path);
  if (status.ok() && model->sample_rate != SAMPLE_RATE) {
    status = qtts::Status::Unsupported("The model in " + path + " speaks at " + std::to_string(model->sample_rate) +
                                       " Hz; this element needs one of " G_STRINGIFY(SAMPLE_RATE) " Hz.");
  }
  if (!status.ok()) {
    PostError(element_, status, "inspecting the model failed");
    return false;
  }
  GST_INFO_OBJECT(element_, "model %s: %s, %zu speakers, %zu languages", path.c_str(),
                  std::string(qtts::ModelTypeName(model->type)).c_str(), model->speakers.size(),
                  model->languages.size());
  Set(options, *model);
  return true;
}

void ElementModel::PostProgress(GstProgressType type, const gchar* text) {
  gst_element_post_message(element_, gst_message_new_progress(GST_OBJECT(element_), type, "load", text));
}

// Warns once per process: a server has an element for each of its voices.
void ElementModel::WarnIfGpuIsUnused(const std::string& warning) {
  static std::atomic<bool> warned = false;
  if (warning.empty() || warned.exchange(true)) return;
  PostWarning(element_, qtts::Status::DeviceUnavailable(warning), "loading the model");
}

// Runs on the loader's thread: the streaming thread of a live pipeline in PAUSED does not run.
void ElementModel::LoadEnded(EngineLoader::Outcome outcome) {
  if (outcome.ok()) {
    const std::string device_name = (*outcome)->device_name();
    GST_INFO_OBJECT(element_, "model loaded, runs on %s", device_name.c_str());
    {
      const qtts::MutexLock lock(mutex_);
      device_name_ = device_name;
      on_cpu_ = !(*outcome)->beside_host();
      gpu_ = (*outcome)->gpu();
    }
    WarnIfGpuIsUnused((*outcome)->passed_over());
    PostProgress(GST_PROGRESS_TYPE_COMPLETE, "The model is loaded");
  } else {
    PostError(element_, outcome.status(), "loading the model failed");
    PostProgress(GST_PROGRESS_TYPE_ERROR, "Loading the model failed");
  }
  speech_.UseLoad(std::move(outcome));
}

void ElementModel::ReleaseOther() {
  if (speech_.player().NeedsLoad(inspected())) speech_.player().Release();
}

void ElementModel::Load() {
  const qtts::EngineOptions options = inspected();
  if (!speech_.player().NeedsLoad(options)) return;
  GST_INFO_OBJECT(element_, "loading %s", options.model_path.c_str());
  PostProgress(GST_PROGRESS_TYPE_START, "Loading the model");
  speech_.player().Load(options, [this](EngineLoader::Outcome outcome) { LoadEnded(std::move(outcome)); });
}

void ElementModel::EndRun(bool cancelled) {
  if (cancelled) PostProgress(GST_PROGRESS_TYPE_CANCELED, "Loading the model was canceled");
}

void ElementModel::Forget() {
  speech_.player().Release();
  Set(std::nullopt, std::nullopt);
}

}  // namespace gstqtts
