// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TESTS_GST_WORDS_FIXTURE_H_
#define QTTS_TESTS_GST_WORDS_FIXTURE_H_

#include <string>
#include <utility>
#include <vector>

#include "support.h"

namespace qtts::testing {

inline constexpr guint64 kFrame = 80;  // milliseconds

inline std::vector<std::string> Texts(const GstStructure* structure, const char* field) {
  const GValue* value = gst_structure_get_value(structure, field);
  if (value == nullptr) return {"no field"};
  std::vector<std::string> texts;
  for (auto** text = static_cast<gchar**>(g_value_get_boxed(value)); *text != nullptr; ++text)
    texts.emplace_back(*text);
  return texts;
}

inline std::vector<guint64> Numbers(const GstStructure* structure, const char* field) {
  const GValue* value = gst_structure_get_value(structure, field);
  if (value == nullptr) return {G_MAXUINT64};
  std::vector<guint64> numbers;
  for (guint i = 0; i < gst_value_array_get_size(value); ++i) {
    numbers.push_back(g_value_get_uint64(gst_value_array_get_value(value, i)));
  }
  return numbers;
}

// A word as it was told: characters and milliseconds.
struct Word {
  guint64 offset = 0;
  guint64 length = 0;
  guint64 time = 0;
  guint64 duration = 0;
  bool estimated = false;

  bool operator==(const Word&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Word& word) {
    return out << "{" << word.offset << ", " << word.length << ", " << word.time << ", " << word.duration << ", "
               << word.estimated << "}";
  }
};

// An element whose engine measures words.
class WordsTest : public GstTest {
 protected:
  void SetUp() override {
    GstTest::SetUp();
    fake::AddAlignment(&script_);
    fake::SetScript(script_);
  }
  void TearDown() override {
    finished_.clear();
    started_.clear();
    GstTest::TearDown();
  }

  // Plays, and takes all messages up to the end of the stream.
  void ReadMessages(Pipeline* pipeline) {
    pipeline->Play();
    for (;;) {
      auto message = pipeline->Wait(GST_MESSAGE_ELEMENT | GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
      ASSERT_NE(message, nullptr);
      if (GST_MESSAGE_TYPE(message.get()) == GST_MESSAGE_EOS) return;
      ASSERT_EQ(GST_MESSAGE_TYPE(message.get()), GST_MESSAGE_ELEMENT) << ParseProblem(message.get()).text;
      Take(std::move(message));
    }
  }
  void Take(Owned<GstMessage> message) {
    const GstStructure* fields = gst_message_get_structure(message.get());
    if (gst_structure_has_name(fields, "qtts-text-progress")) {
      words_.push_back({GetField(fields, "offset-chars"), GetField(fields, "length-chars"),
                        GetField(fields, "running-time") / GST_MSECOND, GetField(fields, "duration") / GST_MSECOND,
                        GetFlag(fields, "estimated")});
    } else if (gst_structure_has_name(fields, "qtts-utterance-finished")) {
      finished_.push_back(std::move(message));
    } else if (gst_structure_has_name(fields, "qtts-utterance-started")) {
      started_.push_back(std::move(message));
    }
  }
  const GstStructure* finished(size_t i) const { return gst_message_get_structure(finished_.at(i).get()); }
  const GstStructure* started(size_t i) const { return gst_message_get_structure(started_.at(i).get()); }

  fake::Script script_;
  std::vector<Word> words_;
  std::vector<Owned<GstMessage>> finished_;
  std::vector<Owned<GstMessage>> started_;
};

}  // namespace qtts::testing

#endif  // QTTS_TESTS_GST_WORDS_FIXTURE_H_
