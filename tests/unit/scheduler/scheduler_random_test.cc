// SPDX-License-Identifier: LGPL-2.1-or-later
// Hundreds of streams that arrive, stall, are read in bursts, interrupted and left alone, at random. Each is compared
// with a plain model of its allowed behaviour. QTTS_SOAK_SECONDS makes the test longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "scheduler/scheduler.h"
#include "scripted_backend.h"

namespace qtts {
namespace {

using Clock = std::chrono::steady_clock;

struct Parts {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const PromptBuilder> prompts;
  int32_t pad = 0;
  int32_t eos = 0;
};

Parts LoadParts() {
  Parts parts;
  const auto checkpoint = Checkpoint::Open(QTTS_TEST_VOICE);
  EXPECT_TRUE(checkpoint.ok());
  parts.tokenizer = *Tokenizer::Load(QTTS_TEST_VOICE);
  parts.prompts =
      std::make_shared<const PromptBuilder>(*PromptBuilder::Create((*checkpoint)->config(), parts.tokenizer));
  parts.pad = (*checkpoint)->config().tts_pad_token_id;
  parts.eos = (*checkpoint)->config().tts_eos_token_id;
  return parts;
}

// One utterance, and the rules that hold for it whatever the other streams do.
class Utterance {
 public:
  Utterance(const Parts& parts, Scheduler* scheduler, SharedScript* script, uint64_t seed, unsigned random_seed)
      : parts_(parts), script_(*script), seed_(seed), random_(random_seed) {
    request_.seed = seed;
    request_.text = text_;
    request_.more_text = true;
    request_.layout = PromptLayout::kStreaming;
    request_.real_time = seed % 2 == 0;
    lead_ = 1 + random_() % 6;
    frames_ = static_cast<int64_t>(random_() % 40);
    more_ = random_() % 12;
    limited_ = frames_ > 0 && random_() % 4 == 0;
    if (limited_) request_.settings.max_new_tokens = frames_ + 1;
    script_->frames_by_seed[seed] = static_cast<int>(frames_);
    script_->pieces_by_seed[seed] = random_() % 4 == 0 ? 3 : 1;
    stream_ =
        std::make_shared<StreamState>(parts_.prompts, parts_.tokenizer, request_, lead_, [told = told_] { ++*told; });
    EXPECT_TRUE(stream_->Begin().ok());
    scheduler->Add(stream_);
  }

  // One random action, possibly none. Returns false once the utterance has ended and was checked.
  bool Act() {
    switch (random_() % 8) {
      case 0:
      case 1:
        Write();
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        for (unsigned n = 1 + random_() % 8; n > 0 && Read(); --n) continue;
        break;
      case 6:
        if (random_() % 40 == 0) {
          stream_->Cancel();
          cancelled_ = true;
        }
        break;
      default:  // a slow reader or writer
        break;
    }
    if (!ended_) return true;
    CheckEnd();
    return false;
  }

  // Writes all remaining text, and reads the available frames. Returns false once the utterance has ended.
  bool Finish() {
    while (!finished_ && !ended_) Write();
    while (Read()) continue;
    if (ended_) CheckEnd();
    return !ended_;
  }

 private:
  void Write() {
    static constexpr const char* kWords[] = {" and", " then, far", " away", " 12", " sound", ".", " of it"};
    if (finished_) return;
    if (more_ > 0) {
      --more_;
      const std::string piece = kWords[random_() % std::size(kWords)];
      // Refused if the utterance has ended before this text.
      if (stream_->Append(piece).ok()) text_ += piece;
      return;
    }
    EXPECT_TRUE(stream_->FinishText().ok());
    finished_ = true;
  }

  bool Read() {
    Frame frame;
    const ReadState state = stream_->Read(&frame, false);
    if (state == ReadState::kFrame) CheckFrame(frame);
    ended_ = ended_ || state == ReadState::kEnd;
    return state == ReadState::kFrame;
  }

  void CheckFrame(const Frame& frame) {
    EXPECT_EQ(frame.index, read_) << "seed " << seed_;
    EXPECT_EQ(frame.codes.at(0), read_) << "seed " << seed_;
    ++read_;
    EXPECT_LE(stream_->unread(), lead_);
  }

  void CheckEnd() {
    if (checked_) return;
    checked_ = true;
    const EndReason reason = stream_->end_reason();
    const EndReason end = limited_ ? EndReason::kMaxDuration : EndReason::kComplete;
    EXPECT_TRUE(reason == end || (reason == EndReason::kCancelled && cancelled_))
        << "seed " << seed_ << ": " << static_cast<int>(reason);
    EXPECT_LE(read_, frames_);
    if (reason == end) {
      EXPECT_EQ(read_, frames_) << "seed " << seed_;
    }
    // The text ids of the frames are those of the whole text, in order; no frame has an invented one.
    TextFeed feed(parts_.tokenizer);
    ASSERT_TRUE(feed.Append(text_).ok());
    ASSERT_TRUE(feed.Finish().ok());
    const std::vector<int32_t> ids = feed.TakeIds();
    std::vector<int32_t> expected = {kNoText};
    expected.insert(expected.end(), ids.begin() + 3, ids.end());
    expected.push_back(parts_.eos);
    const std::vector<int32_t> said = script_.Text(seed_);
    EXPECT_LE(said.size(), static_cast<size_t>(frames_) + (limited_ ? 1 : 2))
        << "one step finds the end, one more may be under way";
    EXPECT_LE(said.size(), static_cast<size_t>(read_) + lead_ + 1) << "nobody is made more than the lead ahead";
    for (size_t i = 0; i < said.size(); ++i) {
      const int32_t id = i < expected.size() ? expected[i] : parts_.pad;
      // The last ids are decided by the end of the text, and are not fed before it.
      if (!finished_ && i + 3 >= expected.size()) break;
      ASSERT_EQ(said[i], id) << "seed " << seed_ << ", frame " << i << " of \"" << text_ << "\"";
    }
    const auto script = script_.Lock();
    script->text_by_seed.erase(seed_);
    script->frames_by_seed.erase(seed_);
    script->pieces_by_seed.erase(seed_);
  }

  const Parts& parts_;
  SharedScript& script_;
  const uint64_t seed_;
  std::mt19937 random_;
  Request request_;
  std::string text_ = "Hello there my friend";
  size_t lead_ = 1;
  int64_t frames_ = 0;
  bool limited_ = false;                                                                  // by max_new_tokens
  size_t more_ = 0;                                                                       // pieces to write
  const std::shared_ptr<std::atomic<int>> told_ = std::make_shared<std::atomic<int>>(0);  // may be called late
  bool finished_ = false;
  bool cancelled_ = false;
  bool ended_ = false;
  bool checked_ = false;
  int64_t read_ = 0;
  std::shared_ptr<StreamState> stream_;
};

std::chrono::milliseconds Duration() {
  const char* const text = std::getenv("QTTS_SOAK_SECONDS");
  return text == nullptr ? std::chrono::milliseconds(700) : std::chrono::seconds(std::atoi(text));
}

struct Device {
  const char* name;
  int slots;
  int outstanding;
  bool beside_host;
  int pages;  // of 4 positions each; 0: no pages
};

class SchedulerRandomTest : public testing::TestWithParam<Device> {};

TEST_P(SchedulerRandomTest, HundredsOfStreamsDoWhatOneAloneWould) {
  constexpr unsigned kThreads = 4;
  constexpr size_t kStreamsOfThread = 100;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const Parts parts = LoadParts();
  SharedScript script;
  script->max_slots = GetParam().slots;
  script->max_outstanding = GetParam().outstanding;
  script->beside_host = GetParam().beside_host;
  script->prompt_rows_together = GetParam().beside_host ? 256 : 0;
  script->pages = GetParam().pages;
  script->page_positions = GetParam().pages > 0 ? 4 : 0;
  auto scheduler = *Scheduler::Create(std::make_unique<ScriptedBackend>(&script));
  const auto end = Clock::now() + Duration();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      uint64_t next = uint64_t{t} << 32U;
      std::vector<std::unique_ptr<Utterance>> utterances;
      while (Clock::now() < end) {
        if (utterances.size() < kStreamsOfThread && random() % 2 == 0) {
          utterances.push_back(
              std::make_unique<Utterance>(parts, scheduler.get(), &script, ++next, static_cast<unsigned>(random())));
        }
        for (size_t n = 0; n < 8 && !utterances.empty(); ++n) {
          auto& utterance = utterances[random() % utterances.size()];
          if (utterance->Act()) continue;
          std::swap(utterance, utterances.back());
          utterances.pop_back();
        }
      }
      // All together: an unread stream keeps its slot, for which another one may wait.
      while (!utterances.empty()) {
        std::erase_if(utterances, [](const std::unique_ptr<Utterance>& utterance) { return !utterance->Finish(); });
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  scheduler.reset();
  EXPECT_EQ(script->open_slots, 0) << "slots leaked";
  EXPECT_EQ(script->taken_pages, 0) << "pages leaked";
  EXPECT_EQ(script->parked_pages, 0) << "pages leaked";
  RecordProperty("parkings", script->parkings);
  EXPECT_LE(script->most_open_slots, GetParam().slots);
  EXPECT_LE(script->most_outstanding, static_cast<size_t>(GetParam().outstanding));
}

INSTANTIATE_TEST_SUITE_P(Devices, SchedulerRandomTest,
                         testing::Values(Device{"FewSlots", 5, 1, false, 0},
                                         Device{"AsManyAsByDefault", 64, 2, true, 0},
                                         Device{"ManySlots", 300, 2, true, 0}, Device{"FewPages", 64, 2, true, 100},
                                         Device{"ManySlotsAndFewPages", 300, 2, true, 100}),
                         [](const testing::TestParamInfo<Device>& device) { return std::string(device.param.name); });

}  // namespace
}  // namespace qtts
