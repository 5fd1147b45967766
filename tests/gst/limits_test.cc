// SPDX-License-Identifier: LGPL-2.1-or-later

// Loading and speaking under limits that fall from step to step, each step in a process of its own: the result is
// speech or one ERROR, never an abort and never a hang.
//
// GLib aborts if g_malloc() or g_thread_new() fails, and GStreamer calls both everywhere. The plugin cannot prevent an
// abort of a call from outside of it: those are counted and printed. An abort in a call by the plugin is a failure, and
// so is std::terminate(). Texts of messages are the exception: a message frees them by g_free(), so g_strdup() makes
// them.

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <gst/gst.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

// --- in the process of a step

namespace {

constexpr const char* kChild = "--under-a-limit";
constexpr int kHung = 3;
constexpr std::chrono::seconds kPatience{60};

std::atomic<long> threads_left{std::numeric_limits<long>::max() / 2};
std::atomic<long> threads_started{0};

// Number of std::threads that were started and not joined.
std::atomic<long> unjoined{0};

using CreateThread = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
using JoinThread = int (*)(pthread_t, void**);

std::string_view BaseName(const char* path) {
  const std::string_view whole = path;
  return whole.substr(whole.rfind('/') + 1);
}

bool IsStdThread(void* caller) {
  Dl_info info = {};
  return dladdr(caller, &info) != 0 && BaseName(info.dli_fname).starts_with("libstdc++");
}

// Gives the calling thread a stack for signals: GLib's g_error() calls itself for ever if it cannot allocate its text,
// and the handler of the overflow of a stack needs another one.
void HandleSignalsOnOwnStack() {
  alignas(16) static thread_local std::array<char, 64 * 1024> memory;
  stack_t stack = {};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
}

// Function and argument of a started thread. Each start has one of its own: nothing is allocated within a limit.
struct ThreadStart {
  void* (*function)(void*) = nullptr;
  void* argument = nullptr;
};
constexpr size_t kMostStarts = 4096;
std::array<ThreadStart, kMostStarts> starts;
std::atomic<size_t> starts_used{0};

void* RunThread(void* start) {
  HandleSignalsOnOwnStack();
  const auto* thread = static_cast<ThreadStart*>(start);
  return thread->function(thread->argument);
}

}  // namespace

// The limit on threads is our own, since RLIMIT_NPROC does not bind root.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                              void* argument) {
  static const auto create = reinterpret_cast<CreateThread>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.fetch_sub(1) <= 0) {
    ++threads_left;
    return EAGAIN;
  }
  ++threads_started;
  if (IsStdThread(__builtin_return_address(0))) ++unjoined;
  const size_t index = starts_used++;
  if (index >= kMostStarts) std::abort();
  starts[index] = {function, argument};
  return create(thread, attributes, RunThread, &starts[index]);
}

extern "C" int pthread_join(pthread_t thread, void** result) {
  static const auto join = reinterpret_cast<JoinThread>(dlsym(RTLD_NEXT, "pthread_join"));
  if (IsStdThread(__builtin_return_address(0))) --unjoined;
  const int error = join(thread, result);
  if (error == 0) ++threads_left;
  return error;
}

namespace {

void Write(std::string_view text) { (void)!write(STDOUT_FILENO, text.data(), text.size()); }

// Prints the libraries of the fatal backtrace, innermost first; one with several frames in a row once, with the
// function that the next one called. If threads die together, the first one prints.
void OnDeath(int signal) {
  static std::atomic_flag dying = ATOMIC_FLAG_INIT;
  if (dying.test_and_set()) {
    for (;;) pause();
  }
  static std::array<void*, size_t{1} << 18U> frames;  // of 32 bytes each they fill a stack of 8 MiB
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  const auto look_up = [](int frame) {
    Dl_info info = {};
    const bool known = dladdr(frames[static_cast<size_t>(frame)], &info) != 0;
    return std::pair<std::string_view, std::string_view>(known ? BaseName(info.dli_fname) : "?",
                                                         info.dli_sname != nullptr ? info.dli_sname : "");
  };
  Write("death:");
  for (int i = 0; i < count; ++i) {
    const auto [library, function] = look_up(i);
    if (i + 1 < count && look_up(i + 1).first == library) continue;
    Write(" ");
    Write(library);
    Write(":");
    Write(function);
  }
  Write("\n");
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void HandleDeaths() {
  std::array<void*, 4> frames{};
  backtrace(frames.data(), 1);  // loads its library now
  HandleSignalsOnOwnStack();
  struct sigaction action = {};
  action.sa_handler = OnDeath;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : {SIGABRT, SIGTRAP, SIGSEGV, SIGBUS, SIGILL}) sigaction(signal, &action, nullptr);
}

// A line of /proc/self/status in kB.
long StatusOf(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::strtol(line.c_str() + key.size(), nullptr, 10);
  }
  return 0;
}

void SetLimit(__rlimit_resource_t resource, rlim_t value) {
  const rlimit limit{value, value};
  if (setrlimit(resource, &limit) != 0) Write("death: the limit cannot be set\n");
}

int FreeDescriptor() {
  const int free = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(free);
  return free;
}

// Speaks within the limit and prints the result. Memory used before (by GStreamer and the element in NULL) does not
// count.
int Speak(std::string_view kind, long limit) {
  gst_init(nullptr, nullptr);
  HandleDeaths();
  GError* error = nullptr;
  GstElement* pipeline =
      gst_parse_launch("qttssrc text=Hello. seed=1 max-duration=400000000 ! fakesink name=sink", &error);
  if (error != nullptr) {
    std::printf("error: %s\n", error->message);
    return 1;
  }
  GstBus* bus = gst_element_get_bus(pipeline);
  const long size = StatusOf("VmSize:");
  const long threads = threads_started;
  const int descriptor = FreeDescriptor();
  if (kind == "memory") {
    SetLimit(RLIMIT_AS, static_cast<rlim_t>(size + limit) << 10U);
  } else if (kind == "threads") {
    threads_left = limit;
  } else if (kind == "files") {
    SetLimit(RLIMIT_NOFILE, static_cast<rlim_t>(descriptor + limit));
  }

  gst_element_set_state(pipeline, GST_STATE_PLAYING);
  GstMessage* message =
      gst_bus_timed_pop_filtered(bus, static_cast<GstClockTime>(std::chrono::nanoseconds(kPatience).count()),
                                 static_cast<GstMessageType>(GST_MESSAGE_EOS | GST_MESSAGE_ERROR));
  if (message == nullptr) {
    Write("hang: neither the end of the stream nor an error\n");
    _exit(kHung);
  }
  std::string outcome = "speech";
  if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
    gst_message_parse_error(message, &error, nullptr);
    outcome = std::string("error: ") + error->message + " [" + g_quark_to_string(error->domain) + "]";
    g_clear_error(&error);
  }
  gst_message_unref(message);
  gst_element_set_state(pipeline, GST_STATE_NULL);
  outcome += "\nused: " + std::to_string(StatusOf("VmPeak:") - size) + " " + std::to_string(threads_started - threads);
  Write(outcome + "\n");
  gst_object_unref(bus);
  gst_object_unref(pipeline);
  return 0;
}

// Maximum number of threads of the shared engine: the scheduler, the compute threads, and the one that calls readers.
long MostEngineThreads() { return std::max(1L, static_cast<long>(std::thread::hardware_concurrency())) + 1; }

// Adds elements that wait for text, one at a time. Prints the number of threads of the plugin that are not joined.
int CountThreads() {
  gst_init(nullptr, nullptr);
  for (int count = 1; count <= 4; ++count) {
    GstElement* pipeline = gst_parse_launch("qttssrc is-live=true idle-mode=wait ! fakesink async=false", nullptr);
    GstBus* bus = gst_element_get_bus(pipeline);
    const long before = threads_started;
    gst_element_set_state(pipeline, GST_STATE_PLAYING);
    // The load has ended; its thread ends a little later.
    for (;;) {
      GstMessage* message = gst_bus_timed_pop_filtered(bus, GST_CLOCK_TIME_NONE, GST_MESSAGE_PROGRESS);
      GstProgressType type = GST_PROGRESS_TYPE_START;
      gst_message_parse_progress(message, &type, nullptr, nullptr);
      gst_message_unref(message);
      if (type == GST_PROGRESS_TYPE_COMPLETE) break;
    }
    for (int wait = 0; wait < 2000 && unjoined > MostEngineThreads(); ++wait) g_usleep(10000);
    for (long before_wait = -1; before_wait != unjoined; g_usleep(100000)) before_wait = unjoined;
    Write("threads: " + std::to_string(threads_started - before) + " started, " + std::to_string(unjoined) +
          " not joined\n");
    gst_object_unref(bus);  // the pipeline lives on
  }
  return 0;
}

// Overflows the stack of a thread.
int OverflowStack() {
  HandleDeaths();
  std::thread([] {
    std::function<int(int)> call_itself = [&](int depth) { return call_itself(depth + 1) + depth; };
    Write(std::to_string(call_itself(0)));
  }).join();
  return 0;
}

// --- in the test

struct Outcome {
  std::string text;  // output of the process
  int status = 0;    // of wait()
  bool hung = false;

  std::string Line(std::string_view key) const {
    const size_t begin = text.find(key);
    if (begin == std::string::npos) return {};
    return text.substr(begin, text.find('\n', begin) - begin);
  }
};

Outcome RunUnder(const char* kind, long limit) {
  std::array<int, 2> output{};
  EXPECT_EQ(pipe(output.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    close(output[0]);
    close(output[1]);
    execl("/proc/self/exe", "gst-limits", kChild, kind, std::to_string(limit).c_str(), nullptr);
    _exit(127);
  }
  close(output[1]);
  Outcome outcome;
  const auto end = std::chrono::steady_clock::now() + 2 * kPatience;
  for (;;) {
    pollfd readable{output[0], POLLIN, 0};
    if (poll(&readable, 1, 1000) == 0) {
      if (std::chrono::steady_clock::now() < end) continue;
      outcome.hung = true;
      kill(child, SIGKILL);
    }
    std::array<char, 4096> piece{};
    const ssize_t count = read(output[0], piece.data(), piece.size());
    if (count <= 0) break;
    outcome.text.append(piece.data(), static_cast<size_t>(count));
  }
  close(output[0]);
  waitpid(child, &outcome.status, 0);
  return outcome;
}

// True if GLib aborted in a call that is not the plugin's, or in one that makes the text of a message.
bool DiedOutside(const Outcome& outcome) {
  const std::string death = outcome.Line("death:");
  const size_t glib = death.find("libglib");
  // A libstdc++ frame inside of GLib's is std::terminate(); outside of them it is the start of a std::thread.
  if (glib == std::string::npos || death.find("libstdc++") < glib) return false;
  // The innermost frame outside of GLib is the caller.
  std::string called;
  std::istringstream frames(death);
  for (std::string frame; frames >> frame;) {
    if (frame.starts_with("libglib") || frame.starts_with("libgobject")) {
      called = frame;
    } else if (!called.empty()) {
      return !frame.starts_with("libgstqtts") || called.ends_with(":g_strdup");
    }
  }
  return true;  // the backtrace holds frames of GLib alone
}

// Runs one step and counts its result in `outcomes`.
void Step(const char* kind, long limit, std::map<std::string, int>* outcomes) {
  const Outcome outcome = RunUnder(kind, limit);
  const std::string what = std::string(kind) + " " + std::to_string(limit) + ":\n" + outcome.text;
  EXPECT_FALSE(outcome.hung) << what;
  EXPECT_EQ(outcome.text.find("CRITICAL"), std::string::npos) << what;
  if (WIFEXITED(outcome.status)) {
    EXPECT_EQ(WEXITSTATUS(outcome.status), 0) << what;
    const std::string error = outcome.Line("error:");
    ++(*outcomes)[error.empty() ? "speech" : error];
  } else if (DiedOutside(outcome)) {
    ++(*outcomes)["GLib gave up for somebody else:" + outcome.Line("death:").substr(6)];
  } else {
    ADD_FAILURE() << "died of signal " << WTERMSIG(outcome.status) << ", " << what;
  }
}

void Print(const char* kind, const std::map<std::string, int>& outcomes) {
  for (const auto& [what, count] : outcomes) std::printf("%s: %4d x %s\n", kind, count, what.c_str());
}

constexpr int kSteps = 200;

// Needs of a run without a limit.
struct Use {
  long memory = 0;  // kB
  long threads = 0;
};

Use UnlimitedUse() {
  const Outcome outcome = RunUnder("none", 0);
  EXPECT_EQ(outcome.Line("speech"), "speech") << outcome.text;
  Use use;
  EXPECT_EQ(std::sscanf(outcome.Line("used:").c_str(), "used: %ld %ld", &use.memory, &use.threads), 2) << outcome.text;
  return use;
}

constexpr long kMostFiles = 24;

// Check: 34
TEST(LimitsTest, FallingLimitOfAddressSpace) {
  const Use use = UnlimitedUse();
  std::map<std::string, int> outcomes;
  const long steps = kSteps - use.threads - kMostFiles;
  for (long step = steps; step > 0; --step) Step("memory", use.memory * step / steps, &outcomes);
  Print("memory", outcomes);
  EXPECT_GT(outcomes["speech"], 0);
  EXPECT_GT(outcomes.size(), 2U) << "the limits never bound";
}

// Check: 34
TEST(LimitsTest, FallingLimitOfThreads) {
  const Use use = UnlimitedUse();
  std::map<std::string, int> outcomes;
  for (long threads = use.threads; threads >= 0; --threads) Step("threads", threads, &outcomes);
  Print("threads", outcomes);
  EXPECT_GT(outcomes["speech"], 0);
  EXPECT_GT(outcomes.size(), 1U) << "the limits never bound";
}

// Check: 34, 49
TEST(LimitsTest, FallingLimitOfDescriptors) {
  std::map<std::string, int> outcomes;
  for (long files = kMostFiles; files >= 0; --files) Step("files", files, &outcomes);
  Print("files", outcomes);
  EXPECT_GT(outcomes["speech"], 0);
  EXPECT_GT(outcomes.size(), 1U) << "the limits never bound";
}

// The steps need this to tell who died.
TEST(LimitsTest, OverflowOfAStackIsToldByItsFrames) {
  const Outcome outcome = RunUnder("overflow", 0);
  EXPECT_TRUE(WIFSIGNALED(outcome.status)) << outcome.text;
  EXPECT_NE(outcome.Line("death:").find("libstdc++"), std::string::npos) << "no frames of the start of the thread:\n"
                                                                         << outcome.text;
}

// A thread that was not joined keeps its stack: address space.
// Check: 49
TEST(LimitsTest, ThreadsOfLoadsAreJoinedWhenTheyHaveEnded) {
  const Outcome outcome = RunUnder("joined", 0);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  int lines = 0;
  long left = 0;
  std::istringstream text(outcome.text);
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("threads:")) continue;
    long started = 0;
    long unjoined_threads = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "threads: %ld started, %ld", &started, &unjoined_threads), 2) << line;
    EXPECT_LE(unjoined_threads, MostEngineThreads()) << outcome.text;
    if (lines > 0) {
      EXPECT_EQ(unjoined_threads, left) << "one more with each load:\n" << outcome.text;
    }
    left = unjoined_threads;
    ++lines;
  }
  EXPECT_EQ(lines, 4) << outcome.text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == kChild) {
    const std::string_view kind = argv[2];
    if (kind == "joined") return CountThreads();
    if (kind == "overflow") return OverflowStack();
    return Speak(kind, std::strtol(argv[3], nullptr, 10));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
