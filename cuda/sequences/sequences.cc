// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/sequences.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "frame/frame.h"
#include "prompt/prompt_prefix.h"
#include "rules/sampling_rules.h"

namespace qtts::cuda {
namespace {

constexpr const char* kSpeaking = "making speech";
constexpr size_t kPageBlockBytes = size_t{80} << 20;
// Pages are allocated so many positions ahead, long before they are needed.
constexpr int64_t kPagesAhead = 16;

}  // namespace

Result<KvPages> Sequences::NewPages(const Network& network) {
  const TransformerConfig& c = network.talker.config;
  const size_t page_bytes = static_cast<size_t>(kPagePositions) * static_cast<size_t>(c.num_layers) * 2 *
                            static_cast<size_t>(c.kv_width()) * ElementBytes(network.precision);
  KvPages pages(page_bytes, static_cast<int>(std::clamp<size_t>(kPageBlockBytes / page_bytes, 1, 64)));
  QTTS_RETURN_IF_ERROR(pages.Reserve(1));
  return pages;
}

Sequences::Sequences(const Network* network, FrameBuffers* buffers, const GraphPath* graph, KvPages pages,
                     UploadRing uploads, int max_slots, size_t parking_bytes, cudaStream_t stream)
    : network_(network),
      buffers_(buffers),
      graph_(graph),
      stream_(stream),
      pages_(std::move(pages)),
      slot_pages_(static_cast<size_t>(max_slots)),
      uploads_(std::move(uploads)),
      parked_(pages_.page_bytes(), max_slots, parking_bytes, stream),
      prefixes_(network->talker.config, ElementBytes(network->precision), &pages_, stream) {}

Result<void*> Sequences::TakePage() {
  Result<void*> page = pages_.Take();
  while (page.status().code() == StatusCode::kResourceExhausted && prefixes_.Evict()) page = pages_.Take();
  return page;
}

Status Sequences::AddPage(int slot, void* page) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const Launcher launch{stream_, false};
  SetPage(launch, buffers_->page_table,
          static_cast<int64_t>(slot) * buffers_->pages_per_slot + static_cast<int64_t>(pages.size()), page);
  pages.push_back(page);
  return CudaStatus(launch.error, kSpeaking);
}

Status Sequences::Extend(int slot, int64_t position) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const int64_t last = std::min(position + kPagesAhead, network_->max_positions - 1);
  while (static_cast<int64_t>(pages.size()) <= last / kPagePositions) {
    // A page that is not needed yet may come later.
    const bool later = static_cast<int64_t>(pages.size()) > position / kPagePositions;
    if (later && pages_.available_pages() == 0) break;
    Result<void*> page = TakePage();
    if (!page.ok() && later) break;
    QTTS_RETURN_IF_ERROR(page.status());
    QTTS_RETURN_IF_ERROR(AddPage(slot, *page));
  }
  return Status::Ok();
}

Status Sequences::Park(int slot, int64_t positions) {
  const std::span<void* const> pages = slot_pages_[static_cast<size_t>(slot)];
  const auto used = static_cast<size_t>((positions + kPagePositions - 1) / kPagePositions);
  QTTS_RETURN_IF_ERROR(parked_.Save(slot, pages.first(std::min(used, pages.size()))));
  GiveBackPages(slot);
  return Status::Ok();
}

Status Sequences::Unpark(int slot) {
  const size_t count = parked_.PagesOf(slot);
  const auto restore = [&]() -> Status {
    while (slot_pages_[static_cast<size_t>(slot)].size() < count) {
      QTTS_ASSIGN_OR_RETURN(void* const page, TakePage());
      QTTS_RETURN_IF_ERROR(AddPage(slot, page));
    }
    return parked_.Restore(slot, slot_pages_[static_cast<size_t>(slot)]);
  };
  Status status = restore();
  if (!status.ok()) GiveBackPages(slot);
  return status;
}

void Sequences::Close(int slot) {
  GiveBackPages(slot);
  parked_.Drop(slot);
}

void Sequences::GiveBackPages(int slot) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  for (void* const page : pages) pages_.GiveBack(page);
  pages.clear();
}

Result<std::pair<const PromptRowIds*, const float*>> Sequences::Upload(const Prompt& prompt, int begin, int end) {
  const size_t vector_bytes = static_cast<size_t>(network_->hidden_size()) * sizeof(float);
  const auto count = static_cast<size_t>(end - begin);
  QTTS_ASSIGN_OR_RETURN(char* const host, uploads_.Prepare(vector_bytes + count * sizeof(PromptRowIds)));
  if (!prompt.x_vector.empty()) std::memcpy(host, prompt.x_vector.data(), vector_bytes);
  auto* rows = reinterpret_cast<PromptRowIds*>(host + vector_bytes);
  for (const PromptRow& row : std::span(prompt.rows).subspan(static_cast<size_t>(begin), count)) {
    rows->text_id = row.text_id;
    rows->x_vector = row.x_vector ? 1 : 0;
    rows->num_codes = static_cast<int>(row.codes.size());
    std::copy(row.codes.begin(), row.codes.end(), rows->codes);
    ++rows;
  }
  QTTS_ASSIGN_OR_RETURN(const char* const device, uploads_.Send(stream_));
  return std::pair(reinterpret_cast<const PromptRowIds*>(device + vector_bytes),
                   reinterpret_cast<const float*>(device));
}

Status Sequences::WarmUp() {
  for (const int splits : graph_->SplitBuckets()) {
    for (int rows = kMinRows; rows <= graph_->MaxPromptRows(splits); rows = GraphPath::PromptBucket(rows + 1)) {
      if (graph_->Fits(rows, splits)) QTTS_RETURN_IF_ERROR(PrefillGraph(rows, splits).status());
    }
  }
  return Status::Ok();
}

Status Sequences::Open(int slot, const Prompt& prompt, const GenerationSettings& settings, uint64_t seed) {
  const auto rows = static_cast<int>(prompt.rows.size());
  const auto open = [&]() -> Status {
    QTTS_RETURN_IF_ERROR(Extend(slot, rows));
    SlotState state = {};
    state.seed = seed;
    state.max_new_tokens = settings.max_new_tokens;
    state.talker = RulesOf(settings.talker);
    state.predictor = RulesOf(settings.predictor);
    state.history_rules = HistoryRulesOf(settings);
    state.position = rows - 1;
    const Launcher launch{stream_, false};
    OpenSlot(launch, slot, state, buffers_->slots, buffers_->history, buffers_->history_words);
    return CudaStatus(launch.error, kSpeaking);
  };
  Status status = open();
  if (!status.ok()) Close(slot);
  return status;
}

int Sequences::PrefixRows(const Prompt& prompt) {
  const size_t constant = qtts::PrefixRows(prompt);
  return constant <= PrefixCache::kMostRows ? static_cast<int>(constant) : 0;
}

// One row takes a frame less time than it takes a prompt.
FrameStart Sequences::StartOf(const Prompt& prompt) {
  return PrefixRows(prompt) == static_cast<int>(prompt.rows.size()) - 1 ? FrameStart::kInput : FrameStart::kPrompt;
}

Result<int> Sequences::Prefill(int slot, const Prompt& prompt, int done) {
  const auto rows = static_cast<int>(prompt.rows.size());
  const int prefix = PrefixRows(prompt);
  const std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const std::string key = done < prefix ? PrefixKey(prompt, static_cast<size_t>(prefix)) : std::string();
  int begin = done;
  if (done == 0 && prefix > 0 && prefixes_.Use(key, pages)) begin = prefix;
  const bool at_once = done == 0 && rows - begin <= kRowsAtOnce;
  const int end = at_once ? rows : std::min(begin + kMaxRows, begin < prefix ? prefix : rows);
  QTTS_ASSIGN_OR_RETURN(const auto uploaded, Upload(prompt, begin, end));
  const PromptRowIds* const first = uploaded.first;
  const float* const x_vector = uploaded.second;
  int at = begin;
  if (at < prefix) {
    at = std::min(prefix, end);
    QTTS_RETURN_IF_ERROR(PrefillRows(slot, first, x_vector, begin, at));
    if (at == prefix) prefixes_.Keep(key, pages, prefix);
  }
  if (end == rows && StartOf(prompt) == FrameStart::kInput) {
    const Launcher launch{stream_, false};
    EmbedPrompt(launch, network_->precision, buffers_->tables, first + (at - begin), x_vector, 1,
                buffers_->first_x + static_cast<int64_t>(slot) * Padded(network_->hidden_size()), nullptr, 1, 0,
                nullptr, 0);
    QTTS_RETURN_IF_CUDA_ERROR(launch.error, kSpeaking);
  } else {
    QTTS_RETURN_IF_ERROR(PrefillRows(slot, first + (at - begin), x_vector, at, end));
  }
  return end;
}

// `rows` are those from `begin` on.
Status Sequences::PrefillRows(int slot, const PromptRowIds* rows, const float* x_vector, int begin, int end) {
  while (begin < end) {
    const int splits = graph_->SplitBucket(std::min(end, begin + buffers_->prompt_rows));
    const int count = std::min(end - begin, graph_->MaxPromptRows(splits));
    const int padded = graph_->PromptBucket(count, splits);
    const Launcher launch{stream_, false};
    EmbedPrompt(launch, network_->precision, buffers_->tables, rows, x_vector, count, buffers_->x,
                buffers_->prompt_positions, padded, begin, buffers_->prompt_piece, slot);
    QTTS_RETURN_IF_ERROR(CudaStatus(launch.error, kSpeaking));
    QTTS_ASSIGN_OR_RETURN(const Graph* const graph, PrefillGraph(padded, splits));
    QTTS_RETURN_IF_ERROR(graph->Launch(stream_));
    begin += count;
    rows += count;
  }
  return Status::Ok();
}

Result<const Graph*> Sequences::PrefillGraph(int rows, int splits) {
  Graph& graph = prefill_graphs_[{rows, splits}];
  if (graph.empty()) {
    QTTS_ASSIGN_OR_RETURN(graph, Graph::Capture(stream_, [&] { return graph_->EnqueuePrompt(rows, splits); }));
  }
  return &graph;
}

}  // namespace qtts::cuda
