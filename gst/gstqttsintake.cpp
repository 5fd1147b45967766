// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttsintake.h"

#include <utility>

#include "gstqttsdocument.h"
#include "gstqttsmarkup.h"
#include "qtts/text_check.h"

namespace gstqtts {

namespace {

// Bound of the metas that wait for one frame: upstream may send blank text with metas for ever.
constexpr size_t kMaxMetas = 256;

}  // namespace

bool HasNothingToSay(const Utterance& utterance) {
  return !utterance.settings.speak_anything && !qtts::IsSayable(utterance.text);
}

// --- by any thread

void Intake::SetMaxQueued(uint64_t characters) {
  const MonitorLock lock(monitor_);
  queue_.SetMaxCharacters(characters);
  monitor_.Announce();
}

Intake::Accept Intake::Offer(Utterance utterance, uint64_t* id) {
  utterance.text = RepairUtf8(utterance.text);
  const std::string text = utterance.text;
  // Without the mutex: a long document takes time.
  std::vector<std::string> warnings;
  std::vector<Utterance> parts = ReadDocument(std::move(utterance), &warnings);
  const MonitorLock lock(monitor_);
  if (!monitor_.run.running()) return Accept::kFlushing;
  if (!monitor_.run.takes_text()) return Accept::kEnded;
  if (!queue_.HasRoom(text)) return Accept::kFull;
  const uint64_t number = EnqueueText(std::move(parts));
  if (id != nullptr) *id = number;
  warnings_.insert(warnings_.end(), warnings.begin(), warnings.end());
  return Accept::kAccepted;
}

Intake::Accept Intake::PushChunk(std::string_view chunk, const Settings& settings, int* repaired, const Cue& cue,
                                 const ChunkNotes& notes) {
  const MonitorLock lock(monitor_);
  const RunState& run = monitor_.run;
  *repaired = 0;
  const uint64_t epoch = run.epoch;
  const uint64_t flushes = run.flushes;
  std::optional<Chunk> text;
  for (;;) {
    if (!run.running() || !pad_exists_) return Accept::kFlushing;
    if (!run.takes_text()) return Accept::kEnded;
    if (flushes != run.flushes) return Accept::kFlushing;
    if (epoch != run.epoch) return Accept::kAccepted;
    if (!text) {
      text = {joiner_.Push(chunk, repaired)};
      if (settings.markup != pad_settings_.markup) CloseUtterance();
      pad_settings_ = settings;
      pad_cue_ = cue;
      KeepMetas(notes.metas);
      last_text_ = Monitor::Clock::now();
      monitor_.Announce();  // the deadline has moved
    }
    if (QueueText(&*text)) {
      if (notes.whole) CloseLateUtterance();
      return Accept::kAccepted;
    }
    WaitForRoom();
  }
}

void Intake::PushGap(uint64_t until) {
  const MonitorLock lock(monitor_);
  // Where much is waiting, the silence comes before the text that follows.
  if (!monitor_.run.running() || !monitor_.run.takes_text() || !queue_.HasRoom({})) return;
  queue_.Push({.cue = {.start = until, .end = {}}});
  monitor_.Announce();
}

bool Intake::PushEvent(std::shared_ptr<void> event) {
  const MonitorLock lock(monitor_);
  const RunState& run = monitor_.run;
  const uint64_t flushes = run.flushes;
  for (;;) {
    if (!run.running() || !pad_exists_ || run.failed || run.end_handed_out || flushes != run.flushes) return false;
    if (queue_.HasRoom({})) break;
    WaitForRoom();
  }
  events_.push_back(std::move(event));
  if (!HoldsText()) QueueEvents();
  return true;
}

void Intake::EndUtterance() {
  const MonitorLock lock(monitor_);
  CloseUtterance();
}

bool Intake::Drain() {
  const MonitorLock lock(monitor_);
  const RunState& run = monitor_.run;
  const uint64_t flushes = run.flushes;
  CloseUtterance();
  for (;;) {
    if (!run.running() || !pad_exists_ || run.failed || run.ending || flushes != run.flushes) return false;
    if (queue_.empty() && !spoken_.exists()) return true;
    monitor_.Wait(monitor_.changes());
  }
}

void Intake::EndText() {
  const MonitorLock lock(monitor_);
  // First: if there is no memory to close the utterance, its time-out does that, and the stream must still end.
  text_ended_ = true;
  monitor_.Announce();
  DropMidCharacter();
  CloseUtterance();
}

std::vector<std::string> Intake::TakeWarnings() {
  const MonitorLock lock(monitor_);
  return std::exchange(warnings_, {});
}

bool Intake::InMidCharacter() const {
  const MonitorLock lock(monitor_);
  return joiner_.in_mid_character();
}

void Intake::BeginSegment(bool pieces) {
  const MonitorLock lock(monitor_);
  if (std::exchange(pieces_, pieces) != pieces) CloseUtterance();
}

void Intake::BeginText() {
  const MonitorLock lock(monitor_);
  EndDocument();
  ++pad_stream_;
  text_ended_ = false;
}

void Intake::SetPad(bool exists) {
  const MonitorLock lock(monitor_);
  pad_exists_ = exists;
  text_ended_ = false;
  DropMidCharacter();
  CloseUtterance();
}

// --- with the monitor's mutex held

void Intake::Start(const TextOptions& options, std::optional<Utterance> first) {
  text_options_ = options;
  queue_.SetMaxCharacters(options.max_queued);
  queue_.SetMaxUtterances(size_t{2} * options.parallel);  // as many again wait for those that end early
  text_ended_ = false;
  dropped_ = 0;
  DropMidCharacter();
  if (first) EnqueueText(ReadDocument(*std::move(first), &warnings_));
}

void Intake::DropQueue(bool with_events) {
  sentence_.reset();
  segmenter_.Clear();
  segmented_ = 0;
  undecided_.clear();
  part_.reset();
  pad_metas_.clear();
  sentence_metas_.clear();
  if (with_events) {  // the text that follows is another one
    document_.reset();
    pad_markup_.reset();
  } else if (document_) {
    document_->EndUtterance();
    while (document_->Next()) continue;
    EndGrowing();
  }
  std::vector<std::shared_ptr<void>> waiting;
  while (!queue_.empty()) {
    const Utterance utterance = queue_.Pop();
    if (utterance.event != nullptr) waiting.push_back(utterance.event);
    if (auto report = FinishedUnspoken(utterance)) reports_.Add(*std::move(report));
    if (!utterance.text.empty()) ++dropped_;
  }
  waiting.insert(waiting.end(), events_.begin(), events_.end());
  events_.clear();
  if (with_events) return;
  events_ = std::move(waiting);
  QueueEvents();
}

void Intake::CloseUtterance() {
  EndDocument();
  CloseLateUtterance();
}

void Intake::CloseLateUtterance() {
  if (document_) document_->EndUtterance();
  QueueParts(false);
  while (sentence_ || (sentence_ = segmenter_.NextAtEnd())) {
    EnqueueSentence();
  }
  EndGrowing();
  QueueEvents();
  growing_failed_ = false;
  monitor_.Announce();
}

// Ends the utterance that grows: it is complete.
void Intake::EndGrowing() {
  if (spoken_.Is(growing_id_)) {
    spoken_.End();
  } else if (Utterance* growing = queue_.Find(growing_id_)) {
    growing->more_text = false;
  }
  growing_id_ = 0;
}

std::optional<Monitor::Clock::time_point> Intake::UtteranceDeadline() const {
  constexpr std::chrono::nanoseconds kForever = std::chrono::hours(24 * 365);
  const bool grows = spoken_.grows();
  const bool begun = !spoken_.exists() && (HoldsText() || AwaitsWords() || growing_failed_);
  if ((!grows && !begun) || text_options_.timeout > static_cast<uint64_t>(kForever.count())) return std::nullopt;
  return last_text_ + std::chrono::nanoseconds(text_options_.timeout);
}

Utterance Intake::Pop() {
  Utterance next = queue_.Pop();
  monitor_.Announce();  // there is room
  return next;
}

bool Intake::AwaitsWords() const {
  if (spoken_.exists() || queue_.empty()) return false;
  return queue_.front().more_text && HasNothingToSay(queue_.front());
}

bool Intake::TextIsOver(bool wait_for_application) const {
  if (monitor_.run.ending) return true;
  return queue_.empty() && !HoldsText() && (pad_exists_ ? text_ended_ : !wait_for_application);
}

// --- with the mutex held: these take from `chunk` what there is room for, and return whether that was all.

Segmentation Intake::segmentation() const {
  if (text_options_.segmentation != Segmentation::kAuto) return text_options_.segmentation;
  return pieces_ ? Segmentation::kSentence : Segmentation::kNone;
}

// Returns true if some text has come that no utterance of the queue has yet.
bool Intake::HoldsText() const {
  return !segmenter_.empty() || part_ || !undecided_.empty() || (document_ && !document_->idle());
}

qtts::Segmenter::Options Intake::SentenceOptions() const {
  return {.newline_ends = text_options_.newline_ends,
          .skip_footnote_marks = text_options_.skip_footnote_marks,
          .max_chars = text_options_.max_chars,
          .language = LanguageTag(pad_settings_)};
}

bool Intake::QueueText(Chunk* chunk) {
  if (!QueueParts(true)) return false;
  if (segmentation() == Segmentation::kNone || segmentation() == Segmentation::kAuto) {
    if (const auto markup = qtts::ResolveMarkup(pad_settings_.markup, chunk->rest(), true);
        chunk->taken == 0 && markup != qtts::Markup::kNone) {
      return QueueDocument(chunk);
    }
  } else if (!chunk->rest().empty() && pad_markup_ != qtts::Markup::kNone) {
    if (!ReadDocumentText(chunk)) return false;
    if (chunk->rest().empty()) return true;
  }
  switch (segmentation()) {
    case Segmentation::kAuto:
    case Segmentation::kNone:
      return QueueWhole(chunk);
    case Segmentation::kSentence:
      segmenter_.SetOptions(SentenceOptions());
      AppendToSentences(chunk->rest());
      chunk->taken = chunk->text.size();
      return QueueSentences();
    case Segmentation::kStream:
      return GrowUtterance(chunk);
  }
  return true;
}

// Queues a chunk that is a document of its own.
bool Intake::QueueDocument(Chunk* chunk) {
  const auto markup = qtts::ResolveMarkup(pad_settings_.markup, chunk->rest(), true);
  qtts::MarkupSplitter splitter(MarkupOptionsOf(pad_settings_, *markup), qtts::MarkupUnits::kBlocks, SentenceOptions());
  splitter.ReadWhole(chunk->rest());
  TakeDocumentWarnings(&splitter);
  chunk->taken = chunk->text.size();
  document_ = std::move(splitter);
  return QueueParts(true);
}

// Reads the text of a document that grows. It is left in `chunk` if it turns out to have no markup.
bool Intake::ReadDocumentText(Chunk* chunk) {
  if (!document_) {
    undecided_.append(chunk->rest());
    pad_markup_ = qtts::ResolveMarkup(pad_settings_.markup, undecided_, false);
    chunk->taken = chunk->text.size();
    if (!pad_markup_) return true;
    *chunk = {std::exchange(undecided_, {})};
    if (pad_markup_ == qtts::Markup::kNone) return true;
    BeginDocument(*pad_markup_);
  }
  (void)document_->Append(chunk->rest());
  chunk->taken = chunk->text.size();
  TakeDocumentWarnings(&*document_);
  return QueueParts(true);
}

void Intake::BeginDocument(qtts::Markup markup) {
  const bool grows = segmentation() == Segmentation::kStream;
  document_.emplace(MarkupOptionsOf(pad_settings_, markup),
                    grows ? qtts::MarkupUnits::kGrowing : qtts::MarkupUnits::kSentences, SentenceOptions());
}

// Ends the text of the sink pad as a document. Nothing waits for room.
void Intake::EndDocument() {
  if (!undecided_.empty()) {
    Chunk rest = {std::exchange(undecided_, {})};
    pad_markup_ = qtts::Markup::kNone;  // as it is too short for markup
    QueueText(&rest);
  }
  pad_markup_.reset();
  if (!document_) return;
  document_->Finish();
  TakeDocumentWarnings(&*document_);
  QueueParts(false);
  document_.reset();
}

void Intake::TakeDocumentWarnings(qtts::MarkupSplitter* splitter) {
  for (std::string& warning : splitter->TakeWarnings()) warnings_.push_back(std::move(warning));
}

// Queues the parts of the document that are decided. With `wait` it returns false if there is no room.
bool Intake::QueueParts(bool wait) {
  if (!document_ && !part_) return true;
  while (part_ || (part_ = document_->Next())) {
    if (!QueuePart(&*part_, wait)) return false;
    part_.reset();
  }
  const bool whole = segmentation() == Segmentation::kNone || segmentation() == Segmentation::kAuto;
  if (whole) document_.reset();
  if (!HoldsText()) QueueEvents();
  return true;
}

bool Intake::QueuePart(qtts::MarkupPart* part, bool wait) {
  const bool text = part->kind == qtts::MarkupPart::Kind::kText;
  if (text && !part->begins) {
    Utterance more = MakeUtterance(std::move(*part), pad_settings_);
    const bool ends = !more.more_text;
    if (spoken_.Is(growing_id_)) {
      spoken_.Append(std::move(more));
    } else if (Utterance* growing = queue_.Find(growing_id_)) {
      queue_.Grow(growing, std::move(more));
    }
    if (ends) EndGrowing();
    monitor_.Announce();
    return true;
  }
  if (wait && !queue_.HasRoom(part->text)) return false;
  Utterance utterance = MakeUtterance(std::move(*part), pad_settings_);
  utterance.stream = pad_stream_;
  if (!text) {
    if (utterance.mark) utterance.mark_id = last_id_;
    queue_.Push(std::move(utterance));
    monitor_.Announce();
    return true;
  }
  utterance.streamed = segmentation() == Segmentation::kStream;
  utterance.cue = pad_cue_;
  pad_cue_.start.reset();
  const bool grows = utterance.more_text;
  Enqueue(std::move(utterance));
  if (grows) growing_id_ = last_id_;
  return true;
}

bool Intake::QueueWhole(Chunk* chunk) {
  while (!IsBlank(chunk->rest())) {
    const size_t end = qtts::CutPosition(chunk->rest(), text_options_.max_chars, LanguageTag(pad_settings_));
    std::string part(Trim(chunk->rest().substr(0, end)));
    if (!IsBlank(part)) {
      if (!queue_.HasRoom(part)) return false;
      const auto own = static_cast<double>(CountCharacters(part));
      const auto after = static_cast<double>(CountCharacters(Trim(chunk->rest().substr(end))));
      pad_cue_.share = own / (own + after);
      Enqueue({.text = std::move(part), .settings = pad_settings_, .stream = pad_stream_, .cue = pad_cue_});
      pad_cue_.start.reset();  // of a text that is cut, the first part alone has a beginning of its own
    }
    chunk->taken += end;
  }
  return true;
}

bool Intake::QueueSentences() {
  while (sentence_ || (sentence_ = segmenter_.Next())) {
    if (!queue_.HasRoom(sentence_->text)) return false;
    EnqueueSentence();
  }
  return true;
}

bool Intake::GrowUtterance(Chunk* chunk) {
  while (!chunk->rest().empty()) {
    const size_t newline = text_options_.newline_ends ? chunk->rest().find_first_of("\r\n") : std::string::npos;
    const std::string_view line = chunk->rest().substr(0, newline);
    const bool spoken = spoken_.Is(growing_id_);
    Utterance* queued = spoken ? nullptr : queue_.Find(growing_id_);
    size_t taken = line.size();
    if (!spoken && queued == nullptr) {
      const std::optional<size_t> begun = BeginGrowing(line);
      if (!begun) return false;
      taken = *begun;
    } else if (CountCharacters(spoken ? spoken_.text() : queued->text) + CountCharacters(line) >
                   text_options_.max_chars ||
               (AwaitsWords() && !queue_.HasRoom(line))) {  // nothing else would free space
      CloseUtterance();
      continue;
    } else if (spoken) {
      spoken_.Append(line);
    } else if (queue_.HasRoom(line)) {
      queue_.Grow(queued, line);
    } else {
      return false;
    }
    if (taken == newline) {
      CloseUtterance();
      ++taken;
    }
    chunk->taken += taken;
    monitor_.Announce();
  }
  return true;
}

// Begins an utterance that grows with `line`. How many bytes of that it has taken; nothing if there is no room.
std::optional<size_t> Intake::BeginGrowing(std::string_view line) {
  if (growing_failed_ || IsBlank(line)) return line.size();
  const size_t taken = qtts::CutPosition(line, text_options_.max_chars, LanguageTag(pad_settings_));
  const std::string begun(TrimLeft(line.substr(0, taken)));
  if (!queue_.HasRoom(begun)) return std::nullopt;
  // Only this layout can wait for text. It is always used, so that the speed of the text does not change the sound.
  Enqueue({.text = begun, .settings = pad_settings_, .streamed = true, .more_text = true, .stream = pad_stream_});
  growing_id_ = last_id_;
  if (taken < line.size()) CloseUtterance();
  return taken;
}

void Intake::EnqueueSentence() {
  qtts::Sentence sentence = *std::exchange(sentence_, std::nullopt);
  while (!sentence_metas_.empty() && sentence_metas_.front().begin < segmenter_.position()) {
    pad_metas_.push_back(std::move(sentence_metas_.front().metas));
    sentence_metas_.pop_front();
  }
  Utterance utterance = {
      .text = sentence.text, .settings = pad_settings_, .stream = pad_stream_, .before = sentence.before};
  if (sentence.source != sentence.text) utterance.sentence = std::make_shared<qtts::Sentence>(std::move(sentence));
  Enqueue(std::move(utterance));
  QueueEvents();
}

// Queues a whole text of the application, by ReadDocument(). Returns its number.
uint64_t Intake::EnqueueText(std::vector<Utterance> parts) {
  const uint64_t number = last_id_ + 1;
  if (parts[0].document != nullptr) parts[0].document->SetId(number);
  for (Utterance& part : parts) {
    if (part.text.empty()) {
      queue_.Push(std::move(part));
    } else {
      Enqueue(std::move(part));
    }
  }
  monitor_.Announce();
  return number;
}

void Intake::Enqueue(Utterance utterance) {
  utterance.id = ++last_id_;
  if (utterance.stream != 0) utterance.metas = std::exchange(pad_metas_, {});
  queue_.Push(std::move(utterance));
  monitor_.Announce();
}

void Intake::QueueEvents() {
  for (std::shared_ptr<void>& event : events_) queue_.Push({.event = std::move(event)});
  events_.clear();
  monitor_.Announce();
}

// Keeps the metas of a chunk for the utterance that its text begins, or for the one that it extends.
void Intake::KeepMetas(const std::shared_ptr<void>& metas) {
  const bool whole = segmentation() == Segmentation::kNone || segmentation() == Segmentation::kAuto;
  if (whole) pad_metas_.clear();  // the chunk before was blank
  if (metas == nullptr) return;
  std::vector<std::shared_ptr<void>>* kept = &pad_metas_;
  if (spoken_.Is(growing_id_)) {
    kept = spoken_.metas();
  } else if (Utterance* growing = growing_id_ != 0 ? queue_.Find(growing_id_) : nullptr) {
    kept = &growing->metas;
  }
  if (kept->size() < kMaxMetas) kept->push_back(metas);
}

// The metas of the text are those of the sentence that its first word is in.
void Intake::AppendToSentences(std::string_view text) {
  const size_t begin = segmented_ + text.size() - TrimLeft(text).size();
  for (std::shared_ptr<void>& metas : std::exchange(pad_metas_, {})) {
    if (sentence_metas_.size() < kMaxMetas) sentence_metas_.push_back({begin, std::move(metas)});
  }
  segmented_ += text.size();
  segmenter_.Append(text);
}

// Releases the mutex while it waits.
void Intake::WaitForRoom() {
  upstream_waits_ = true;
  monitor_.Wait(monitor_.changes());
  upstream_waits_ = false;
}

}  // namespace gstqtts
