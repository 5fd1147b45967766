// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "backend/checks.h"
#include "backend/slot_table.h"
#include "cpu/codec_decoder.h"
#include "cpu/device_name.h"
#include "cpu/embedder.h"
#include "cpu/kernels.h"
#include "cpu/predictor.h"
#include "cpu/prompt_cache.h"
#include "cpu/quantized_kernels.h"
#include "cpu/talker.h"
#include "cpu/text_attention.h"
#include "cpu/thread_choice.h"
#include "cpu/thread_pool.h"
#include "cpu/weight_packer.h"
#include "qtts/resources.h"
#include "sampling/sampler.h"

namespace qtts {
namespace {

Status OutOfMemory() {
  return CatchExhaustion("speak", [] {
    return Status::ResourceExhausted(
        "not enough memory to speak; use a shorter text, fewer streams or a smaller model");
  });
}

// One utterance.
struct Slot {
  Slot(Prompt p, const GenerationSettings& s, uint64_t seed_value, const TalkerConfig& config, cpu::KvCache kv_cache,
       cpu::CodecDecoder::State codec_state)
      : prompt(std::move(p)),
        settings(s),
        seed(seed_value),
        sampler(config.vocab_size, config.codec_eos_id, s, seed_value),
        cache(std::move(kv_cache)),
        codec(std::move(codec_state)) {}

  Prompt prompt;              // cleared after the prefill
  int64_t primed_frames = 0;  // reference frames run so far; the cache's length counts the prompt rows run so far
  bool codec_primed = false;
  bool prefix_known = false;
  GenerationSettings settings;
  uint64_t seed;
  TalkerSampler sampler;
  cpu::KvCache cache;
  cpu::CodecDecoder::State codec;
  bool prefilled = false;
  std::vector<float> hidden;  // of the prompt's last row; the first frame consumes them
  std::vector<float> logits;
  std::vector<float> query;  // of the alignment head
  bool started = false;
  std::vector<int32_t> codes;  // of the previous frame
  EndReason end = EndReason::kNone;
  Status status;
};

// One slot of the current step: its result, and the data passed between the parts of the step.
struct ActiveStep {
  Slot* slot = nullptr;
  FrameResult* result = nullptr;
  int32_t text_id = kNoText;
  TextWindow window;
  std::vector<float> hidden;  // [talker width]
  std::vector<float> logits;  // [talker vocabulary]
  std::vector<float> query;   // [head_dim] of the alignment head; empty if there is none

  void End(EndReason end, Status status = Status()) {
    slot->end = end;
    slot->status = std::move(status);
    result->end = end;
    result->status = slot->status;
    result->codes.clear();
    result->pcm.clear();
    result->text_scores = {};
  }
  bool ended() const { return slot->end != EndReason::kNone; }
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<const Checkpoint> checkpoint, int threads, cpu::Arithmetic arithmetic, int max_slots)
      : checkpoint_(std::move(checkpoint)),
        config_(checkpoint_->config()),
        pool_(cpu::InitialThreads(threads)),
        packed_(*checkpoint_, arithmetic, pool_),
        packer_(
            arithmetic, pool_, [this](std::span<const std::byte> weights) { checkpoint_->Release(weights); }, &packed_),
        embedder_(checkpoint_->talker(), checkpoint_->predictor(), pool_),
        talker_(config_.talker, checkpoint_->talker(), pool_, &packer_),
        predictor_(config_.predictor, checkpoint_->predictor(), embedder_, pool_, &packer_),
        codec_(config_.codec, checkpoint_->codec(), pool_, &packer_),
        frame_work_(talker_.RowWork(0) + predictor_.FrameWork() + codec_.FrameWork()),
        limits_(PromptLimitsOf(config_, talker_.max_positions(), talker_.max_positions())),
        slots_("CPU", max_slots) {
    if (const auto& head = config_.description.alignment) {
      alignment_ = cpu::QueryHead{head->layer, head->head};
      talker_.Watch({&*alignment_, 1});
    }
    built_ = packed_.Save();
    if (threads <= 0) cpu::ResizeToBest(Cost(), &pool_);
    name_ = cpu::DeviceNameOf(arithmetic, pool_.threads());
  }

  // Returns a status that is not ok if the weights could not be built from the checkpoint's files. No other function
  // may be called then.
  const Status& built() const { return built_; }

  const std::string& name() const override { return name_; }
  bool beside_host() const override { return false; }
  int max_outstanding() const override { return 1; }
  int max_slots() const override { return slots_.max_slots(); }
  Result<SlotId> Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) override;
  Result<PrefillProgress> Prefill(SlotId slot) override;
  Status Submit(std::span<const FrameStep> steps) override;
  Result<std::vector<FrameResult>> Collect() override;
  void Close(SlotId slot) override;

 private:
  cpu::FrameCost Cost() const;

  // Runs the next piece of a slot's prompt.
  PrefillProgress RunPiece(Slot* slot);
  void PrimeCodec(Slot* slot);
  int64_t PieceRows(const Slot& slot) const;

  // The parts of one step, in order. Each skips utterances that have ended, and may end more.
  void Advance(std::span<ActiveStep> steps);
  void Start(ActiveStep* step);
  void StepTalker(std::span<ActiveStep> steps);
  void ScoreTexts(std::span<ActiveStep> steps) const;
  void ChooseFirstCode(ActiveStep* step);
  void PredictCodes(std::span<ActiveStep> steps);
  void DecodeFrame(ActiveStep* step);

  std::shared_ptr<const Checkpoint> checkpoint_;
  const ModelConfig& config_;
  cpu::ThreadPool pool_;
  cpu::PackedCache packed_;
  cpu::WeightPacker packer_;
  cpu::Embedder embedder_;
  cpu::Talker talker_;
  cpu::Predictor predictor_;
  cpu::CodecDecoder codec_;
  std::optional<cpu::QueryHead> alignment_;
  const int64_t frame_work_;  // per stream, in multiply-adds
  const PromptLimits limits_;
  std::string name_;
  Status built_;
  cpu::PromptCache prompts_;
  SlotTable<Slot> slots_;
  std::deque<std::vector<FrameStep>> queue_;
};

cpu::FrameCost CpuBackend::Cost() const {
  const TransformerConfig& predictor = config_.predictor.transformer;
  const auto bytes = [&](int64_t weights) {
    switch (packer_.arithmetic()) {
      case cpu::Arithmetic::kF32:
        return weights * static_cast<int64_t>(DTypeBytes(checkpoint_->talker().codec_head.dtype));
      case cpu::Arithmetic::kBF16:
        return 2 * weights;
      case cpu::Arithmetic::kInt8:
        return weights;
      case cpu::Arithmetic::kInt4:
        break;
    }
    return weights / 2;
  };
  return {.weight_bytes = bytes(talker_.RowWork(0) + predictor_.FrameWork()),
          .distinct_bytes = bytes(talker_.RowWork(0) + predictor_.FrameWork() / predictor_.code_groups()),
          .matrix_bytes = bytes(int64_t{predictor.hidden_size} * predictor.intermediate_size),
          .multiply_adds = codec_.FrameWork()};
}

Result<SlotId> CpuBackend::Open(Prompt prompt, const GenerationSettings& settings, uint64_t seed) {
  QTTS_RETURN_IF_ERROR(CheckPrompt(prompt, limits_));
  QTTS_RETURN_IF_ERROR(slots_.CheckFree());
  try {
    return slots_.Add(std::move(prompt), settings, seed, config_.talker, talker_.NewCache(), codec_.NewState()).first;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

Result<PrefillProgress> CpuBackend::Prefill(SlotId id) {
  QTTS_ASSIGN_OR_RETURN(Slot* const slot, slots_.Get(id));
  if (slot->end == EndReason::kError) return slot->status;
  try {
    return RunPiece(slot);
  } catch (const std::bad_alloc&) {
    // The cache may have grown in some layers only.
    slot->end = EndReason::kError;
    slot->status = OutOfMemory();
    return slot->status;
  }
}

PrefillProgress CpuBackend::RunPiece(Slot* slot) {
  if (slot->prefilled) return {true, 0};
  if (!slot->codec_primed) {
    PrimeCodec(slot);
    if (slot->primed_frames > 0) return {false, 1};
  }
  const Prompt& prompt = slot->prompt;
  if (slot->cache.length() == 0) slot->prefix_known = prompts_.RestorePrefix(prompt, &slot->cache);
  const int64_t begin = slot->cache.length();
  const int64_t count = PieceRows(*slot);
  const auto rows = std::span(prompt.rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  std::vector<float> inputs(rows.size() * static_cast<size_t>(talker_.hidden_size()));
  embedder_.Embed(rows, prompt.x_vector, inputs.data());
  const double work = static_cast<double>(count * talker_.RowWork(begin + count)) / static_cast<double>(frame_work_);
  if (begin + count < static_cast<int64_t>(prompt.rows.size())) {
    talker_.Prefill(&slot->cache, inputs);
    return {false, work};
  }
  slot->hidden.resize(static_cast<size_t>(talker_.hidden_size()));
  slot->logits.resize(static_cast<size_t>(talker_.vocab_size()));
  slot->query.resize(talker_.query_size());
  talker_.Prefill(&slot->cache, inputs, slot->hidden.data(), slot->logits.data(), slot->query.data());
  if (!slot->prefix_known) prompts_.KeepPrefix(prompt, slot->cache);
  slot->prefilled = true;
  slot->prompt = Prompt();
  return {true, work};
}

// Returns the rows of the next piece: about one frame's work. Every row is counted as if it stood after the last one,
// which attends to the most positions.
int64_t CpuBackend::PieceRows(const Slot& slot) const {
  const int64_t begin = slot.cache.length();
  const int64_t left = static_cast<int64_t>(slot.prompt.rows.size()) - begin;
  const int64_t most = frame_work_ / talker_.RowWork(begin);
  return std::min(left, std::max<int64_t>(1, frame_work_ / talker_.RowWork(begin + most)));
}

void CpuBackend::PrimeCodec(Slot* slot) {
  const std::span<const int32_t> codes = slot->prompt.reference_codes;
  const int64_t frames = static_cast<int64_t>(codes.size()) / codec_.code_groups();
  if (frames == 0 || (slot->primed_frames == 0 && prompts_.RestoreReference(codes, &slot->codec))) {
    slot->codec_primed = true;
    return;
  }
  slot->primed_frames = codec_.Prime(&slot->codec, codes, slot->primed_frames);
  if (slot->primed_frames < frames) return;
  prompts_.KeepReference(codes, slot->codec);
  slot->codec_primed = true;
}

Status CpuBackend::Submit(std::span<const FrameStep> steps) {
  QTTS_RETURN_IF_ERROR(slots_.CheckSteps(steps));
  queue_.emplace_back(steps.begin(), steps.end());
  return Status::Ok();
}

Result<std::vector<FrameResult>> CpuBackend::Collect() {
  if (queue_.empty()) return Status::InvalidArgument("nothing was submitted");
  const std::vector<FrameStep> steps = std::move(queue_.front());
  queue_.pop_front();

  std::vector<FrameResult> results(steps.size());
  std::vector<ActiveStep> active;
  for (size_t i = 0; i < steps.size(); ++i) {
    results[i].slot = steps[i].slot;
    Slot* const slot = slots_.Find(steps[i].slot);
    if (slot == nullptr) {
      results[i].end = EndReason::kError;
      results[i].status = Status::Cancelled("the slot was closed");
    } else if (slot->end != EndReason::kNone) {
      results[i].end = slot->end;
      results[i].status = slot->status;
    } else {
      active.push_back({slot, &results[i], steps[i].text_id, steps[i].window, {}, {}, {}});
    }
  }
  try {
    Advance(active);
  } catch (const std::bad_alloc&) {
    // The caches of some slots may have grown and those of others not, so none can continue.
    for (ActiveStep& step : active) {
      if (!step.ended()) step.End(EndReason::kError, OutOfMemory());
    }
  }
  // The weights are read through the mapping, so results count only if the files are unchanged.
  QTTS_RETURN_IF_ERROR(checkpoint_->CheckFiles());
  return results;
}

void CpuBackend::Close(SlotId slot) { slots_.Remove(slot); }

void CpuBackend::Advance(std::span<ActiveStep> steps) {
  // Slots that go on are kept at the front of `steps`.
  const auto going = [&] {
    const auto end = std::stable_partition(steps.begin(), steps.end(), [](const ActiveStep& s) { return !s.ended(); });
    return steps.first(static_cast<size_t>(end - steps.begin()));
  };
  const auto first_later =
      std::stable_partition(steps.begin(), steps.end(), [](const ActiveStep& s) { return !s.slot->started; });
  for (auto step = steps.begin(); step != first_later; ++step) Start(&*step);
  StepTalker({first_later, steps.end()});
  ScoreTexts(going());
  for (ActiveStep& step : going()) ChooseFirstCode(&step);
  PredictCodes(going());
  for (ActiveStep& step : going()) DecodeFrame(&step);
}

void CpuBackend::Start(ActiveStep* step) {
  Slot& slot = *step->slot;
  // It takes no position but the prompt's last.
  if (Status status = CheckStep(true, step->text_id, 0, limits_); !status.ok()) {
    return step->End(EndReason::kError, std::move(status));
  }
  slot.started = true;
  while (!slot.prefilled) RunPiece(&slot);
  step->hidden = std::exchange(slot.hidden, {});
  step->logits = std::exchange(slot.logits, {});
  step->query = std::exchange(slot.query, {});
}

void CpuBackend::StepTalker(std::span<ActiveStep> steps) {
  std::vector<PromptRow> rows;
  std::vector<cpu::KvCache*> caches;
  std::vector<ActiveStep*> running;
  for (ActiveStep& step : steps) {
    if (Status status = CheckStep(false, step.text_id, step.slot->cache.length(), limits_); !status.ok()) {
      step.End(EndReason::kError, std::move(status));
    } else {
      rows.push_back({step.text_id, step.slot->codes});
      caches.push_back(&step.slot->cache);
      running.push_back(&step);
    }
  }
  if (running.empty()) return;
  const auto width = static_cast<size_t>(talker_.hidden_size());
  const auto vocab = static_cast<size_t>(talker_.vocab_size());
  std::vector<float> hidden(rows.size() * width);
  std::vector<float> logits(rows.size() * vocab);
  const size_t query_size = talker_.query_size();
  std::vector<float> queries(rows.size() * query_size);
  embedder_.Embed(rows, {}, hidden.data());
  talker_.Step(caches, hidden.data(), logits.data(), queries.data());
  for (size_t i = 0; i < running.size(); ++i) {
    running[i]->hidden.assign(&hidden[i * width], &hidden[i * width] + width);
    running[i]->logits.assign(&logits[i * vocab], &logits[i * vocab] + vocab);
    const auto query = queries.begin() + static_cast<ptrdiff_t>(i * query_size);
    running[i]->query.assign(query, query + static_cast<ptrdiff_t>(query_size));
  }
}

// Scores the text for the row that chooses the frame, which is the last one of each cache.
void CpuBackend::ScoreTexts(std::span<ActiveStep> steps) const {
  if (!alignment_) return;
  for (ActiveStep& step : steps) {
    step.result->text_scores =
        cpu::ScoreText(step.slot->cache, config_.talker.transformer, *alignment_, step.query, step.window);
  }
}

void CpuBackend::ChooseFirstCode(ActiveStep* step) {
  Slot& slot = *step->slot;
  const int32_t id = slot.sampler.Sample(step->logits);
  if (id == kNoToken) return step->End(EndReason::kError, DamagedModel(ModelPart::kTalker));
  if (id == config_.talker.codec_eos_id) return step->End(EndReason::kComplete);
  if (slot.sampler.count() >= slot.settings.max_new_tokens) return step->End(EndReason::kMaxDuration);
  slot.codes.assign(static_cast<size_t>(predictor_.code_groups()), 0);
  slot.codes.front() = id;
}

void CpuBackend::PredictCodes(std::span<ActiveStep> steps) {
  if (steps.empty()) return;
  const auto groups = static_cast<size_t>(predictor_.code_groups());
  std::vector<float> hidden;
  std::vector<int32_t> codes;
  for (const ActiveStep& step : steps) {
    hidden.insert(hidden.end(), step.hidden.begin(), step.hidden.end());
    codes.insert(codes.end(), step.slot->codes.begin(), step.slot->codes.end());
  }
  predictor_.Predict(
      hidden,
      [&](size_t row, int64_t group, std::span<float> logits) {
        const Slot& slot = *steps[row].slot;
        const DrawPosition position{slot.seed, static_cast<uint32_t>(slot.sampler.count() - 1),
                                    static_cast<uint32_t>(group)};
        const int32_t code = SampleToken(logits, slot.settings.predictor, position);
        if (code != kNoToken) return code;
        steps[row].End(EndReason::kError, DamagedModel(ModelPart::kPredictor));
        return int32_t{0};  // any valid code lets the other rows finish
      },
      codes);
  for (size_t row = 0; row < steps.size(); ++row) {
    steps[row].slot->codes.assign(codes.begin() + static_cast<ptrdiff_t>(row * groups),
                                  codes.begin() + static_cast<ptrdiff_t>((row + 1) * groups));
  }
}

void CpuBackend::DecodeFrame(ActiveStep* step) {
  Slot& slot = *step->slot;
  std::vector<float>& pcm = step->result->pcm;
  pcm.resize(static_cast<size_t>(codec_.samples_per_frame()));
  codec_.Decode(&slot.codec, slot.codes, pcm);
  if (std::any_of(pcm.begin(), pcm.end(), [](float sample) { return std::isnan(sample); })) {
    return step->End(EndReason::kError, DamagedModel(ModelPart::kCodec));
  }
  step->result->codes = slot.codes;
}

}  // namespace

Result<std::unique_ptr<Backend>> CreateCpuBackend(std::shared_ptr<const Checkpoint> checkpoint, int threads,
                                                  cpu::Arithmetic arithmetic, int max_slots) {
  return CatchExhaustion("load the model", [&]() -> Result<std::unique_ptr<Backend>> {
    auto backend = std::make_unique<CpuBackend>(std::move(checkpoint), threads, arithmetic, max_slots);
    QTTS_RETURN_IF_ERROR(backend->built());
    return std::unique_ptr<Backend>(std::move(backend));
  });
}

}  // namespace qtts
