// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_LANGUAGE_MODEL_H_
#define QTTS_CUDA_LANGUAGE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "checkpoint/checkpoint.h"
#include "frame/frame.h"
#include "frame/frame_state.h"
#include "gemm/gemm.h"
#include "network/stack.h"
#include "network/weight_loader.h"
#include "paths/persistent/persistent_frame.h"
#include "prompt/prompt.h"
#include "qtts/request.h"
#include "qtts/status.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"
#include "sequences/kv_pages.h"
#include "sequences/prefix_cache.h"

namespace qtts::cuda {

// How frames of few utterances are computed: by a kernel for each product, in a graph, or by one persistent kernel
// (paths/persistent/persistent_frame.h). The results are the same, bit for bit.
enum class FramePath { kBest, kGraph, kPersistent };

// What a frame's rows begin with.
enum class FrameStart {
  kInput,   // the talker's input: of the last codes and a text id, or of a prompt's last row
  kPrompt,  // what the talker has made of a prompt to its last row: with the talker's head
};

struct LanguageModelOptions {
  Precision precision = Precision::kBF16;
  int max_slots = kMaxRows;
  // Lets kernels start before their predecessor has ended, where the device can.
  bool overlap = true;
  // kPersistent: an error where device or model do not allow it; kBest: then the graph.
  FramePath path = FramePath::kBest;
  unsigned patience = PersistentFrame::kPatience;  // for tests
};

// Talker, code predictor and sampling on the current device: from prompts and text ids to codes. All
// state of the utterances lies on the device, by slot; the host only enqueues.
//
// Everything runs on one stream. What a slot gives depends on its own prompt, settings and seed only, bit
// for bit. Not thread-safe.
class LanguageModel {
 public:
  // Loads the weights; waits for that. kUnsupported for structures that the kernels do not cover.
  static Result<std::unique_ptr<LanguageModel>> Create(const Checkpoint& checkpoint,
                                                       const LanguageModelOptions& options, cudaStream_t stream);
  // Waits for the stream.
  ~LanguageModel();

  // Rows that EnqueueFrame() may be asked for, ascending.
  static constexpr std::array<int, 7> kRowBuckets = {1, 2, 4, 8, 16, 32, kMaxRows};
  static int RowBucket(int rows);
  // Splits for EnqueueFrame() that cover contexts of `positions`, and the rows that go with so many.
  int SplitBucket(int64_t positions) const;
  int MaxRows(int splits) const;
  // Every split bucket up to the model's longest context.
  std::vector<int> SplitBuckets() const;

  // Ids inside their tables, lengths inside the model.
  Status Check(const Prompt& prompt) const;
  Status CheckText(int32_t text_id) const;
  int64_t max_positions() const { return max_positions_; }

  // Records the graphs of prompts, for which the first utterances would otherwise have to wait.
  Status WarmUp();

  // Rows of a prompt that are enqueued in one go: all of one of ordinary length. Longer ones go on by kMaxRows.
  static constexpr int kRowsAtOnce = 256;

  // Makes `slot` an utterance with room for `prompt`, which has been checked. When it fails the slot is closed.
  Status Open(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed);
  // Enqueues the next rows of an open slot's prompt, of which `done` have been, and returns how many have been now. Of
  // a long prompt three pieces are under way at most, since each needs a place of the upload ring: this waits for one.
  Result<int> Prefill(int slot, const Prompt& prompt, int done);
  // What the first frame begins with: with the prompt's last row where nothing else of the prompt has to go through the
  // talker.
  static FrameStart StartOf(const Prompt& prompt);
  // Open() and all of Prefill(), where nobody else waits.
  Result<FrameStart> Begin(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed);
  void Close(int slot);
  // Makes room for the input at `position` of an open slot.
  Status Extend(int slot, int64_t position);

  // One frame of up to `rows` rows (a row bucket) that begin alike, taken from the next entry of `steps`
  // [kRing][kMaxRows] and reported in that of `results`: for capture in a graph. Both are host memory. The rows that go
  // on have their codes in hand_over(). What begins with kPrompt looks at no context: one split.
  Status EnqueueFrame(FrameStart start, int rows, int splits, const FrameRow* steps, FrameRowResult* results);

  // Not ok once the device has given up a frame: all that came since means nothing.
  Status Health() const { return persistent_ == nullptr ? Status::Ok() : persistent_->Health(); }
  // Whether frames of so many rows and splits are the persistent kernel's.
  bool IsPersistent(int rows, int splits) const { return persistent_ != nullptr && persistent_->Covers(rows, splits); }

  const CodecHandOver& hand_over() const { return hand_over_; }
  int groups() const { return groups_; }
  int hidden_size() const { return talker_.config.hidden_size; }
  size_t weight_bytes() const { return loader_->bytes(); }
  size_t cache_bytes() const { return pages_.device_bytes(); }
  size_t scratch_bytes() const { return scratch_bytes_; }
  // Bytes of weights that a frame of one row reads.
  size_t frame_bytes() const { return frame_bytes_; }

  // Logits of the last frame, for tests: F32 [rows][vocab], of the talker (group 0) or the predictor.
  const float* logits(int group) const;
  int vocab(int group) const { return group == 0 ? talker_head_.outputs : heads_.front().outputs; }

 private:
  LanguageModel(const ModelConfig& config, const LanguageModelOptions& options, cudaStream_t stream);
  Status Load(const Checkpoint& checkpoint);
  Result<Stack> LoadStack(const TransformerConfig& config, const TransformerWeights& weights);
  Status LoadText(const TalkerWeights& talker);
  Status LoadCodeTables(const Checkpoint& checkpoint);
  Status AllocateState();
  Status PreparePersistent();
  template <typename T>
  Result<T*> NewArray(size_t count);

  void EnqueueLayers(const Launcher& launch, const Stack& stack, const SequenceRows& rows, const KeyValuePages& pages,
                     int splits, float* x, const int* live, bool prompt);
  void EnqueueTalker(const Launcher& launch, FrameStart start, int rows, int splits);
  void EnqueuePredictor(const Launcher& launch, int rows);
  Status PrefillRows(int slot, const PromptRowIds* rows, const float* x_vector, int begin, int end);
  Result<const Graph*> PrefillGraph(int rows, int splits);
  // Rows of a prompt that the prefix cache keeps.
  static int PrefixRows(const Prompt& prompt);
  // The rows from `begin` to `end`, and the x-vector.
  Result<std::pair<const PromptRowIds*, const float*>> Upload(const Prompt& prompt, int begin, int end);
  Launcher NewLauncher() const;

  ModelConfig config_;
  LanguageModelOptions options_;
  cudaStream_t stream_;
  bool overlap_ = false;
  DeviceNumbers numbers_;
  int groups_;
  int64_t max_positions_;
  int pages_per_slot_ = 0;
  std::unique_ptr<WeightLoader> loader_;

  Stack talker_, predictor_;
  Matrix talker_head_;
  std::vector<Matrix> heads_;
  Matrix projection_;  // talker's width to the predictor's; no data: they are one
  Table text_table_;
  std::vector<Table> code_tables_;       // [groups], the talker's width
  std::vector<Table> predictor_tables_;  // [groups - 1], the predictor's width
  size_t frame_bytes_ = 0;

  std::vector<DeviceMemory> memory_;
  size_t scratch_bytes_ = 0;
  EmbeddingTables tables_;
  FrameRows frame_;
  CodecHandOver hand_over_;
  SlotState* slots_ = nullptr;
  unsigned* history_ = nullptr;
  int history_words_ = 0;
  float* first_x_ = nullptr;      // [slots][talker's width], what first frames begin with
  float* x_ = nullptr;            // [kMaxRows][talker's width]
  float* predictor_x_ = nullptr;  // [2 * kMaxRows][predictor's width]
  float* qkv_ = nullptr;
  NormedRows normed_;  // of either stack
  float* talker_logits_ = nullptr;
  float* predictor_logits_ = nullptr;  // [groups - 1][kMaxRows][vocab]
  AttentionScratch attention_scratch_;
  int row_splits_ = 0;  // rows times splits that it has room for
  PromptPiece* prompt_piece_ = nullptr;
  int* prompt_positions_ = nullptr;        // of the piece's rows
  void** page_table_ = nullptr;            // [slots][pages_per_slot_]
  void** predictor_page_table_ = nullptr;  // [kMaxRows]

  std::unique_ptr<PersistentFrame> persistent_;  // or none

  KvPages pages_;
  std::vector<std::vector<void*>> slot_pages_;  // of the slots' tables
  UploadRing uploads_;
  std::map<std::pair<int, int>, Graph> prefill_graphs_;
  std::optional<PrefixCache> prefixes_;  // once there are pages
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_LANGUAGE_MODEL_H_
