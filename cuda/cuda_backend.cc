// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda_backend.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "backend/checks.h"
#include "backend/slot_table.h"
#include "codec/codec.h"
#include "codec/reference_cache.h"
#include "device_choice.h"
#include "encoder/voice_encoder.h"
#include "language_model.h"
#include "qtts/polling.h"
#include "runtime/device_memory.h"

namespace qtts::cuda {
namespace {

constexpr const char* kSpeaking = "making speech";
// One frame running and one queued: more would only be wasted when an utterance ends.
constexpr int kOutstanding = 2;
// Reference frames enqueued at once: all frames of a reference of 10 s. Longer references continue in pieces of about
// one frame's time.
constexpr size_t kReferenceAtOnce = 128;
constexpr size_t kReferencePiece = 16;
// Most waits last one frame. The first wait of an utterance includes its prompt.
// With a PollPermit.
constexpr std::chrono::milliseconds kFramePatience{5};
constexpr std::chrono::milliseconds kFirstFramePatience{20};

}  // namespace

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
    EndReason end = EndReason::kNone;       // what the host knows of; for kError, `status`
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
  Stream stream;        // talker, predictor, sampling
  Stream codec_stream;  // a frame's sound is made while the next frame's codes are
  std::unique_ptr<Codec> codec;
  std::unique_ptr<LanguageModel> model;
  int samples = 0;

  FrameRing ring;
  PinnedMemory steps;                                        // FrameRow [ring.entries][ring.rows]
  PinnedMemory results;                                      // FrameRowResult [ring.entries][ring.rows]
  PinnedMemory out;                                          // float [ring.entries][ring.rows][samples]
  DeviceMemory pcm;                                          // float [ring.rows][samples]
  std::vector<Event> chosen;                                 // [ring.entries] a frame's codes are there
  std::vector<Event> done;                                   // [ring.entries] its sound is
  std::vector<int> unread;                                   // [ring.entries] its rows that nobody has read
  uint64_t launched = 0;                                     // frames, since the start
  std::map<std::tuple<FrameStart, int, int>, Graph> graphs;  // by start, rows and splits
  // What makes a frame's sound: kAll on codec_stream; or kBegin on `stream`, then kFinish on codec_stream beside the
  // next frame's codes.
  enum class CodecWork { kAll, kBegin, kFinish };
  std::map<std::tuple<int, int, CodecWork>, Graph> codec_graphs;  // by rows, part of the hand-over and work
  Event codec_idle;                                               // all that was enqueued on codec_stream is done
  Event begun;                                                    // kBegin is

  UploadRing reference_uploads;
  DeviceMemory reference_pcm;
  std::optional<ReferenceCache> references;

  // Rows of a step that are launched together, in memory that steps share.
  struct Together {
    std::vector<std::pair<Row*, FrameRow>> rows;
    int64_t positions = 1;
  };
  std::array<Together, 4> together;
  Together& TogetherOf(FrameStart start, bool is_long) {
    return together[(start == FrameStart::kPrompt ? 0 : 2) + (is_long ? 1 : 0)];
  }

  SlotTable<Slot> slots{"GPU", 0};
  PromptLimits limits;
  std::set<int> free_indices;
  int used_indices = 0;  // that have ever been taken: their slots have a codec's state
  std::deque<Submission> outstanding;
  Status lost;  // not ok once the device is

  ~Impl() {
    (void)Succeeds(cudaSetDevice(options.device));
    for (const Stream* s : {&stream, &codec_stream}) {
      if (s->get() != nullptr) (void)Succeeds(cudaStreamSynchronize(s->get()));
    }
  }

  Status Load();
  Status WarmUp();
  Status Prime(Slot* slot);
  // The next piece of a slot's prompt, and what came of it.
  struct Piece {
    Slot* slot = nullptr;
    PrefillProgress progress;
    Status status;
  };
  void RunPieces(std::span<Piece> pieces);
  Result<const Graph*> FrameGraph(FrameStart start, int rows, int splits);
  Result<const Graph*> CodecGraph(int rows, int part, CodecWork work);
  // True if the codec fits beside the kernel that makes codes.
  bool LeavesRoom(int rows, int splits) const { return rows == 1 && model->IsPersistent(rows, splits); }
  // What the codec has not allocated yet for the slots.
  size_t UnusedStateBytes() const {
    return static_cast<size_t>(options.max_slots - used_indices) * codec->past_bytes();
  }
  int CodecRows() const { return std::min(ring.rows, kCodecRows); }
  // Few first frames join the many others, rather than pass through the predictor and the codec apart.
  void JoinFirstFrames();
  // Rows that begin alike.
  Status LaunchRows(FrameStart start, std::span<const std::pair<Row*, FrameRow>> rows, int64_t positions,
                    Submission* submission);
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
  // The open slot of a call that moves pages, and what has become of it.
  Result<Slot*> FindToMove(SlotId id) {
    QTTS_RETURN_IF_ERROR(lost);
    QTTS_RETURN_IF_ERROR(MakeCurrent());
    return slots.Get(id);
  }
  Status Moved(Status status) {
    if (status.code() == StatusCode::kDeviceUnavailable) lost = status;
    return status;
  }
  Status Await(int entry, std::chrono::milliseconds patience);
  // Calls may come from other threads than Create() did, and the current device is a thread's.
  Status MakeCurrent() const { return CudaStatus(cudaSetDevice(options.device), kSpeaking); }
};

Status CudaBackend::Impl::Load() {
  QTTS_ASSIGN_OR_RETURN(stream, Stream::Create(/*urgent=*/true));
  QTTS_ASSIGN_OR_RETURN(codec_stream, Stream::Create());
  QTTS_ASSIGN_OR_RETURN(model, LanguageModel::Create(*checkpoint, options, stream.get()));
  ring = model->ring();
  const CodecConfig& config = checkpoint->config().codec;
  QTTS_ASSIGN_OR_RETURN(
      codec, Codec::Create(config, checkpoint->codec(),
                           options.precision == Precision::kF32 ? CodecPrecision::kF32 : options.codec_precision,
                           options.max_slots, CodecRows()));
  references.emplace(codec->past_bytes());
  samples = codec->samples_per_frame();
  const auto ring_rows = static_cast<size_t>(ring.rows);
  const size_t entries = static_cast<size_t>(ring.entries) * ring_rows;
  QTTS_ASSIGN_OR_RETURN(steps, PinnedMemory::AllocateZeroed(entries * sizeof(FrameRow)));
  QTTS_ASSIGN_OR_RETURN(results, PinnedMemory::AllocateZeroed(entries * sizeof(FrameRowResult)));
  const size_t sample_bytes = static_cast<size_t>(samples) * sizeof(float);
  QTTS_ASSIGN_OR_RETURN(out, PinnedMemory::AllocateZeroed(entries * sample_bytes));
  QTTS_ASSIGN_OR_RETURN(pcm, DeviceMemory::AllocateZeroed(ring_rows * sample_bytes));
  QTTS_ASSIGN_OR_RETURN(reference_pcm, DeviceMemory::AllocateZeroed(sample_bytes));
  QTTS_ASSIGN_OR_RETURN(reference_uploads, UploadRing::Create());
  QTTS_ASSIGN_OR_RETURN(codec_idle, Event::Create());
  QTTS_ASSIGN_OR_RETURN(begun, Event::Create());
  unread.resize(static_cast<size_t>(ring.entries));
  for (int i = 0; i < ring.entries; ++i) {
    for (std::vector<Event>* const events : {&chosen, &done}) {
      QTTS_ASSIGN_OR_RETURN(Event event, Event::Create());
      events->push_back(std::move(event));
    }
  }
  for (int i = 0; i < options.max_slots; ++i) free_indices.insert(i);
  slots = SlotTable<Slot>("GPU", options.max_slots);
  limits = PromptLimitsOf(checkpoint->config(), model->max_positions(), model->max_positions() - 1);

  cudaDeviceProp properties = {};
  QTTS_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, options.device), "asking for the device");
  name = "cuda (" + std::string(properties.name) + ", " + (options.precision == Precision::kF32 ? "f32" : "bf16") +
         (options.codec_precision == CodecPrecision::kFast ? ", fast codec" : "") + ")";
  return Status::Ok();
}

Result<const Graph*> CudaBackend::Impl::FrameGraph(FrameStart start, int rows, int splits) {
  Graph& graph = graphs[{start, rows, splits}];
  if (graph.empty()) {
    QTTS_ASSIGN_OR_RETURN(graph, Graph::Capture(stream.get(), [&] {
                            return model->EnqueueFrame(start, rows, splits, steps.as<const FrameRow>(),
                                                       results.as<FrameRowResult>());
                          }));
  }
  return &graph;
}

Result<const Graph*> CudaBackend::Impl::CodecGraph(int rows, int part, CodecWork work) {
  Graph& graph = codec_graphs[{rows, part, work}];
  if (!graph.empty()) return &graph;
  const cudaStream_t at = work == CodecWork::kBegin ? stream.get() : codec_stream.get();
  QTTS_ASSIGN_OR_RETURN(
      graph, Graph::Capture(at, [&]() -> Status {
        const CodecHandOver& from = model->hand_over();
        const int* const row_slots = from.slots + static_cast<ptrdiff_t>(part) * ring.rows;
        const int* const row_codes = from.codes + static_cast<ptrdiff_t>(part) * ring.rows * model->groups();
        const CodecRoom room = work == CodecWork::kFinish ? CodecRoom::kBeside : CodecRoom::kDevice;
        for (int first = 0; first < rows; first += CodecRows()) {
          const int count = std::min(rows - first, CodecRows());
          if (work != CodecWork::kFinish) {
            QTTS_RETURN_IF_ERROR(codec->Begin(count, row_slots + first,
                                              row_codes + static_cast<ptrdiff_t>(first) * model->groups(), at));
          }
          if (work == CodecWork::kBegin) continue;
          float* const to = pcm.as<float>() + static_cast<ptrdiff_t>(first) * samples;
          QTTS_RETURN_IF_ERROR(codec->Finish(count, to, room, at));
        }
        if (work == CodecWork::kBegin) return Status::Ok();
        const Launcher launch{at, false};
        DeliverPcm(launch, row_slots, from.frames + part, ring, rows, pcm.as<const float>(), samples,
                   results.as<FrameRowResult>(), out.as<float>());
        return CudaStatus(launch.error, kSpeaking);
      }));
  return &graph;
}

// Makes the slot's stream one that has had the reference, or some more of it: the first time by running the codec over
// it, of which samples only the last frames count, later from what was kept.
Status CudaBackend::Impl::Prime(Slot* slot) {
  const cudaStream_t at = codec_stream.get();
  const std::vector<int32_t>& codes = slot->prompt.reference_codes;
  if (slot->frames_primed == 0) {
    const void* const past = codes.empty() ? nullptr : references->Find(codes);
    slot->primed = codes.empty() || past != nullptr;
    if (past != nullptr) return codec->Restore(slot->index, past, at);
    QTTS_RETURN_IF_ERROR(codec->Reset(slot->index, at));
    if (slot->primed) return Status::Ok();
  }
  const auto groups = static_cast<size_t>(codec->code_groups());
  const size_t frames = codes.size() / groups;
  const size_t begin = slot->frames_primed;
  const size_t end = frames <= kReferenceAtOnce ? frames : std::min(begin + kReferencePiece, frames);
  const size_t bytes = (end - begin) * groups * sizeof(int32_t);
  QTTS_ASSIGN_OR_RETURN(char* const host, reference_uploads.Prepare(sizeof(int32_t) + bytes));
  const int32_t index = slot->index;
  std::memcpy(host, &index, sizeof(index));
  std::memcpy(host + sizeof(index), codes.data() + begin * groups, bytes);
  QTTS_ASSIGN_OR_RETURN(const char* const device, reference_uploads.Send(at));
  const auto* const words = reinterpret_cast<const int32_t*>(device);
  const auto heard = static_cast<size_t>(codec->sound_history());
  for (size_t frame = begin; frame < end; ++frame) {
    const int32_t* const frame_codes = words + 1 + (frame - begin) * groups;
    if (frame + heard < frames) {
      QTTS_RETURN_IF_ERROR(codec->DecodeWithoutSamples(1, words, frame_codes, at));
    } else {
      QTTS_RETURN_IF_ERROR(codec->Decode(1, words, frame_codes, reference_pcm.as<float>(), at));
    }
  }
  slot->frames_primed = end;
  slot->primed = end == frames;
  if (!slot->primed || references->Find(codes) != nullptr) return Status::Ok();
  // Not cached for lack of memory: the next utterance computes it again.
  if (void* const past = references->Add(codes); past != nullptr) return codec->Save(slot->index, past, at);
  return Status::Ok();
}

// The next pieces of prompts: the codec's beside the talker's. One status per slot.
void CudaBackend::Impl::RunPieces(std::span<Piece> pieces) {
  std::vector<PromptProgress> talker;
  std::vector<Piece*> owners;
  for (Piece& piece : pieces) {
    const Slot& slot = *piece.slot;
    if (slot.prefilled || slot.rows_done == slot.prompt_rows) continue;
    talker.push_back({slot.index, &slot.prompt, static_cast<int>(slot.rows_done)});
    owners.push_back(&piece);
  }
  model->Prefill(talker);
  for (size_t i = 0; i < talker.size(); ++i) {
    Slot& slot = *owners[i]->slot;
    owners[i]->status = talker[i].status;
    const int rows = talker[i].done;
    const bool at_once = slot.rows_done == 0 && rows == slot.prompt_rows;
    owners[i]->progress.work = at_once ? std::min(1.0, static_cast<double>(rows) / LanguageModel::kRowsAtOnce) : 1;
    slot.rows_done = rows;
  }
  for (Piece& piece : pieces) {
    Slot& slot = *piece.slot;
    if (slot.prefilled) {
      piece.progress.done = true;
      continue;
    }
    if (piece.status.ok() && !slot.primed) {
      piece.status = Prime(&slot);
      if (slot.frames_primed > 0) piece.progress.work = 1;
    }
    if (!piece.status.ok()) continue;
    piece.progress.done = slot.prefilled = slot.primed && slot.rows_done == slot.prompt_rows;
    if (piece.progress.done) {
      slot.start = LanguageModel::StartOf(slot.prompt);
      slot.prompt = Prompt();
    }
  }
}

Status CudaBackend::Impl::Await(int entry, std::chrono::milliseconds patience) {
  const auto start = std::chrono::steady_clock::now();
  const PollPermit permit;
  for (;;) {
    const cudaError_t state = cudaEventQuery(done[static_cast<size_t>(entry)].get());
    if (state == cudaSuccess) return Status::Ok();
    if (state != cudaErrorNotReady) return CudaStatus(state, kSpeaking);
    if (!permit.granted() || std::chrono::steady_clock::now() - start > patience) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else {
      std::this_thread::yield();
    }
  }
}

void CudaBackend::Impl::JoinFirstFrames() {
  Together& first = TogetherOf(FrameStart::kPrompt, false);
  Together& others = TogetherOf(FrameStart::kInput, false);
  const size_t all = first.rows.size() + others.rows.size();
  if (first.rows.size() > others.rows.size() || !LanguageModel::MayJoin(static_cast<int>(others.rows.size())) ||
      all > static_cast<size_t>(model->MaxRows(model->SplitBucket(others.positions)))) {
    return;
  }
  for (const auto& [row, frame_row] : first.rows) {
    others.rows.emplace_back(row, FrameRow{frame_row.slot, kJoinsBehindTalker});
  }
  first.rows.clear();
}

Status CudaBackend::Impl::LaunchRows(FrameStart start, std::span<const std::pair<Row*, FrameRow>> rows,
                                     int64_t positions, Submission* submission) {
  const int splits = start == FrameStart::kPrompt ? 1 : model->SplitBucket(positions);
  const auto most = static_cast<size_t>(model->MaxRows(splits));
  while (!rows.empty()) {
    const size_t count = std::min(most, rows.size());
    const int bucket = model->RowBucket(static_cast<int>(count), splits);
    QTTS_ASSIGN_OR_RETURN(const Graph* const graph, FrameGraph(start, bucket, model->GraphSplits(bucket, splits)));
    const int entry = static_cast<int>(launched % static_cast<uint64_t>(ring.entries));
    QTTS_RETURN_IF_ERROR(FreeEntry(entry, submission));
    FrameRow* const frame_rows = steps.as<FrameRow>() + static_cast<ptrdiff_t>(entry) * ring.rows;
    for (size_t i = 0; i < static_cast<size_t>(bucket); ++i) {
      frame_rows[i] = i < count ? rows[i].second : FrameRow{-1, -1};
      if (i < count) {
        rows[i].first->entry = entry;
        rows[i].first->row = static_cast<int>(i);
      }
    }
    const int part = static_cast<int>(launched % kHandOvers);
    if (launched >= kHandOvers) {
      // This frame hands over where an earlier one did, which the codec must be done with.
      const Event& earlier = done[static_cast<size_t>((launched - kHandOvers) % done.size())];
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream.get(), earlier.get()), kSpeaking);
    }
    QTTS_RETURN_IF_ERROR(graph->Launch(stream.get()));
    const Event& codes = chosen[static_cast<size_t>(entry)];
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(codes.get(), stream.get()), kSpeaking);
    // With few voices the next frame is not submitted before a first frame's sound has arrived. Later frames' codes are
    // computed meanwhile, by a kernel that leaves shared memory for one stream's codec.
    const bool begins = std::any_of(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count),
                                    [](const std::pair<Row*, FrameRow>& row) { return row.second.text_id < 0; });
    if (!begins && LeavesRoom(bucket, splits)) {
      QTTS_ASSIGN_OR_RETURN(const Graph* const begin, CodecGraph(bucket, part, CodecWork::kBegin));
      QTTS_ASSIGN_OR_RETURN(const Graph* const finish, CodecGraph(bucket, part, CodecWork::kFinish));
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(codec_idle.get(), codec_stream.get()), kSpeaking);
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream.get(), codec_idle.get()), kSpeaking);
      QTTS_RETURN_IF_ERROR(begin->Launch(stream.get()));
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begun.get(), stream.get()), kSpeaking);
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(codec_stream.get(), begun.get()), kSpeaking);
      QTTS_RETURN_IF_ERROR(finish->Launch(codec_stream.get()));
    } else {
      QTTS_ASSIGN_OR_RETURN(const Graph* const all, CodecGraph(bucket, part, CodecWork::kAll));
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(codec_stream.get(), codes.get()), kSpeaking);
      QTTS_RETURN_IF_ERROR(all->Launch(codec_stream.get()));
    }
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(done[static_cast<size_t>(entry)].get(), codec_stream.get()), kSpeaking);
    ++launched;
    unread[static_cast<size_t>(entry)] = static_cast<int>(count);
    submission->last_entry = entry;
    rows = rows.subspan(count);
  }
  return Status::Ok();
}

// Captures all graphs, so that nothing is captured, loaded or compiled while an utterance waits.
Status CudaBackend::Impl::WarmUp() {
  QTTS_RETURN_IF_ERROR(model->WarmUp());
  for (const int rows : LanguageModel::kRowBuckets) {
    if (rows > LanguageModel::RowBucket(std::min(options.max_slots, kMostRows))) break;
    QTTS_RETURN_IF_ERROR(FrameGraph(FrameStart::kPrompt, rows, 1).status());
    bool beside = false;
    for (const int splits : model->SplitBuckets()) {
      if (!model->Fits(rows, splits) || splits != model->GraphSplits(rows, splits)) continue;
      QTTS_RETURN_IF_ERROR(FrameGraph(FrameStart::kInput, rows, splits).status());
      beside = beside || LeavesRoom(rows, splits);
    }
    for (int part = 0; part < kHandOvers; ++part) {
      QTTS_RETURN_IF_ERROR(CodecGraph(rows, part, CodecWork::kAll).status());
      if (!beside) continue;
      QTTS_RETURN_IF_ERROR(CodecGraph(rows, part, CodecWork::kBegin).status());
      QTTS_RETURN_IF_ERROR(CodecGraph(rows, part, CodecWork::kFinish).status());
    }
  }
  QTTS_RETURN_IF_ERROR(codec_stream.Synchronize());
  return stream.Synchronize();
}

CudaBackend::CudaBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaBackend::~CudaBackend() = default;
const std::string& CudaBackend::name() const { return impl_->name; }
int CudaBackend::max_outstanding() const { return kOutstanding; }

Result<std::unique_ptr<CudaBackend>> CudaBackend::Create(std::shared_ptr<const Checkpoint> checkpoint,
                                                         const CudaOptions& options) {
  QTTS_ASSIGN_OR_RETURN(const int device, ChooseDevice(*checkpoint, options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->options.device = device;
  impl->checkpoint = std::move(checkpoint);
  QTTS_RETURN_IF_ERROR(impl->Load());
  QTTS_RETURN_IF_ERROR(impl->WarmUp());
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(impl)));
  // A frame of an utterance with the shortest prompt.
  Prompt prompt;
  prompt.rows.assign(2, PromptRow{0, {}});
  QTTS_ASSIGN_OR_RETURN(const SlotId slot, backend->Open(prompt, GenerationSettings(), 0));
  // A first frame and a later one, whose sound is made in another way.
  for (const int32_t text_id : {kNoText, int32_t{0}}) {
    const FrameStep step = {slot, text_id};
    QTTS_RETURN_IF_ERROR(backend->Submit({&step, 1}));
    QTTS_RETURN_IF_ERROR(backend->Collect().status());
  }
  backend->Close(slot);
  CudaBackend::Impl& loaded = *backend->impl_;
  QTTS_RETURN_IF_ERROR(loaded.model->pages().Measure(loaded.UnusedStateBytes()));
  return backend;
}

int CudaBackend::max_slots() const { return impl_->options.max_slots; }

ContextPages CudaBackend::pages() const {
  return {kPagePositions, impl_->model->total_pages(), impl_->model->free_pages()};
}

size_t CudaBackend::device_bytes() const {
  const CudaBackendFacts f = facts();
  return f.weight_bytes + f.codec_bytes + f.cache_bytes + f.scratch_bytes;
}

Result<int64_t> CudaBackend::Reserve(SlotId id) {
  Impl& impl = *impl_;
  QTTS_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl.FindToMove(id));
  if (slot->parked) return Status::InvalidArgument("slot " + std::to_string(id) + " is parked");
  QTTS_RETURN_IF_ERROR(impl.Moved(impl.model->Extend(slot->index, slot->prompt_rows - 1 + slot->submitted)));
  // Beyond the model's last position it is Submit() that says so.
  return std::max(impl.model->PositionsOf(slot->index) - (slot->prompt_rows - 1), slot->submitted + 1);
}

Status CudaBackend::Park(SlotId id) {
  Impl& impl = *impl_;
  QTTS_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl.FindToMove(id));
  if (slot->parked || !slot->prefilled) {
    return Status::InvalidArgument("slot " + std::to_string(id) + " is parked or its prompt is not complete");
  }
  QTTS_RETURN_IF_ERROR(impl.Moved(impl.model->Park(slot->index, slot->prompt_rows + slot->submitted)));
  slot->parked = true;
  return Status::Ok();
}

Status CudaBackend::Unpark(SlotId id) {
  Impl& impl = *impl_;
  QTTS_ASSIGN_OR_RETURN(Impl::Slot* const slot, impl.FindToMove(id));
  if (!slot->parked) return Status::InvalidArgument("slot " + std::to_string(id) + " is not parked");
  QTTS_RETURN_IF_ERROR(impl.Moved(impl.model->Unpark(slot->index)));
  slot->parked = false;
  return Status::Ok();
}

Result<SlotId> CudaBackend::Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) {
  Impl& impl = *impl_;
  QTTS_RETURN_IF_ERROR(impl.lost);
  QTTS_RETURN_IF_ERROR(impl.MakeCurrent());
  QTTS_RETURN_IF_ERROR(CheckPrompt(prompt, impl.limits));
  QTTS_RETURN_IF_ERROR(impl.slots.CheckFree());
  const int index = *impl.free_indices.begin();
  if (Status status = impl.model->Open(index, prompt, settings, seed); !status.ok()) {
    if (status.code() == StatusCode::kDeviceUnavailable) impl.lost = status;
    return status;
  }
  impl.free_indices.erase(index);
  impl.used_indices = std::max(impl.used_indices, index + 1);
  impl.model->pages().KeepFree(impl.UnusedStateBytes());
  auto [id, slot] = impl.slots.Add();
  slot.index = index;
  slot.prompt_rows = static_cast<int64_t>(prompt.rows.size());
  slot.prompt = std::move(prompt);
  return id;
}

Result<PrefillProgress> CudaBackend::Prefill(SlotId id) { return PrefillTogether(std::span(&id, 1)).front(); }

std::vector<Result<PrefillProgress>> CudaBackend::PrefillTogether(std::span<const SlotId> ids) {
  Impl& impl = *impl_;
  std::vector<Result<PrefillProgress>> results(ids.size(), PrefillProgress());
  std::vector<Impl::Piece> pieces;
  std::vector<size_t> places;
  const Status usable = impl.lost.ok() ? impl.MakeCurrent() : impl.lost;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Result<Impl::Slot*> slot = usable.ok() ? impl.slots.Get(ids[i]) : usable;
    if (!slot.ok()) {
      results[i] = slot.status();
    } else if ((*slot)->end == EndReason::kError) {
      results[i] = (*slot)->status;
    } else {
      pieces.push_back({*slot});
      places.push_back(i);
    }
  }
  impl.RunPieces(pieces);
  for (size_t k = 0; k < pieces.size(); ++k) {
    const Impl::Piece& piece = pieces[k];
    if (piece.status.ok()) {
      results[places[k]] = piece.progress;
      continue;
    }
    results[places[k]] = piece.status;
    if (piece.status.code() == StatusCode::kDeviceUnavailable) {
      impl.lost = piece.status;
    } else {
      piece.slot->end = EndReason::kError;
      piece.slot->status = piece.status;
    }
  }
  return results;
}

int64_t CudaBackend::prompt_rows_together() const {
  return std::max(impl_->options.prompt_rows, LanguageModel::kRowsAtOnce);
}

void CudaBackend::Close(SlotId id) {
  Impl& impl = *impl_;
  const Impl::Slot* const slot = impl.slots.Find(id);
  if (slot == nullptr) return;
  // Frames in flight still write to the slot and its pages. Their next owner's work comes later on the same stream.
  impl.model->Close(slot->index);
  impl.free_indices.insert(slot->index);
  impl.slots.Remove(id);
}

Status CudaBackend::Submit(std::span<const FrameStep> steps) {
  Impl& impl = *impl_;
  QTTS_RETURN_IF_ERROR(impl.lost);
  QTTS_RETURN_IF_ERROR(impl.MakeCurrent());
  if (impl.outstanding.size() >= kOutstanding) {
    return Status::Internal("more than " + std::to_string(kOutstanding) + " submissions outstanding");
  }
  QTTS_RETURN_IF_ERROR(impl.slots.CheckSteps(steps));
  Impl::Submission submission;
  submission.rows.resize(steps.size());
  // Rows that are launched together: those that begin alike, and of many rows the few with long contexts apart, since
  // the longest decides the splits of all.
  for (Impl::Together& with : impl.together) {
    with.rows.clear();
    with.positions = 1;
  }
  const bool many = steps.size() > static_cast<size_t>(kMaxRows);
  const int64_t long_context = impl.model->PositionsOfAllRows();
  int64_t positions = 1;
  for (size_t i = 0; i < steps.size(); ++i) {
    Impl::Row& row = submission.rows[i];
    row.result.slot = steps[i].slot;
    Impl::Slot& slot = *impl.slots.Find(steps[i].slot);
    if (slot.end != EndReason::kNone) {
      row.result.end = slot.end;
      row.result.status = slot.status;
      continue;
    }
    const int64_t position = slot.prompt_rows - 1 + slot.submitted;
    const bool first = slot.submitted == 0;
    submission.begins = submission.begins || first;
    ++slot.submitted;
    Status status = slot.parked ? Status::Internal("a step of a parked slot") : Status::Ok();
    if (status.ok()) status = CheckStep(first, steps[i].text_id, position, impl.limits);
    while (status.ok() && !slot.prefilled) {
      Impl::Piece piece{&slot};
      impl.RunPieces(std::span(&piece, 1));
      status = piece.status;
    }
    if (status.ok()) status = impl.model->Extend(slot.index, position);
    if (status.code() == StatusCode::kDeviceUnavailable) {
      impl.lost = status;
      return status;
    }
    if (!status.ok()) {
      Impl::Fail(&slot, &row, std::move(status));
      continue;
    }
    const FrameStart start = std::exchange(slot.start, FrameStart::kInput);
    Impl::Together& with = impl.TogetherOf(start, many && start == FrameStart::kInput && position >= long_context);
    with.rows.push_back({&row, {slot.index, first ? -1 : steps[i].text_id}});
    with.positions = std::max(with.positions, position + 1);
    positions = std::max(positions, position + 1);
  }
  impl.JoinFirstFrames();
  // First the rows whose first frame is awaited.
  for (const FrameStart start : {FrameStart::kPrompt, FrameStart::kInput}) {
    for (const bool is_long : {false, true}) {
      const Impl::Together& with = impl.TogetherOf(start, is_long);
      if (Status status = impl.LaunchRows(start, with.rows, many ? with.positions : positions, &submission);
          !status.ok()) {
        impl.lost = status;
        return status;
      }
    }
  }
  impl.outstanding.push_back(std::move(submission));
  return Status::Ok();
}

Status CudaBackend::Impl::FreeEntry(int entry, Submission* newest) {
  if (unread[static_cast<size_t>(entry)] == 0) return Status::Ok();
  // A step of many launches has gone around the ring.
  QTTS_RETURN_IF_ERROR(Await(entry, kFramePatience));
  for (Submission& submission : outstanding) {
    for (Row& row : submission.rows) {
      if (row.entry == entry) ReadRow(&row);
    }
  }
  for (Row& row : newest->rows) {
    if (row.entry == entry) ReadRow(&row);
  }
  return Status::Ok();
}

void CudaBackend::Impl::ReadRow(Row* row) {
  const int entry = std::exchange(row->entry, -1);
  --unread[static_cast<size_t>(entry)];
  FrameResult& result = row->result;
  Slot* const slot = slots.Find(result.slot);
  if (slot == nullptr) return;
  if (slot->end != EndReason::kNone) {
    // An earlier end, found by the host, that the device may not have seen.
    result.end = slot->end;
    result.status = slot->status;
    return;
  }
  const size_t at = static_cast<size_t>(entry) * static_cast<size_t>(ring.rows) + static_cast<size_t>(row->row);
  const FrameRowResult& device = results.as<const FrameRowResult>()[at];
  if (device.end == EndReason::kNone) {
    result.codes.assign(device.codes, device.codes + model->groups());
    result.pcm.assign(out.as<const float>() + at * static_cast<size_t>(samples),
                      out.as<const float>() + (at + 1) * static_cast<size_t>(samples));
    return;
  }
  result.end = device.end;
  if (device.end == EndReason::kError) result.status = DamagedModel(device.fault);
  slot->end = result.end;
  slot->status = result.status;
}

Result<std::vector<FrameResult>> CudaBackend::Collect() {
  Impl& impl = *impl_;
  if (impl.outstanding.empty()) return Status::InvalidArgument("nothing was submitted");
  Impl::Submission submission = std::move(impl.outstanding.front());
  impl.outstanding.pop_front();
  if (submission.last_entry >= 0) {
    Status status = impl.Await(submission.last_entry, submission.begins ? kFirstFramePatience : kFramePatience);
    if (status.ok()) status = impl.model->Health();
    if (!status.ok()) {
      impl.lost = status;
      return status;
    }
  }
  std::vector<FrameResult> collected;
  collected.reserve(submission.rows.size());
  for (Impl::Row& row : submission.rows) {
    if (row.entry >= 0) impl.ReadRow(&row);
    if (impl.slots.Find(row.result.slot) == nullptr) {
      row.result = {row.result.slot, EndReason::kError, Status::Cancelled("the slot was closed"), {}, {}};
    }
    collected.push_back(std::move(row.result));
  }
  return collected;
}

std::unique_ptr<VoiceEncoder> CudaBackend::CreateVoiceEncoder() const {
  return cuda::CreateVoiceEncoder(impl_->checkpoint, impl_->options.device);
}

CudaBackendFacts CudaBackend::facts() const {
  const Impl& impl = *impl_;
  return {impl.model->weight_bytes(), impl.codec->device_bytes() + impl.references->bytes(), impl.model->cache_bytes(),
          impl.model->scratch_bytes(), impl.model->frame_bytes()};
}

}  // namespace qtts::cuda
