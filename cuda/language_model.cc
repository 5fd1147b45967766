// SPDX-License-Identifier: LGPL-2.1-or-later
#include "language_model.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/control_groups.h"
#include "base/log.h"
#include "runtime/cuda_error.h"
#include "runtime/device.h"
#include "runtime/device_table.h"
#include "runtime/device_wait.h"
#include "runtime/launch.h"
#include "runtime/memory_count.h"

namespace qtts::cuda {
namespace {

// Returns the machine's memory in bytes, or less where the process's control groups allow less.
size_t HostBytes() {
  const size_t machine = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L)) *
                         static_cast<size_t>(std::max(sysconf(_SC_PAGE_SIZE), 0L));
  return std::min(machine, MemoryLimit().value_or(machine));
}

bool CanUseLibrary(const CudaOptions& options) {
  return options.precision == Precision::kBF16 && options.weights == WeightForm::kPlain &&
         options.path != FramePath::kPersistent;
}

// Once for each load: the one that counts its memory says nothing.
void WarnOfOwnProducts(const CudaOptions& options, const Status& why) {
  if (CountsMemory()) return;
  Log(LogLevel::kWarning, "voices=" + std::to_string(options.max_slots) +
                              " without cuBLASLt, which is faster on this GPU in engines of more than " +
                              std::to_string(kMaxRows) + " voices: " + why.message());
}

}  // namespace

// A stream's bits must not depend on its company, so an engine has the library's products for all numbers of rows. Up
// to kMaxRows voices the project's own are as fast, and the persistent kernel's are faster.
bool PrefersLibrary(const CudaOptions& options) {
  return options.products == ManyRowsProducts::kBest && CanUseLibrary(options) && options.max_slots > kMaxRows &&
         !HasWarpgroupProducts();
}

LanguageModel::~LanguageModel() { (void)Succeeds(AwaitStream(stream_)); }

Result<std::unique_ptr<LanguageModel>> LanguageModel::Create(const Checkpoint& checkpoint, const CudaOptions& options,
                                                             cudaStream_t stream) {
  QTTS_RETURN_IF_ERROR(CheckNetwork(checkpoint.config()));
  std::unique_ptr<LanguageModel> model(new LanguageModel(stream));
  QTTS_RETURN_IF_ERROR(model->Load(checkpoint, options));
  QTTS_RETURN_IF_ERROR(CudaStatus(AwaitStream(stream), "loading the model"));
  return model;
}

Status LanguageModel::Load(const Checkpoint& checkpoint, const CudaOptions& options) {
  const DeviceDescription* device = nullptr;
  QTTS_RETURN_IF_CUDA_ERROR(DescribeDevice(&device), "asking for the device");
  const bool overlap = options.overlap && device->CanOverlap();
  QTTS_ASSIGN_OR_RETURN(numbers_, NumbersOfDevice());
  if (options.pace.has_value()) {
    numbers_.persistent = {.narrow_talker = *options.pace, .wide_talker = *options.pace, .predictor = *options.pace};
  }
  QTTS_ASSIGN_OR_RETURN(std::unique_ptr<CublasLt> library, ChooseManyRows(options));
  Status loaded = LoadNetwork(checkpoint, options, std::move(library));
  if (loaded.code() == StatusCode::kUnsupported && options.products == ManyRowsProducts::kBest &&
      numbers_.products.many_rows == ManyRowsProducts::kLibrary) {
    WarnOfOwnProducts(options, loaded);
    numbers_.products.many_rows = ManyRowsProducts::kWarp;
    loaded = LoadNetwork(checkpoint, options, nullptr);
  }
  QTTS_RETURN_IF_ERROR(loaded);
  QTTS_ASSIGN_OR_RETURN(buffers_, FrameBuffers::Allocate(*network_, plan_.frame));
  QTTS_ASSIGN_OR_RETURN(KvPages pages, Sequences::NewPages(*network_, stream_));
  QTTS_ASSIGN_OR_RETURN(graph_, GraphPath::Create(network_.get(), buffers_.get(), &numbers_, overlap, stream_));
  QTTS_ASSIGN_OR_RETURN(UploadRing uploads, UploadRing::Create());
  // An integrated device that is short of memory leaves none to the host.
  const size_t parking_bytes = options.parking_bytes.value_or(device->integrated ? 0 : HostBytes() / 4);
  sequences_ = std::make_unique<Sequences>(network_.get(), buffers_.get(), graph_.get(), &numbers_, std::move(pages),
                                           std::move(uploads), options.max_slots, parking_bytes, stream_);
  if (options.path == FramePath::kGraph || network_->library != nullptr) return Status::Ok();
  Result<std::unique_ptr<PersistentFrame>> persistent = PersistentFrame::Create(
      *network_, *buffers_, numbers_.persistent, options.patience, options.persistent_blocks, stream_);
  if (persistent.ok()) persistent_ = std::move(*persistent);
  const bool leave = options.path == FramePath::kBest && persistent.status().code() == StatusCode::kUnsupported;
  return leave ? Status::Ok() : persistent.status();
}

Status LanguageModel::LoadNetwork(const Checkpoint& checkpoint, const CudaOptions& options,
                                  std::unique_ptr<CublasLt> library) {
  plan_ = Plan(options.max_slots, checkpoint.config(), numbers_);
  if (options.prompt_rows.has_value()) {
    plan_.frame.prompt_rows = *options.prompt_rows;
    if (plan_.weights.library_rows > 0) {
      plan_.weights.library_rows = std::max<int64_t>(plan_.weights.library_rows, *options.prompt_rows);
    }
  }
  if (options.weights == WeightForm::kInt8) plan_.weights = {};  // a second copy would be larger than the first
  QTTS_ASSIGN_OR_RETURN(network_, Network::Load(checkpoint, options.precision, options.weights, &numbers_, stream_,
                                                plan_.weights, std::move(library)));
  return Status::Ok();
}

Result<std::unique_ptr<CublasLt>> LanguageModel::ChooseManyRows(const CudaOptions& options) {
  const bool can_use_warpgroups = options.precision == Precision::kBF16 && HasWarpgroupProducts();
  ManyRowsProducts& many_rows = numbers_.products.many_rows;
  switch (options.products) {
    case ManyRowsProducts::kWarp:
      numbers_.attention.whole_contexts = false;
      return std::unique_ptr<CublasLt>();
    case ManyRowsProducts::kWarpgroup:
      if (!can_use_warpgroups) {
        return Status::Unsupported(
            "the products of warpgroups need BF16, a GPU of compute capability 9.0 and a build for it (cuda-arch=90)");
      }
      many_rows = ManyRowsProducts::kWarpgroup;
      return std::unique_ptr<CublasLt>();
    case ManyRowsProducts::kLibrary:
      if (!CanUseLibrary(options)) {
        return Status::Unsupported(
            "QTTS_CUDA_PRODUCTS=cublaslt needs precision=bf16 and no QTTS_CUDA_PATH=persistent: that kernel has its "
            "own products");
      }
      break;
    case ManyRowsProducts::kBest:
      if (can_use_warpgroups) many_rows = ManyRowsProducts::kWarpgroup;
      if (!PrefersLibrary(options)) return std::unique_ptr<CublasLt>();
      break;
  }
  Result<std::unique_ptr<CublasLt>> library = CublasLt::Open();
  if (library.ok()) {
    many_rows = ManyRowsProducts::kLibrary;
    if (!CountsMemory() && LogEnabled(LogLevel::kInfo)) Log(LogLevel::kInfo, "products by cuBLASLt");
    return library;
  }
  if (options.products == ManyRowsProducts::kLibrary) return library.status();
  WarnOfOwnProducts(options, library.status());
  return std::unique_ptr<CublasLt>();
}

const FrameComputation& LanguageModel::PathFor(int rows, int splits) const {
  if (IsPersistent(rows, splits)) return *persistent_;
  return *graph_;
}

Status LanguageModel::EnqueueFrame(FrameStart start, int rows, int splits, const FrameRow* steps,
                                   FrameRowResult* results) {
  const FrameComputation& path = PathFor(rows, splits);
  const Launcher first(stream_, &numbers_);
  BeginFrame(first, network_->precision, buffers_->tables, steps, plan_.ring, buffers_->frame, buffers_->slots,
             buffers_->first_x, rows, buffers_->x);
  QTTS_RETURN_IF_CUDA_ERROR(first.error, kSpeaking);
  QTTS_RETURN_IF_ERROR(path.Enqueue(start, rows, splits));
  bool overlaps = path.overlaps();
  if (ScoresText()) {
    const Launcher scores(stream_, &numbers_, overlaps);
    ScoreText(scores, network_->precision, network_->talker.config, buffers_->aligned, buffers_->frame,
              buffers_->talker_pages(), plan_.ring, rows, results);
    QTTS_RETURN_IF_CUDA_ERROR(scores.error, kSpeaking);
    overlaps = graph_->overlaps();
  }
  const Launcher last(stream_, &numbers_, overlaps);
  const EpochWords epochs = persistent_ == nullptr ? EpochWords() : persistent_->epoch_words();
  EndFrame(last, steps, plan_.ring, buffers_->frame, buffers_->slots, network_->groups, rows, results,
           buffers_->hand_over, epochs);
  return CudaStatus(last.error, kSpeaking);
}

Result<FrameStart> LanguageModel::Begin(int slot, const Prompt& prompt, const GenerationSettings& settings,
                                        uint64_t seed) {
  QTTS_RETURN_IF_ERROR(sequences_->Open(slot, prompt, settings, seed));
  PromptProgress progress{slot, &prompt};
  while (progress.done < static_cast<int>(prompt.rows.size())) {
    sequences_->Prefill(std::span(&progress, 1));
    QTTS_RETURN_IF_ERROR(progress.status);
  }
  return Sequences::StartOf(prompt);
}

}  // namespace qtts::cuda
