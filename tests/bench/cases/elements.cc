// SPDX-License-Identifier: LGPL-2.1-or-later
// Many elements in one process, each with a pipeline of its own. Kinds: waiting for the application, with appsrc
// upstream and text that grows, and live. Measured over the elements of a kind: threads, descriptors and resident
// memory each, and, over five seconds in which nothing is said, context switches (wake-ups) and processor time each.
// Then every tenth element of the first two kinds speaks a second of sound.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"

namespace qtts::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kIdle{5};

struct Usage {
  double kilobytes = 0;  // resident
  double threads = 0;
  double descriptors = 0;
  double switches = 0;  // of all threads, since each began
  double seconds = 0;   // of the processors
};

long Field(const std::string& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(name + ":")) return std::strtol(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return 0;  // a thread that has ended
}

Usage Measure() {
  Usage usage;
  usage.kilobytes = static_cast<double>(Field("/proc/self/status", "VmRSS"));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ++usage.threads;
    usage.switches += static_cast<double>(Field(entry.path() / "status", "voluntary_ctxt_switches"));
  }
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    if (entry.is_symlink()) ++usage.descriptors;
  }
  rusage all{};
  getrusage(RUSAGE_SELF, &all);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  usage.seconds = seconds(all.ru_utime) + seconds(all.ru_stime);
  return usage;
}

using Members = std::vector<std::unique_ptr<Speaker>>;

std::unique_ptr<Speaker> Begin(const char* line, const std::string& model) {
  auto speaker = std::make_unique<Speaker>(line, model);
  speaker->Set(GST_STATE_PLAYING);
  return speaker;
}

// The next message of these types; fails for an error, and after ten minutes.
void AwaitMessage(const Speaker& speaker, const char* what, int types) {
  GstBus* bus = gst_element_get_bus(speaker.pipeline());
  GstMessage* message = nullptr;
  for (;;) {
    message = gst_bus_timed_pop_filtered(bus, 600 * GST_SECOND, static_cast<GstMessageType>(types | GST_MESSAGE_ERROR));
    if (message == nullptr) Fail(std::string(what) + " does not come");
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_ERROR) {
      GError* error = nullptr;
      gst_message_parse_error(message, &error, nullptr);
      Fail(error->message);
    }
    GstProgressType progress = GST_PROGRESS_TYPE_START;
    if (GST_MESSAGE_TYPE(message) == GST_MESSAGE_PROGRESS)
      gst_message_parse_progress(message, &progress, nullptr, nullptr);
    const bool found = GST_MESSAGE_TYPE(message) == GST_MESSAGE_PROGRESS ? progress == GST_PROGRESS_TYPE_COMPLETE
                                                                         : gst_message_has_name(message, what) != FALSE;
    gst_message_unref(message);
    if (found) break;
  }
  gst_object_unref(bus);
}

// Lets every tenth element speak; returns the seconds until the last one has finished.
double SpeakAll(const Members& members) {
  const auto start = Clock::now();
  for (size_t i = 0; i < members.size(); i += 10) {
    members[i]->Speak("One of many who speak at the same time.", "params, seed=1, max-duration=1000000000");
  }
  for (size_t i = 0; i < members.size(); i += 10) {
    AwaitMessage(*members[i], "qtts-utterance-finished", GST_MESSAGE_ELEMENT);
  }
  return MillisecondsSince(start) / 1000;
}

struct Kind {
  const char* name;
  const char* line;
  bool speaks;
};

void Bench(const Kind& kind, const Case& options) {
  const int count = options.number;
  const auto first = Begin(kind.line, options.model);  // loads the model, whose costs are not an element's
  AwaitMessage(*first, "the model", GST_MESSAGE_PROGRESS);
  const Usage before = Measure();
  const auto start = Clock::now();
  Members members;
  for (int i = 0; i < count; ++i) members.push_back(Begin(kind.line, options.model));
  for (const auto& member : members) AwaitMessage(*member, "the model", GST_MESSAGE_PROGRESS);
  const double started = MillisecondsSince(start) / 1000;
  std::this_thread::sleep_for(std::chrono::seconds(1));  // start-up has settled
  const Usage idle = Measure();
  std::this_thread::sleep_for(kIdle);
  const Usage after = Measure();
  const double idle_seconds = std::chrono::duration<double>(kIdle).count();
  const double spoken = kind.speaks ? SpeakAll(members) : 0;
  const auto end = Clock::now();
  for (const auto& member : members) member->Set(GST_STATE_NULL);
  const double ended = MillisecondsSince(end) / 1000;
  std::printf("%-22s %8.1f %8.2f %8.2f %10.2f %10.3f %8.2f %8.2f", kind.name,
              (idle.kilobytes - before.kilobytes) / count, (idle.threads - before.threads) / count,
              (idle.descriptors - before.descriptors) / count, (after.switches - idle.switches) / idle_seconds / count,
              100 * (after.seconds - idle.seconds) / idle_seconds / count, started, ended);
  std::printf(kind.speaks ? " %8.2f\n" : "        –\n", spoken);
  std::fflush(stdout);
}

constexpr Kind kKinds[] = {
    {"waiting", "qttssrc name=speech idle-mode=wait ! fakesink async=false", true},
    {"appsrc, growing text",
     "appsrc format=time caps=text/x-raw,format=utf8 ! qttssrc name=speech segmentation=stream ! fakesink async=false",
     true},
    {"live, waiting", "qttssrc name=speech is-live=true idle-mode=wait ! fakesink sync=false async=false", false},
    {"live, silence", "qttssrc name=speech is-live=true ! fakesink sync=false async=false", false},
};

}  // namespace

bool BenchElements(const Case& options) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::printf("%d elements\n", options.number);
  std::printf("%-22s %8s %8s %8s %10s %10s %8s %8s %8s\n", "each", "KiB", "threads", "fds", "wake-ups/s", "CPU %",
              "start s", "stop s", "speak s");
  std::fflush(stdout);
  for (const Kind& kind : kKinds) {
    // In a process of its own, since a process reuses threads and memory of the previous kind.
    const pid_t child = fork();
    if (child < 0) Fail("no process can be started");
    if (child == 0) {
      gst_init(nullptr, nullptr);
      Bench(kind, options);
      std::exit(0);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return false;
  }
  return true;
}

}  // namespace qtts::bench
