// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CUDA_CUDA_BACKEND_IMPL_H_
#define QTTS_CUDA_CUDA_BACKEND_IMPL_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/slot_table.h"
#include "codec/codec.h"
#include "codec/reference_cache.h"
#include "cuda_backend.h"
#include "language_model.h"
#include "runtime/device_memory.h"
#include "runtime/device_numbers.h"
#include "runtime/device_wait.h"
#include "runtime/processor_part.h"

// Part of the backend, for its sources only.
namespace qtts::cuda {

// One frame running and one queued: more would only be wasted when an utterance ends.
inline constexpr int kOutstanding = 2;

struct CudaBackend::Impl {
  // One utterance, and the slot on the device it has.
  struct Slot {
    int index = 0;
    Prompt prompt;  // emptied once all of it was enqueued
    int64_t prompt_rows = 0;
    int64_t rows_done = 0;
    size_t frames_primed = 0;
    bool primed = false;
    bool prefilled = false;
    bool parked = false;  // its pages are in the host's memory
    int64_t submitted = 0;
    FrameStart start = FrameStart::kInput;  // of the next frame
    EndReason end = EndReason::kNone;       // as far as the host knows; for kError, `status`
    Status status;
  };
  // One row of a submission: its result, or where that will be.
  struct Row {
    FrameResult result;
    int entry = -1;  // of the rings; below 0: `result` is complete
    int row = 0;
  };
  struct Submission {
    std::vector<Row> rows;
    int last_entry = -1;
    bool begins = false;  // an utterance: somebody waits for it
  };

  CudaOptions options;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::string name;
  Stream stream;                                    // talker, predictor, sampling
  Stream codec_stream;                              // a frame's sound is made while the next frame's codes are
  std::map<CodecShare, ProcessorPart> codec_parts;  // where its graphs are recorded
  std::unique_ptr<Codec> codec;
  std::unique_ptr<LanguageModel> model;
  int samples = 0;

  FrameRing ring;
  PinnedMemory steps;                                        // FrameRow [ring.entries][ring.rows]
  PinnedMemory results;                                      // FrameRowResult [ring.entries][ring.rows]
  PinnedMemory out;                                          // float [ring.entries][ring.rows][samples]
  DeviceMemory pcm;                                          // float [CodecRows()][samples], of a slice
  std::vector<Event> chosen;                                 // [ring.entries] a frame's codes are there
  std::vector<Event> done;                                   // [ring.entries] its sound is
  std::vector<int> unread;                                   // [ring.entries] its rows that nobody has read
  uint64_t launched = 0;                                     // frames, since the start
  std::map<std::tuple<FrameStart, int, int>, Graph> graphs;  // by start, rows and splits
  // Rows of a frame whose sound is made at once.
  struct Slice {
    int first = 0;
    int rows = 0;
  };
  // The parts of a slice's codec work: kAll on codec_stream; or kBegin on `stream`, then kFinish on codec_stream beside
  // the next frame's codes.
  enum class CodecWork { kAll, kBegin, kFinish };
  // By slice, part of the hand-over, share and work.
  std::map<std::tuple<int, int, int, CodecShare, CodecWork>, Graph> codec_graphs;
  Event codec_idle;  // all that was enqueued on codec_stream is done
  Event begun;       // kBegin is

  UploadRing reference_uploads;
  DeviceMemory reference_pcm;
  std::optional<ReferenceCache> references;

  // Rows of a step that are launched together, in memory that steps share.
  struct StepLaunch {
    std::vector<std::pair<Row*, FrameRow>> rows;
    int64_t positions = 1;
  };
  std::array<StepLaunch, 4> step_launches;
  StepLaunch& LaunchOf(FrameStart start, bool is_long) {
    return step_launches[(start == FrameStart::kPrompt ? 0 : 2) + (is_long ? 1 : 0)];
  }

  SlotTable<Slot> slots{"GPU", 0};
  PromptLimits limits;
  std::set<int> free_indices;
  int used_indices = 0;  // indices that were ever taken: their slots have a codec's state
  std::deque<Submission> outstanding;
  Status lost;  // not ok once the device is

  ~Impl() {
    (void)Succeeds(cudaSetDevice(options.device));
    for (const Stream* s : {&stream, &codec_stream}) {
      if (s->get() != nullptr) (void)Succeeds(AwaitStream(s->get()));
    }
  }

  Status Load();
  Status WarmUp();
  // Loads the code of kernels that no warm-up launches.
  Status LoadCode() const;
  Status Prime(Slot* slot);
  // The next piece of a slot's prompt, and its result.
  struct Piece {
    Slot* slot = nullptr;
    PrefillProgress progress;
    Status status;
  };
  void RunPieces(std::span<Piece> pieces);
  Result<const Graph*> FrameGraph(FrameStart start, int rows, int splits);
  // Returns the graph, recorded at the first call. Where a part of the SMs has no room for a kernel, the graph has all
  // of them. `share`: of kAll.
  Result<const Graph*> CodecGraph(Slice slice, int part, CodecWork work, CodecShare share = {});
  Result<Graph> RecordCodec(Slice slice, int part, CodecWork work, cudaStream_t at, int processors);
  // Returns true if the codec fits beside the kernel that makes codes.
  bool LeavesRoom(int rows, int splits) const { return rows == 1 && model->IsPersistent(rows, splits); }
  // Returns the bytes that the codec still has to allocate for slots that were never taken.
  size_t UnusedStateBytes() const {
    return static_cast<size_t>(options.max_slots - used_indices) * codec->past_bytes();
  }
  int CodecRows() const { return model->plan().codec_rows; }
  // Returns the rows of the smallest slice that has graphs and holds `rows` rows.
  int SliceRows(int rows) const;
  // Returns the codec's share while the next codes are computed.
  CodecShare ShareBesideCodes(int rows) const {
    return options.codec_in_part ? model->numbers().codec.ShareOf(rows) : CodecShare();
  }
  // Returns the slices of a frame of `rows` rows.
  std::vector<Slice> SlicesOf(int rows) const;
  // Lets a few first frames join many others, rather than pass through the predictor and the codec apart.
  void JoinFirstFrames();
  // Launches rows that begin alike. `pipelined`: behind another submission.
  Status LaunchRows(FrameStart start, std::span<const std::pair<Row*, FrameRow>> rows, int64_t positions,
                    bool pipelined, Submission* submission);
  void ReadRow(Row* row);
  // Makes an entry of the rings free for another frame.
  Status FreeEntry(int entry, Submission* newest);
  // Ends a slot for a reason found by the host.
  static void Fail(Slot* slot, Row* row, Status status) {
    slot->end = EndReason::kError;
    slot->status = std::move(status);
    row->result.end = slot->end;
    row->result.status = slot->status;
  }
  // Returns the open slot of a call that moves pages, and what has become of it.
  Result<Slot*> FindToMove(SlotId id) {
    QTTS_RETURN_IF_ERROR(lost);
    QTTS_RETURN_IF_ERROR(MakeCurrent());
    return slots.Get(id);
  }
  Status NoteIfDeviceLost(Status status) {
    if (status.code() == StatusCode::kDeviceUnavailable) lost = status;
    return status;
  }
  Status Await(int entry, std::chrono::milliseconds patience);
  // Calls may come from other threads than Create() did, and the current device is a thread's.
  Status MakeCurrent() const { return CudaStatus(UseDevice(options.device), kSpeaking); }
};

}  // namespace qtts::cuda

#endif  // QTTS_CUDA_CUDA_BACKEND_IMPL_H_
