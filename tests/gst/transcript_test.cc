// SPDX-License-Identifier: LGPL-2.1-or-later
// Conventions of GStreamer's elements for text: speakers of a transcript, metas, sentences of textaccumulate.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gstqttsspeakermap.h"
#include "support.h"

namespace qtts::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kWithoutTags[] = "QttsTestMeta";
constexpr char kWithTags[] = "QttsTestTaggedMeta";
constexpr char kSentence[] = "TextAccumulateSentenceMeta";

struct FreeStructure {
  void operator()(GstStructure* structure) const { gst_structure_free(structure); }
};
using OwnedStructure = std::unique_ptr<GstStructure, FreeStructure>;

OwnedStructure Structure(const char* text) { return OwnedStructure(gst_structure_from_string(text, nullptr)); }

// --- the map

class SpeakerMapTest : public ::testing::Test {
 protected:
  // The preset voice that a name has; empty: that of the properties.
  std::string VoiceOf(const GstStructure* map, const char* name) {
    const OwnedStructure settings(map_.SettingsOf(map, name, {"ann", "bob", "cem"}));
    const gchar* speaker = settings != nullptr ? gst_structure_get_string(settings.get(), "speaker") : nullptr;
    return speaker != nullptr ? speaker : "";
  }

  gstqtts::SpeakerMap map_;
};

// Check: 64
TEST_F(SpeakerMapTest, FieldsComeFirst) {
  const OwnedStructure map = Structure("map, S1=bob, bob=ann, default=cem");
  EXPECT_EQ(VoiceOf(map.get(), "S1"), "bob");
  EXPECT_EQ(VoiceOf(map.get(), "bob"), "ann");
  EXPECT_EQ(VoiceOf(map.get(), "Ann"), "ann") << "a preset voice of that name";
  EXPECT_EQ(VoiceOf(map.get(), "S9"), "cem");
}

// Check: 64
TEST_F(SpeakerMapTest, WithoutAFieldEachNameHasAVoiceOfItsOwn) {
  const OwnedStructure map = Structure("map, S1=Ann");
  EXPECT_EQ(VoiceOf(map.get(), "0"), "bob");
  EXPECT_EQ(VoiceOf(map.get(), "1"), "cem");
  EXPECT_EQ(VoiceOf(map.get(), "0"), "bob") << "it keeps its voice";
  EXPECT_EQ(VoiceOf(map.get(), "2"), "") << "all are taken";
  map_.Restart();
  EXPECT_EQ(VoiceOf(map.get(), "2"), "bob");
}

TEST_F(SpeakerMapTest, NoVoiceThatIsUsedIsGiven) {
  const OwnedStructure map = Structure("map, S1=(structure)\"voice, speaker=(string)Ann, seed=(gint64)7;\"");
  EXPECT_EQ(VoiceOf(map.get(), "Bob"), "bob") << "a preset voice of that name";
  EXPECT_EQ(VoiceOf(map.get(), "0"), "cem") << "ann is in the map, and bob has his own";
  EXPECT_EQ(VoiceOf(map.get(), "1"), "");
  EXPECT_EQ(VoiceOf(map.get(), "bob"), "bob");
  map_.Restart();
  EXPECT_EQ(VoiceOf(map.get(), "1"), "bob");
}

TEST_F(SpeakerMapTest, AValueMayHaveAnySettings) {
  const OwnedStructure map =
      Structure("map, S1=(structure)\"voice, voice-file=(string)/v, seed=(gint64)7;\", S2=(int)5");
  const OwnedStructure settings(map_.SettingsOf(map.get(), "S1", {}));
  EXPECT_STREQ(gst_structure_get_string(settings.get(), "voice-file"), "/v");
  const OwnedStructure wrong(map_.SettingsOf(map.get(), "S2", {}));
  EXPECT_TRUE(gst_structure_has_field_typed(wrong.get(), "speaker", G_TYPE_INT)) << "refused later, by its type";
}

// --- the element

// Notes the metas of each buffer of an element as "value" of kWithoutTags, and whether there is another.
class MetaNotes {
 public:
  explicit MetaNotes(GstElement* element)
      : probe_(Owned<GstPad>(gst_element_get_static_pad(element, "src")).get(), GST_PAD_PROBE_TYPE_BUFFER,
               [notes = notes_](GstPadProbeInfo* info) {
                 std::string note;
                 gst_buffer_foreach_meta(GST_PAD_PROBE_INFO_BUFFER(info), OnMeta, &note);
                 notes->Add(note);
                 return GST_PAD_PROBE_OK;
               }) {}

  std::vector<std::string> notes() const { return notes_->items(); }

 private:
  static gboolean OnMeta(GstBuffer* /*buffer*/, GstMeta** meta, gpointer user_data) {
    auto* note = static_cast<std::string*>(user_data);
    if (gst_meta_info_is_custom((*meta)->info) == FALSE) return TRUE;
    auto* custom = reinterpret_cast<GstCustomMeta*>(*meta);
    const gchar* value = gst_structure_get_string(gst_custom_meta_get_structure(custom), "value");
    *note += (note->empty() ? "" : " ") + std::string(value != nullptr ? value : "sentence");
    return TRUE;
  }

  const std::shared_ptr<SharedList<std::string>> notes_ = std::make_shared<SharedList<std::string>>();
  Probe probe_;
};

class TranscriptTest : public GstTest {
 protected:
  static void SetUpTestSuite() {
    static const gchar* no_tags[] = {nullptr};
    static const gchar* tags[] = {"memory", nullptr};
    gst_meta_register_custom(kWithoutTags, no_tags, nullptr, nullptr, nullptr);
    gst_meta_register_custom(kWithTags, tags, nullptr, nullptr, nullptr);
    gst_meta_register_custom(kSentence, no_tags, nullptr, nullptr, nullptr);
    KeepLiveObjects();
  }

  void Begin(const std::string& properties = "", GstFormat format = GST_FORMAT_TIME) {
    notes_.reset();
    speak_.emplace("idle-mode=wait " + properties);
    notes_.emplace(speak_->src());
    speak_->Open(format);
  }

  static GstBuffer* Text(const std::string& text, const std::string& value = "", const char* meta = kWithoutTags) {
    GstBuffer* buffer = gst_buffer_new_memdup(text.data(), text.size());
    if (!value.empty()) {
      GstCustomMeta* custom = gst_buffer_add_custom_meta(buffer, meta);
      gst_structure_set(gst_custom_meta_get_structure(custom), "value", G_TYPE_STRING, value.c_str(), nullptr);
    }
    return buffer;
  }
  void Push(GstBuffer* buffer) { ASSERT_EQ(gst_pad_chain(speak_->feeder().sink(), buffer), GST_FLOW_OK); }
  bool SendChange(const char* speaker) {
    GstStructure* change = gst_structure_new("rstranscribe/speaker-change", "speaker", G_TYPE_STRING, speaker, nullptr);
    return speak_->feeder().Send(gst_event_new_custom(GST_EVENT_CUSTOM_DOWNSTREAM, change));
  }
  void End() { speak_->End().ExpectEnd(); }

  // Any file that exists is a voice to the engine of these tests.
  static constexpr char kMapOfFiles[] =
      "speaker-map=\"map, S1=(structure)\\\"voice, voice-file=(string)/proc/self/exe\\;\\\"\"";
  static void UseBaseModel() {
    fake::Script script;
    script.info.type = ModelType::kBase;
    script.info.speakers.clear();
    fake::SetScript(script);
  }
  static std::vector<std::pair<std::string, std::string>> Spoken() {
    std::vector<std::pair<std::string, std::string>> spoken;
    for (const Request& request : fake::Requests()) spoken.emplace_back(request.text, request.speaker);
    return spoken;
  }

  std::optional<Speak> speak_;
  std::optional<MetaNotes> notes_;
};

using Line = std::pair<std::string, std::string>;

// Check: 64
TEST_F(TranscriptTest, SpeakersAreKeptApart) {
  Begin("speaker-map=\"map, S1=bob\"");
  Push(Text("before"));
  for (const char* speaker : {"S1", "S2", "S1", static_cast<const char*>(nullptr)}) {
    EXPECT_TRUE(SendChange(speaker));
    Push(Text(speaker != nullptr ? speaker : "nobody"));
  }
  End();
  EXPECT_THAT(Spoken(), ElementsAre(Line("before", ""), Line("S1", "bob"), Line("S2", "ann"), Line("S1", "bob"),
                                    Line("nobody", "")));
}

// Check: 64
TEST_F(TranscriptTest, TheEventGoesOnInOrderAndEndsTheSentence) {
  Begin("speaker-map=\"map, S1=bob\" segmentation=sentence utterance-timeout=18446744073709551615");
  Push(Text("no mark"));
  EXPECT_TRUE(SendChange("S1"));
  Push(Text("and on"));
  End();
  EXPECT_THAT(Spoken(), ElementsAre(Line("no mark", ""), Line("and on", "bob")));
  const auto items = speak_->record().items();
  size_t buffers = 0;
  size_t before_event = 0;
  for (const auto& item : items) {
    if (item.is_buffer) ++buffers;
    if (!item.is_buffer && item.event == GST_EVENT_CUSTOM_DOWNSTREAM) before_event = buffers;
  }
  EXPECT_EQ(before_event, 7U) << "after the sound of the text before it";
}

TEST_F(TranscriptTest, WithoutAMapTheEventChangesNothing) {
  Begin("segmentation=sentence");
  Push(Text("one "));
  EXPECT_TRUE(SendChange("bob"));
  Push(Text("sentence."));
  End();
  EXPECT_THAT(Spoken(), ElementsAre(Line("one sentence.", "")));
}

TEST_F(TranscriptTest, AWrongValueIsAWarningAndTheVoiceOfTheProperties) {
  Begin("speaker=ann speaker-map=\"map, S1=nobody, S2=(int)3\"");
  for (const char* speaker : {"S1", "S2"}) {
    EXPECT_TRUE(SendChange(speaker));
    const auto warning = speak_->Wait(GST_MESSAGE_WARNING);
    ASSERT_NE(warning, nullptr);
    EXPECT_THAT(ParseProblem(warning.get()).text,
                HasSubstr("\"speaker-map\" for the speaker \"" + std::string(speaker)));
    Push(Text("a"));
  }
  End();
  EXPECT_THAT(Spoken(), ElementsAre(Line("a", "ann"), Line("a", "ann")));
}

TEST_F(TranscriptTest, TheSpeakerComesOverASetVoiceAndEndsWithTheStream) {
  Begin("speaker-map=\"map, S1=bob\"");
  speak_->Send("qtts/set-voice, speaker=ann, seed=(gint64)3");
  SendChange("S1");
  Push(Text("a"));
  speak_->Open();
  Push(Text("b"));
  End();
  EXPECT_THAT(Spoken(), ElementsAre(Line("a", "bob"), Line("b", "")));
  EXPECT_EQ(fake::Requests()[0].seed, 3U);
}

TEST_F(TranscriptTest, WithoutTheMapItsVoiceEnds) {
  Begin("speaker-map=\"map, S1=bob, S2=ann\"");
  SendChange("S1");
  Push(Text("a"));
  g_object_set(speak_->src(), "speaker-map", nullptr, nullptr);
  Push(Text("b"));
  SendChange("S2");
  const OwnedStructure map = Structure("map, S1=bob, S2=ann");
  g_object_set(speak_->src(), "speaker-map", map.get(), nullptr);
  Push(Text("c"));
  SendChange("S2");
  Push(Text("d"));
  End();
  EXPECT_THAT(Spoken(), ElementsAre(Line("a", "bob"), Line("b", ""), Line("c", ""), Line("d", "ann")));
}

TEST_F(TranscriptTest, ABaseModelMayHaveAllItsVoicesInTheMap) {
  UseBaseModel();
  Begin(kMapOfFiles);
  EXPECT_TRUE(SendChange("S1"));
  Push(Text("a"));
  EXPECT_TRUE(SendChange(nullptr));
  EXPECT_TRUE(SendChange("S1"));
  Push(Text("b"));
  End();
  EXPECT_EQ(speak_->Pending(GST_MESSAGE_WARNING).size(), 0U);
  EXPECT_EQ(fake::Requests().size(), 2U);
}

TEST_F(TranscriptTest, VoicesThatExcludeEachOtherAreRefusedWithTheEvent) {
  UseBaseModel();
  Begin(kMapOfFiles);
  EXPECT_TRUE(SendChange("S1"));
  const auto set_voice = [&](const std::string& fields) {
    return speak_->feeder().Send(NewEvent(("qtts/set-voice, " + fields).c_str()));
  };
  EXPECT_TRUE(set_voice("seed=(gint64)3"));
  EXPECT_FALSE(set_voice("reference-audio=(string)/proc/self/exe"));
  const auto warning = speak_->Wait(GST_MESSAGE_WARNING);
  ASSERT_NE(warning, nullptr);
  EXPECT_THAT(ParseProblem(warning.get()).text, HasSubstr("Both voice-file and a reference"));
  Push(Text("a"));
  End();
  ASSERT_EQ(fake::Requests().size(), 1U);
  EXPECT_EQ(fake::Requests()[0].seed, 3U);
}

// Check: 64
TEST_F(TranscriptTest, MetasWithoutTagsAreOnTheFirstBufferOfTheirSpeech) {
  Begin();
  Push(Text("ab", "one"));
  Push(Text("cd"));
  Push(Text("ef", "tagged", kWithTags));
  Push(Text("gh", "two"));
  End();
  EXPECT_THAT(notes_->notes(), ElementsAre("one", "", "", "", "", "", "two", ""));
}

TEST_F(TranscriptTest, TextThatIsCutHasThemOnce) {
  Begin("max-text-length=2");
  Push(Text("abcd", "one"));
  End();
  EXPECT_THAT(notes_->notes(), ElementsAre("one", "", "", ""));
}

TEST_F(TranscriptTest, SilenceAndBlankTextHaveNone) {
  Begin("leading-silence=80000000");
  Push(Text(" ", "blank"));
  Push(Text("!?", "unsayable"));
  Push(Text("a", "one"));
  End();
  const auto notes = notes_->notes();
  const auto buffers = speak_->record().buffers();
  ASSERT_EQ(notes.size(), buffers.size());
  for (size_t i = 0; i < notes.size(); ++i) EXPECT_EQ(notes[i], buffers[i].silent ? "" : "one") << i;
}

TEST_F(TranscriptTest, ASentenceHasThoseOfAllItsBuffers) {
  Begin("segmentation=sentence");
  Push(Text("aa ", "one"));
  Push(Text("bb. Cc", "two"));
  Push(Text(".", "three"));
  End();
  EXPECT_THAT(notes_->notes(), ElementsAre("one two", "", "", "", "", "", "three", "", ""));
}

// A sentence comes out only when the next one has begun.
TEST_F(TranscriptTest, EachSentenceHasThoseOfItsOwnBuffer) {
  Begin("segmentation=sentence utterance-timeout=18446744073709551615");
  Push(Text("Hi.", "one"));
  Push(Text(" By.", "two"));
  Push(Text(" "));
  Push(Text("Go.", "three"));
  End();
  EXPECT_THAT(notes_->notes(), ElementsAre("one", "", "", "two", "", "", "three", "", ""));
}

// Check: 64
TEST_F(TranscriptTest, AGrowingUtteranceHasLaterOnesOnItsNextBuffer) {
  fake::AllowFrames(0);
  Begin("segmentation=stream");
  Push(Text("ab ", "one"));
  fake::AllowFrames(2);
  ASSERT_TRUE(WaitFor([&] { return notes_->notes().size() == 2; }));
  Push(Text("cd", "two"));
  fake::AllowFrames(-1);
  End();
  const auto notes = notes_->notes();
  ASSERT_EQ(notes.size(), 5U);
  EXPECT_EQ(notes[0], "one");
  EXPECT_EQ(notes[1], "");
  EXPECT_EQ(notes[2] + notes[3] + notes[4], "two");
}

TEST_F(TranscriptTest, AnInterruptDropsThem) {
  fake::AllowFrames(0);
  Begin();
  Push(Text("ab", "one"));
  Push(Text("cd", "two"));
  speak_->Interrupt();
  fake::AllowFrames(-1);
  Push(Text("e"));
  End();
  EXPECT_THAT(notes_->notes(), ElementsAre(""));
}

// --- textaccumulate

// Check: 64
TEST_F(TranscriptTest, AnAccumulatedSentenceEndsWithItsBuffer) {
  for (const char* segmentation : {"sentence", "stream"}) {
    fake::Reset();
    Begin("segmentation=" + std::string(segmentation) + " utterance-timeout=18446744073709551615");
    GstBuffer* sentence = Text("no end");
    GstCustomMeta* meta = gst_buffer_add_custom_meta(sentence, kSentence);
    GstBufferList* words = gst_buffer_list_new();
    gst_buffer_list_add(words, Text("no", "first"));
    gst_buffer_list_add(words, Text("end", "second"));
    gst_structure_set(gst_custom_meta_get_structure(meta), "words", GST_TYPE_BUFFER_LIST, words, nullptr);
    gst_buffer_list_unref(words);
    Push(sentence);
    ASSERT_TRUE(WaitFor([&] { return notes_->notes().size() == 6; })) << "nothing else ends it";
    EXPECT_EQ(notes_->notes()[0], "sentence first second") << segmentation;
    End();
    EXPECT_EQ(fake::Requests().size(), 1U);
    notes_.reset();
    speak_.reset();
  }
}

}  // namespace
}  // namespace qtts::testing
