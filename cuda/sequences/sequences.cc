// SPDX-License-Identifier: LGPL-2.1-or-later
#include "sequences/sequences.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include "backend/backend.h"
#include "frame/frame.h"
#include "prompt/prompt_prefix.h"
#include "rules/sampling_rules.h"

namespace qtts::cuda {
namespace {

constexpr size_t kPageBlockBytes = size_t{80} << 20;
// Rows of the graphs for several prompts, ascending.
constexpr std::array<int, 5> kRowsTogether = {kMaxRows, 128, 256, 384, Sequences::kMostPromptRows};

}  // namespace

Result<KvPages> Sequences::NewPages(const Network& network, cudaStream_t stream) {
  const TransformerConfig& c = network.talker.config;
  const size_t page_bytes = static_cast<size_t>(kPagePositions) * static_cast<size_t>(c.num_layers) * 2 *
                            static_cast<size_t>(c.kv_width()) * ElementBytes(network.precision);
  KvPages pages(page_bytes, static_cast<int>(std::clamp<size_t>(kPageBlockBytes / page_bytes, 1, 64)), stream);
  QTTS_RETURN_IF_ERROR(pages.Reserve(1));
  return pages;
}

Sequences::Sequences(const Network* network, FrameBuffers* buffers, const GraphPath* graph,
                     const DeviceNumbers* numbers, KvPages pages, UploadRing uploads, int max_slots,
                     size_t parking_bytes, cudaStream_t stream)
    : network_(network),
      buffers_(buffers),
      graph_(graph),
      numbers_(numbers),
      stream_(stream),
      pages_(std::move(pages)),
      slot_pages_(static_cast<size_t>(max_slots)),
      uploads_(std::move(uploads)),
      parked_(pages_.page_bytes(), max_slots, parking_bytes, stream),
      prefixes_(network->talker.config, ElementBytes(network->precision), &pages_, numbers, stream) {}

Result<void*> Sequences::TakePage() {
  if (pages_.measured() && ContextPages{kPagePositions, total_pages(), free_pages()}.IsShort()) parked_.Expect();
  Result<void*> page = pages_.Take();
  while (page.status().code() == StatusCode::kResourceExhausted && prefixes_.Evict()) page = pages_.Take();
  return page;
}

Status Sequences::AddPage(int slot, void* page) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const Launcher launch(stream_, numbers_);
  SetPage(launch, buffers_->page_table,
          static_cast<int64_t>(slot) * buffers_->pages_per_slot + static_cast<int64_t>(pages.size()), page);
  pages.push_back(page);
  return CudaStatus(launch.error, kSpeaking);
}

Status Sequences::Extend(int slot, int64_t position) {
  std::vector<void*>& pages = slot_pages_[static_cast<size_t>(slot)];
  const int64_t last = std::min(position + PagedContexts::kPositionsAhead, network_->max_positions - 1);
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

Result<Sequences::Uploaded> Sequences::Upload(std::span<const Piece> pieces) {
  const size_t vector_bytes = static_cast<size_t>(network_->hidden_size()) * sizeof(float);
  size_t vectors = 0;
  size_t count = 0;
  for (const Piece& piece : pieces) {
    vectors += piece.prompt->x_vector.empty() ? 0 : 1;
    count += static_cast<size_t>(piece.end - piece.begin);
  }
  QTTS_ASSIGN_OR_RETURN(char* const host, uploads_.Prepare(vectors * vector_bytes + count * sizeof(PromptRowIds)));
  auto* ids = reinterpret_cast<PromptRowIds*>(host + vectors * vector_bytes);
  int next_vector = 0;
  for (const Piece& piece : pieces) {
    const Prompt& prompt = *piece.prompt;
    const int vector = prompt.x_vector.empty() ? -1 : next_vector++;
    if (vector >= 0) {
      std::memcpy(host + static_cast<size_t>(vector) * vector_bytes, prompt.x_vector.data(), vector_bytes);
    }
    for (int position = piece.begin; position < piece.end; ++position, ++ids) {
      const PromptRow& row = prompt.rows[static_cast<size_t>(position)];
      ids->slot = piece.slot;
      ids->position = position;
      ids->last = static_cast<size_t>(position) + 1 == prompt.rows.size() ? 1 : 0;
      ids->text_id = row.text_id;
      ids->x_vector = row.x_vector ? vector : -1;
      ids->num_codes = static_cast<int>(row.codes.size());
      std::copy(row.codes.begin(), row.codes.end(), ids->codes);
    }
  }
  QTTS_ASSIGN_OR_RETURN(const char* const device, uploads_.Send(stream_));
  return Uploaded{reinterpret_cast<const PromptRowIds*>(device + vectors * vector_bytes),
                  reinterpret_cast<const float*>(device)};
}

Status Sequences::WarmUp() {
  for (const int splits : graph_->SplitBuckets()) {
    const int most = graph_->MaxPromptRows(splits);
    for (int rows = kMinRows; rows <= std::min(most, kRowsAtOnce); rows = GraphPath::PromptBucket(rows + 1)) {
      if (!graph_->Fits(rows, splits)) continue;
      QTTS_RETURN_IF_ERROR(PrefillGraph(rows, splits, PromptRowsKept::kLast).status());
    }
    for (const int rows : kRowsTogether) {
      if (rows > most) break;
      QTTS_RETURN_IF_ERROR(PrefillGraph(rows, splits, PromptRowsKept::kAny).status());
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
    const Launcher launch(stream_, numbers_);
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

// Chooses the start: one row takes a frame less time than it takes a prompt.
FrameStart Sequences::StartOf(const Prompt& prompt) {
  return PrefixRows(prompt) == static_cast<int>(prompt.rows.size()) - 1 ? FrameStart::kInput : FrameStart::kPrompt;
}

Sequences::Piece Sequences::NextPiece(const PromptProgress& progress) {
  const Prompt& prompt = *progress.prompt;
  const auto rows = static_cast<int>(prompt.rows.size());
  const int prefix = PrefixRows(prompt);
  int begin = progress.done;
  if (begin == 0 && prefix > 0) {
    const std::string key = PrefixKey(prompt, static_cast<size_t>(prefix));
    if (prefixes_.Use(key, slot_pages_[static_cast<size_t>(progress.slot)])) begin = prefix;
  }
  const bool at_once = progress.done == 0 && rows - begin <= kRowsAtOnce;
  const int end = at_once ? rows : std::min(begin + kMaxRows, begin < prefix ? prefix : rows);
  return {progress.slot, &prompt, begin, end};
}

bool Sequences::IsWhole(const Piece& piece) const {
  const Prompt& prompt = *piece.prompt;
  return piece.begin == PrefixRows(prompt) && piece.end == static_cast<int>(prompt.rows.size()) &&
         piece.end - piece.begin <= graph_->MaxPromptRows(graph_->SplitBucket(piece.end)) &&
         StartOf(prompt) == FrameStart::kPrompt;
}

void Sequences::Prefill(std::span<PromptProgress> prompts) {
  std::vector<Piece> together;
  std::vector<PromptProgress*> waiting;
  int rows = 0;
  const auto run_together = [&] {
    const Status status = together.size() == 1 ? PrefillAlone(together.front()) : PrefillTogether(together);
    for (PromptProgress* const progress : waiting) progress->status = status;
    together.clear();
    waiting.clear();
    rows = 0;
  };
  for (PromptProgress& progress : prompts) {
    const Piece piece = NextPiece(progress);
    progress.done = piece.end;
    if (!IsWhole(piece)) {
      progress.status = PrefillAlone(piece);
      continue;
    }
    const int longest = std::max(piece.end, LongestOf(together));
    if (rows + piece.end - piece.begin > graph_->MaxPromptRows(graph_->SplitBucket(longest))) run_together();
    together.push_back(piece);
    waiting.push_back(&progress);
    rows += piece.end - piece.begin;
  }
  if (!together.empty()) run_together();
}

int Sequences::LongestOf(std::span<const Piece> pieces) {
  int longest = 0;
  for (const Piece& piece : pieces) longest = std::max(longest, piece.end);
  return longest;
}

Status Sequences::PrefillAlone(const Piece& piece) {
  const Prompt& prompt = *piece.prompt;
  const int prefix = PrefixRows(prompt);
  QTTS_ASSIGN_OR_RETURN(Uploaded uploaded, Upload(std::span(&piece, 1)));
  int at = piece.begin;
  if (at < prefix) {
    at = std::min(prefix, piece.end);
    QTTS_RETURN_IF_ERROR(PrefillRows(uploaded, piece.begin, at));
    if (at == prefix) {
      const std::string key = PrefixKey(prompt, static_cast<size_t>(prefix));
      prefixes_.Keep(key, slot_pages_[static_cast<size_t>(piece.slot)], prefix);
    }
  }
  uploaded.rows += at - piece.begin;
  if (piece.end < static_cast<int>(prompt.rows.size()) || StartOf(prompt) == FrameStart::kPrompt) {
    return PrefillRows(uploaded, at, piece.end);
  }
  const Launcher launch(stream_, numbers_);
  EmbedPrompt(launch, network_->precision, buffers_->tables, uploaded.rows, uploaded.x_vectors, 1,
              buffers_->first_x + static_cast<int64_t>(piece.slot) * Padded(network_->hidden_size()), 1, {});
  return CudaStatus(launch.error, kSpeaking);
}

Status Sequences::PrefillTogether(std::span<const Piece> pieces) {
  QTTS_ASSIGN_OR_RETURN(const Uploaded uploaded, Upload(pieces));
  int rows = 0;
  for (const Piece& piece : pieces) rows += piece.end - piece.begin;
  const int splits = graph_->SplitBucket(LongestOf(pieces));
  const int most = graph_->MaxPromptRows(splits);
  const auto* const bucket = std::find_if(kRowsTogether.begin(), kRowsTogether.end(), [&](int r) { return r >= rows; });
  const int padded = bucket == kRowsTogether.end() || *bucket > most ? most : *bucket;
  return PrefillPass(uploaded, rows, padded, splits, PromptRowsKept::kAny);
}

// Enqueues rows. `uploaded` begins with row `begin` of the prompt.
Status Sequences::PrefillRows(const Uploaded& uploaded, int begin, int end) {
  Uploaded next = uploaded;
  while (begin < end) {
    const int splits = graph_->SplitBucket(std::min(end, begin + buffers_->prompt_rows));
    const int count = std::min(end - begin, graph_->MaxPromptRows(splits));
    QTTS_RETURN_IF_ERROR(PrefillPass(next, count, graph_->PromptBucket(count, splits), splits, PromptRowsKept::kLast));
    begin += count;
    next.rows += count;
  }
  return Status::Ok();
}

Status Sequences::PrefillPass(const Uploaded& uploaded, int rows, int padded, int splits, PromptRowsKept kept) {
  const Launcher launch(stream_, numbers_);
  EmbedPrompt(launch, network_->precision, buffers_->tables, uploaded.rows, uploaded.x_vectors, rows, buffers_->x,
              padded, buffers_->prompts);
  QTTS_RETURN_IF_ERROR(CudaStatus(launch.error, kSpeaking));
  QTTS_ASSIGN_OR_RETURN(const Graph* const graph, PrefillGraph(padded, splits, kept));
  return graph->Launch(stream_);
}

Result<const Graph*> Sequences::PrefillGraph(int rows, int splits, PromptRowsKept kept) {
  // The few rows that go through the last layer's end alone need splits, however many there are before.
  const int needed = kept == PromptRowsKept::kLast ? splits : graph_->GraphSplits(rows, splits);
  Graph& graph = prefill_graphs_[{rows, needed, kept}];
  if (graph.empty()) {
    QTTS_ASSIGN_OR_RETURN(graph, Graph::Capture(stream_, [&] { return graph_->EnqueuePrompt(rows, splits, kept); }));
  }
  return &graph;
}

}  // namespace qtts::cuda
