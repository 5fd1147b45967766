// SPDX-License-Identifier: LGPL-2.1-or-later
// The backend's part for frames: their graphs, what is launched for a step, and its results.
#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/checks.h"
#include "cuda_backend.h"
#include "cuda_backend_impl.h"

namespace qtts::cuda {
namespace {

// Most waits last one frame. The first wait of an utterance includes its prompt.
constexpr std::chrono::milliseconds kFramePatience{5};
constexpr std::chrono::milliseconds kFirstFramePatience{20};

}  // namespace

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

// A frame's last slice is filled up to these rows, and filling costs as much as streams do: finer steps than those of
// GraphPath::RowBucket(), whose products have tiles of up to 128 rows.
int CudaBackend::Impl::SliceRows(int rows) const {
  constexpr int kStep = 32;
  return rows <= kMaxRows ? GraphPath::RowBucket(rows) : std::min((rows + kStep - 1) / kStep * kStep, CodecRows());
}

std::vector<CudaBackend::Impl::Slice> CudaBackend::Impl::SlicesOf(int rows) const {
  std::vector<Slice> slices;
  for (int first = 0; first < rows; first += CodecRows()) {
    slices.push_back({first, SliceRows(std::min(rows - first, CodecRows()))});
  }
  return slices;
}

Result<const Graph*> CudaBackend::Impl::CodecGraph(Slice slice, int part, CodecWork work, CodecShare share) {
  Graph& graph = codec_graphs[{slice.first, slice.rows, part, share, work}];
  if (!graph.empty()) return &graph;
  if (share == CodecShare()) {
    const Stream& at = work == CodecWork::kBegin ? stream : codec_stream;
    QTTS_ASSIGN_OR_RETURN(graph, RecordCodec(slice, part, work, at.get(), 0));
    return &graph;
  }
  auto place = codec_parts.find(share);
  if (place == codec_parts.end()) {
    QTTS_ASSIGN_OR_RETURN(ProcessorPart created, ProcessorPart::Create(share.eighths, share.urgent));
    place = codec_parts.emplace(share, std::move(created)).first;
  }
  const int processors = place->second.processors();
  Result<Graph> recorded = RecordCodec(slice, part, work, place->second.stream(), processors);
  if (!recorded.ok() && processors > 0) recorded = RecordCodec(slice, part, work, codec_stream.get(), 0);
  QTTS_ASSIGN_OR_RETURN(graph, std::move(recorded));
  return &graph;
}

Result<Graph> CudaBackend::Impl::RecordCodec(Slice slice, int part, CodecWork work, cudaStream_t at, int processors) {
  return Graph::Capture(at, [&]() -> Status {
    const CodecHandOver& from = model->buffers().hand_over;
    const ptrdiff_t row = static_cast<ptrdiff_t>(part) * ring.rows + slice.first;
    if (work != CodecWork::kFinish) {
      QTTS_RETURN_IF_ERROR(codec->Begin(slice.rows, from.slots + row, from.codes + row * model->network().groups,
                                        {.processors = processors}, at));
    }
    if (work == CodecWork::kBegin) return Status::Ok();
    const CodecRoom room = {.processors = processors, .beside = work == CodecWork::kFinish};
    QTTS_RETURN_IF_ERROR(codec->Finish(slice.rows, pcm.as<float>(), room, at));
    const Launcher launch(at, &model->numbers());
    DeliverPcm(launch, from.slots + row, from.frames + part, ring, slice.rows, pcm.as<const float>(), samples,
               results.as<FrameRowResult>() + slice.first,
               out.as<float>() + static_cast<ptrdiff_t>(slice.first) * samples);
    return CudaStatus(launch.error, kSpeaking);
  });
}

// Captures all graphs, so that nothing is captured, loaded or compiled while an utterance waits.
Status CudaBackend::Impl::WarmUp() {
  QTTS_RETURN_IF_ERROR(model->sequences().WarmUp());
  const int most_rows = model->plan().captured_rows;
  for (const int rows : GraphPath::kRowBuckets) {
    if (rows > most_rows) break;
    QTTS_RETURN_IF_ERROR(FrameGraph(FrameStart::kPrompt, rows, 1).status());
    bool beside = false;
    for (const int splits : model->graph().SplitBuckets()) {
      if (!model->graph().Fits(rows, splits) || splits != model->graph().GraphSplits(rows, splits)) continue;
      QTTS_RETURN_IF_ERROR(FrameGraph(FrameStart::kInput, rows, splits).status());
      beside = beside || LeavesRoom(rows, splits);
    }
    for (int part = 0; beside && part < kHandOvers; ++part) {
      QTTS_RETURN_IF_ERROR(CodecGraph({0, rows}, part, CodecWork::kBegin).status());
      QTTS_RETURN_IF_ERROR(CodecGraph({0, rows}, part, CodecWork::kFinish).status());
    }
  }
  for (int rows = 1; rows <= most_rows; ++rows) {
    for (const Slice& slice : SlicesOf(rows)) {
      for (int part = 0; part < kHandOvers; ++part) {
        QTTS_RETURN_IF_ERROR(CodecGraph(slice, part, CodecWork::kAll).status());
        QTTS_RETURN_IF_ERROR(CodecGraph(slice, part, CodecWork::kAll, ShareBesideCodes(rows)).status());
      }
    }
  }
  QTTS_RETURN_IF_ERROR(codec_stream.Synchronize());
  return stream.Synchronize();
}

void CudaBackend::Impl::JoinFirstFrames() {
  StepLaunch& first = LaunchOf(FrameStart::kPrompt, false);
  StepLaunch& others = LaunchOf(FrameStart::kInput, false);
  const size_t all = first.rows.size() + others.rows.size();
  if (first.rows.size() > others.rows.size() || !GraphPath::MayJoin(static_cast<int>(others.rows.size())) ||
      all > static_cast<size_t>(model->graph().MaxRows(model->graph().SplitBucket(others.positions)))) {
    return;
  }
  for (const auto& [row, frame_row] : first.rows) {
    others.rows.emplace_back(row, FrameRow{RowKind::kJoins, frame_row.slot, 0, frame_row.window});
  }
  first.rows.clear();
}

Status CudaBackend::Impl::LaunchRows(FrameStart start, std::span<const std::pair<Row*, FrameRow>> rows,
                                     int64_t positions, bool pipelined, Submission* submission) {
  const int splits = start == FrameStart::kPrompt ? 1 : model->graph().SplitBucket(positions);
  const auto most = static_cast<size_t>(model->graph().MaxRows(splits));
  while (!rows.empty()) {
    const size_t count = std::min(most, rows.size());
    const int bucket = model->graph().RowBucket(static_cast<int>(count), splits);
    QTTS_ASSIGN_OR_RETURN(const Graph* const graph,
                          FrameGraph(start, bucket, model->graph().GraphSplits(bucket, splits)));
    const int entry = static_cast<int>(launched % static_cast<uint64_t>(ring.entries));
    QTTS_RETURN_IF_ERROR(FreeEntry(entry, submission));
    FrameRow* const frame_rows = steps.as<FrameRow>() + static_cast<ptrdiff_t>(entry) * ring.rows;
    for (size_t i = 0; i < static_cast<size_t>(bucket); ++i) {
      frame_rows[i] = i < count ? rows[i].second : FrameRow();
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
    const bool begins =
        std::any_of(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count),
                    [](const std::pair<Row*, FrameRow>& row) { return row.second.kind != RowKind::kNext; });
    if (!begins && LeavesRoom(bucket, splits)) {
      QTTS_ASSIGN_OR_RETURN(const Graph* const begin, CodecGraph({0, bucket}, part, CodecWork::kBegin));
      QTTS_ASSIGN_OR_RETURN(const Graph* const finish, CodecGraph({0, bucket}, part, CodecWork::kFinish));
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(codec_idle.get(), codec_stream.get()), kSpeaking);
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream.get(), codec_idle.get()), kSpeaking);
      QTTS_RETURN_IF_ERROR(begin->Launch(stream.get()));
      QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(begun.get(), stream.get()), kSpeaking);
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(codec_stream.get(), begun.get()), kSpeaking);
      QTTS_RETURN_IF_ERROR(finish->Launch(codec_stream.get()));
    } else {
      QTTS_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(codec_stream.get(), codes.get()), kSpeaking);
      // Nobody waits for later frames, so that their codec may take longer if the next codes take less. A device that
      // was idle has no next ones yet.
      const CodecShare share = pipelined && !begins ? ShareBesideCodes(static_cast<int>(count)) : CodecShare();
      for (const Slice& slice : SlicesOf(static_cast<int>(count))) {
        QTTS_ASSIGN_OR_RETURN(const Graph* const all, CodecGraph(slice, part, CodecWork::kAll, share));
        QTTS_RETURN_IF_ERROR(all->Launch(codec_stream.get()));
      }
    }
    QTTS_RETURN_IF_CUDA_ERROR(cudaEventRecord(done[static_cast<size_t>(entry)].get(), codec_stream.get()), kSpeaking);
    ++launched;
    unread[static_cast<size_t>(entry)] = static_cast<int>(count);
    submission->last_entry = entry;
    rows = rows.subspan(count);
  }
  return Status::Ok();
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
  for (Impl::StepLaunch& with : impl.step_launches) {
    with.rows.clear();
    with.positions = 1;
  }
  const bool many = steps.size() > static_cast<size_t>(kMaxRows);
  const int64_t long_context = impl.model->graph().PositionsOfAllRows();
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
    if (status.ok()) status = impl.model->sequences().Extend(slot.index, position);
    if (status.code() == StatusCode::kDeviceUnavailable) {
      impl.lost = status;
      return status;
    }
    if (!status.ok()) {
      Impl::Fail(&slot, &row, std::move(status));
      continue;
    }
    const FrameStart start = std::exchange(slot.start, FrameStart::kInput);
    Impl::StepLaunch& with = impl.LaunchOf(start, many && start == FrameStart::kInput && position >= long_context);
    const RowKind kind = first ? RowKind::kFirst : RowKind::kNext;
    with.rows.push_back({&row, {kind, slot.index, first ? 0 : steps[i].text_id, steps[i].window}});
    with.positions = std::max(with.positions, position + 1);
    positions = std::max(positions, position + 1);
  }
  impl.JoinFirstFrames();
  const bool pipelined = !impl.outstanding.empty();
  // First the rows whose first frame is awaited.
  for (const FrameStart start : {FrameStart::kPrompt, FrameStart::kInput}) {
    for (const bool is_long : {false, true}) {
      const Impl::StepLaunch& with = impl.LaunchOf(start, is_long);
      if (Status status = impl.LaunchRows(start, with.rows, many ? with.positions : positions, pipelined, &submission);
          !status.ok()) {
        impl.lost = status;
        return status;
      }
    }
  }
  impl.outstanding.push_back(std::move(submission));
  return Status::Ok();
}

Status CudaBackend::Impl::Await(int entry, std::chrono::milliseconds patience) {
  return CudaStatus(AwaitEvent(done[static_cast<size_t>(entry)].get(), patience), kSpeaking);
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
    result.codes.assign(device.codes, device.codes + model->network().groups);
    result.pcm.assign(out.as<const float>() + at * static_cast<size_t>(samples),
                      out.as<const float>() + (at + 1) * static_cast<size_t>(samples));
    const RowTextScores& text = device.text;
    if (model->ScoresText() && steps.as<const FrameRow>()[at].window.wanted() && text.count > 0) {
      result.text_scores = {{text.scores, text.scores + text.count}, text.log_sum, text.mass};
    }
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
      row.result = {row.result.slot, EndReason::kError, Status::Cancelled("the slot was closed"), {}, {}, {}};
    }
    collected.push_back(std::move(row.result));
  }
  return collected;
}

}  // namespace qtts::cuda
