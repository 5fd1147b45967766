// SPDX-License-Identifier: LGPL-2.1-or-later
// Recordings from strangers: what they name outside of themselves is neither opened nor told about.
// tests/hostile_recordings.py writes them.
#define GST_USE_UNSTABLE_API
#include <arpa/inet.h>
#include <gst/gst.h>
#include <gst/gsttracer.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "support.h"

namespace qtts::testing {
namespace {

namespace fs = std::filesystem;

// A listener on loopback and a file that can be cloned from. Both notice when anybody comes.
class Bait {
 public:
  explicit Bait(const std::string& folder) : file_(folder + "/secret.wav") {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 100), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    host_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~Bait() {
    close(socket_);
    if (watch_ >= 0) close(watch_);
  }
  Bait(const Bait&) = delete;
  Bait& operator=(const Bait&) = delete;

  // From now on the file counts as touched if anybody opens it.
  void Watch() {
    watch_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    ASSERT_GE(inotify_add_watch(watch_, file_.c_str(), IN_OPEN | IN_ACCESS), 0);
  }
  const std::string& host() const { return host_; }
  const std::string& file() const { return file_; }

  bool WasConnectedTo() const {
    const int peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer >= 0) close(peer);
    return peer >= 0;
  }
  bool WasOpened() const {
    char events[4096];
    return read(watch_, events, sizeof(events)) > 0;
  }

 private:
  std::string file_;
  std::string host_;
  int socket_ = -1;
  int watch_ = -1;
};

// Factories of all elements that are made, by way of GStreamer's tracing.
class MadeElements {
 public:
  static void Begin() {
    static GstTracer* const tracer = [] {
      const GTypeInfo info = {.class_size = sizeof(GstTracerClass), .instance_size = sizeof(GstTracer)};
      const GType type = g_type_register_static(GST_TYPE_TRACER, "UntrustedTestTracer", &info, G_TYPE_FLAG_NONE);
      auto* made = GST_TRACER(g_object_new(type, nullptr));
      gst_tracing_register_hook(made, "element-new", G_CALLBACK(OnNew));
      return made;
    }();
    ASSERT_NE(tracer, nullptr);
    factories().Clear();
  }
  static std::set<std::string> End() {
    const std::vector<std::string> made = factories().items();
    return {made.begin(), made.end()};
  }

 private:
  static void OnNew(GObject* /*tracer*/, GstClockTime /*time*/, GstElement* element) {
    GstElementFactory* factory = gst_element_get_factory(element);
    factories().Add(factory == nullptr ? "none" : GST_OBJECT_NAME(factory));
  }
  // Never destroyed: the tracer stays.
  static SharedList<std::string>& factories() {
    static auto* const factories = new SharedList<std::string>;
    return *factories;
  }
};

class UntrustedTest : public GstTest {
 protected:
  // Pictures in tags are looked at with the typefind functions of all plugins; these stay loaded.
  static void SetUpTestSuite() {
    GList* list = gst_type_find_factory_get_list();
    for (GList* item = list; item != nullptr; item = item->next) {
      GstPluginFeature* loaded = gst_plugin_feature_load(GST_PLUGIN_FEATURE(item->data));
      if (loaded != nullptr) gst_object_unref(loaded);
    }
    gst_plugin_feature_list_free(list);
    MadeElements::Begin();
    KeepLiveObjects();
  }
  void SetUp() override {
    GstTest::SetUp();
    gchar* path = g_dir_make_tmp("qttssrc-untrusted-XXXXXX", nullptr);
    folder_ = path;
    g_free(path);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    GstTest::TearDown();
  }

  // A folder of hostile recordings that name these places.
  std::string Write(const std::string& name, const std::string& host, const std::string& file) const {
    const std::string folder = folder_ + "/" + name;
    const gchar* words[] = {"python3", g_getenv("QTTS_HOSTILE_RECORDINGS"), folder.c_str(), host.c_str(), file.c_str(),
                            nullptr};
    gint status = -1;
    // g_spawn_sync does not change its words.
    EXPECT_TRUE(g_spawn_sync(nullptr, const_cast<gchar**>(words), nullptr, G_SPAWN_SEARCH_PATH, nullptr, nullptr,
                             nullptr, nullptr, &status, nullptr));
    EXPECT_EQ(status, 0);
    return folder;
  }

  static std::set<std::string> Names(const std::string& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
  }

  // The error of an element with this recording; nothing if it speaks.
  static Problem Outcome(const std::string& recording) {
    Pipeline pipeline("qttssrc name=src text=abc reference-audio=" + recording + " ! fakesink");
    pipeline.Begin(GST_STATE_PLAYING);
    const auto message = pipeline.Wait(GST_MESSAGE_ERROR | GST_MESSAGE_EOS);
    EXPECT_NE(message, nullptr);
    if (message == nullptr || GST_MESSAGE_TYPE(message.get()) != GST_MESSAGE_ERROR) return {};
    return ParseProblem(message.get());
  }

  // The error without the name of the file.
  static std::string Text(const std::string& recording) {
    const Problem problem = Outcome(recording);
    EXPECT_EQ(problem.domain, GST_STREAM_ERROR) << problem.text;
    EXPECT_EQ(problem.code, GST_STREAM_ERROR_NOT_IMPLEMENTED) << problem.text;
    EXPECT_EQ(problem.text.rfind(recording + ": ", 0), 0U) << problem.text;
    return problem.text.substr(std::min(problem.text.size(), recording.size()));
  }

  std::string folder_;
};

// A playlist, a manifest, a movie whose sound is elsewhere: refused with the same words whether the place exists,
// answers, or is closed.
// Check: 55
TEST_F(UntrustedTest, PlacesThatAFileNamesAreNotTouchedAndNotToldAbout) {
  Bait bait(folder_);
  const std::string good = Write("good", bait.host(), bait.file());
  fs::copy_file(good + "/plain/wav-chunks", bait.file());
  EXPECT_EQ(Outcome(bait.file()).text, "") << "the file can be cloned from";
  bait.Watch();
  const std::string bad = Write("bad", "127.0.0.1:1", folder_ + "/none.wav");
  const auto names = Names(good + "/refused");
  ASSERT_GT(names.size(), 45U);
  MadeElements::Begin();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string text = Text((good + "/refused/").append(name));
    EXPECT_EQ(Text((bad + "/refused/").append(name)), text);
    const bool elsewhere = name.rfind("mov-", 0) == 0 && name.find("alone") == std::string::npos;
    const std::string reason = elsewhere                         ? "refers to sound outside of the file"
                               : name.rfind("matroska-", 0) == 0 ? "holds no sound"
                                                                 : "is no recording of a kind that is read";
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    EXPECT_FALSE(bait.WasConnectedTo());
    EXPECT_FALSE(bait.WasOpened());
  }
  EXPECT_EQ(fake::GetCounters().clones, 1) << "of the file itself";
  const std::set<std::string> expected = {"appsink",  "appsrc",        "audioconvert", "fakesink",
                                          "pipeline", "matroskademux", "qttssrc"};
  EXPECT_EQ(MadeElements::End(), expected);
}

// Links beside the sound: in tags, attachments, chunks, pictures, an Ogg Skeleton.
// Check: 55
TEST_F(UntrustedTest, RecordingsAreDecodedWithoutFollowingTheirLinks) {
  Bait bait(folder_);
  const std::string folder = Write("good", bait.host(), bait.file());
  fs::copy_file(folder + "/plain/wav-chunks", bait.file());
  bait.Watch();
  const auto names = Names(folder + "/decoded");
  ASSERT_GE(names.size(), 6U);
  MadeElements::Begin();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Outcome((folder + "/plain/").append(name)).text, "");
    const Recording plain = fake::LastRecording();
    EXPECT_EQ(Outcome((folder + "/decoded/").append(name)).text, "");
    const Recording decoded = fake::LastRecording();
    EXPECT_GT(plain.samples.size(), 0U);
    EXPECT_EQ(decoded.sample_rate, plain.sample_rate);
    EXPECT_EQ(decoded.channels, plain.channels);
    EXPECT_EQ(decoded.samples, plain.samples);
    EXPECT_FALSE(bait.WasConnectedTo());
    EXPECT_FALSE(bait.WasOpened());
  }
  EXPECT_EQ(fake::GetCounters().clones, static_cast<int>(2 * names.size()));
  const std::set<std::string> allowed = {"appsink",        "appsrc",         "audioconvert",  "fakesink",
                                         "flacdec",        "flacparse",      "matroskademux", "avdec_mp3",
                                         "avdec_mp3float", "mpegaudioparse", "oggdemux",      "opusdec",
                                         "pipeline",       "mpg123audiodec", "qttssrc",       "wavparse"};
  for (const std::string& factory : MadeElements::End()) EXPECT_EQ(allowed.count(factory), 1U) << factory;
}

// The name says nothing: neither lets it a playlist in, nor keeps it a recording out.
// Check: 55
TEST_F(UntrustedTest, NamesDoNotMatter) {
  Bait bait(folder_);
  const std::string folder = Write("good", bait.host(), bait.file());
  for (const char* ending : {".wav", ".mp3", ".m4a", ".ogg"}) {
    const std::string list = folder_ + "/list" + ending;
    fs::copy_file(folder + "/refused/hls-address", list);
    EXPECT_NE(Text(list).find("is no recording of a kind that is read"), std::string::npos);
  }
  for (const char* ending : {".m3u8", ".mpd", ".sdp", ".txt"}) {
    const std::string sound = folder_ + "/sound" + ending;
    fs::copy_file(folder + "/plain/wav-chunks", sound);
    EXPECT_EQ(Outcome(sound).text, "");
  }
  EXPECT_FALSE(bait.WasConnectedTo());
}

// A playlist stays one with frames of MP3 behind it, which a player would skip.
// Check: 55
TEST_F(UntrustedTest, SoundBehindAListIsNotFollowed) {
  Bait bait(folder_);
  const std::string folder = Write("good", bait.host(), bait.file());
  const std::string both = folder_ + "/both";
  std::ofstream(both, std::ios::binary) << std::ifstream(folder + "/refused/hls-address", std::ios::binary).rdbuf()
                                        << std::ifstream(folder + "/plain/mp3-id3", std::ios::binary).rdbuf();
  MadeElements::Begin();
  Outcome(both);
  EXPECT_EQ(MadeElements::End().count("hlsdemux"), 0U);
  EXPECT_FALSE(bait.WasConnectedTo());
}

}  // namespace
}  // namespace qtts::testing
