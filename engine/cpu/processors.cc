// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cpu/processors.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace qtts::cpu {
namespace {

namespace fs = std::filesystem;

// Maximum number of bytes read of a file. The files read here have a few hundred.
constexpr std::streamsize kMostFileBytes = 65536;

// Maximum size of the affinity mask asked for, in CPUs.
constexpr size_t kMostProcessors = size_t{1} << 16U;

// Content of the file; empty if it cannot be read.
std::string Read(const fs::path& file) {
  std::string text(kMostFileBytes, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(text.data(), kMostFileBytes);
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

// Removes and returns the text up to the next `separator`. Drops the separator.
std::string_view SplitOff(std::string_view* text, char separator) {
  const std::string_view next = text->substr(0, text->find(separator));
  text->remove_prefix(std::min(text->size(), next.size() + 1));
  return next;
}

// Parses `text` as an integer, with nothing else around it.
std::optional<int64_t> ParseInteger(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// `quota` and `period` in microseconds. No limit unless both are positive numbers.
std::optional<double> Quota(std::string_view quota, std::string_view period) {
  const std::optional<int64_t> most = ParseInteger(quota);
  const std::optional<int64_t> every = ParseInteger(period);
  if (!most.has_value() || !every.has_value() || *most <= 0 || *every <= 0) return std::nullopt;
  return static_cast<double>(*most) / static_cast<double>(*every);
}

std::optional<double> QuotaOfGroup(const fs::path& folder, bool unified) {
  if (!unified) return Quota(Read(folder / "cpu.cfs_quota_us"), Read(folder / "cpu.cfs_period_us"));
  const std::string file = Read(folder / "cpu.max");
  std::string_view text = file;
  const std::string_view quota = SplitOff(&text, ' ');
  return Quota(quota, text);
}

// True if the comma-separated `list` contains `word`.
bool ListContains(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (SplitOff(&list, ',') == word) return true;
  }
  return false;
}

// CPUs in the calling thread's affinity mask, in order; empty if the system call fails.
std::vector<int> AffinityMask() {
  for (size_t count = 1024; count <= kMostProcessors; count *= 2) {
    std::vector<unsigned long> words(count / (8 * sizeof(unsigned long)));
    const size_t bytes = words.size() * sizeof(words.front());
    auto* const mask = reinterpret_cast<cpu_set_t*>(words.data());
    if (sched_getaffinity(0, bytes, mask) != 0) {
      if (errno == EINVAL) continue;  // the kernel's mask is larger
      break;
    }
    std::vector<int> processors;
    for (size_t i = 0; i < count; ++i) {
      if (CPU_ISSET_S(i, bytes, mask)) processors.push_back(static_cast<int>(i));
    }
    return processors;
  }
  return {};
}

// The first of `allowed` that is in a list like "0-3,8".
std::optional<int> FirstAllowed(std::string_view list, const std::vector<int>& allowed) {
  while (!list.empty() && list.back() == '\n') list.remove_suffix(1);
  while (!list.empty()) {
    std::string_view range = SplitOff(&list, ',');
    const bool is_range = range.find('-') != std::string_view::npos;
    const std::optional<int64_t> first = ParseInteger(SplitOff(&range, '-'));
    const std::optional<int64_t> last = is_range ? ParseInteger(range) : first;
    if (!first.has_value() || !last.has_value()) return std::nullopt;
    const auto found = std::lower_bound(allowed.begin(), allowed.end(), *first);
    if (found != allowed.end() && *found <= *last) return *found;
  }
  return std::nullopt;
}

int CountCores(const fs::path& root, const std::vector<int>& allowed) {
  const fs::path processors = root / "sys/devices/system/cpu";
  if (ParseInteger(Read(processors / "smt/active")) == 0) return static_cast<int>(allowed.size());
  // Each core is counted once, at its first allowed CPU.
  return static_cast<int>(std::count_if(allowed.begin(), allowed.end(), [&](int processor) {
    const fs::path list = processors / ("cpu" + std::to_string(processor)) / "topology/thread_siblings_list";
    return FirstAllowed(Read(list), allowed).value_or(processor) == processor;
  }));
}

}  // namespace

int AllowedProcessors() {
  const size_t count = AffinityMask().size();
  return static_cast<int>(count > 0 ? count : std::max(1U, std::thread::hardware_concurrency()));
}

std::optional<double> ProcessorQuota(const fs::path& root) {
  std::optional<double> least;
  const std::string groups = Read(root / "proc/self/cgroup");
  std::string_view lines = groups;
  while (!lines.empty()) {
    // hierarchy:controllers:path
    std::string_view line = SplitOff(&lines, '\n');
    const std::string_view hierarchy = SplitOff(&line, ':');
    const std::string_view controllers = SplitOff(&line, ':');
    const bool unified = hierarchy == "0" && controllers.empty();
    if (!unified && !ListContains(controllers, "cpu")) continue;
    // In a container the path may be that of the host, whose last folders do not exist here. The mount's own group
    // counts then.
    fs::path group = fs::path(line).relative_path().lexically_normal();
    if (!group.empty() && *group.begin() == "..") group.clear();
    for (const char* mount : {"", "unified", "cpu", "cpu,cpuacct"}) {
      const fs::path top = root / "sys/fs/cgroup" / mount;
      for (fs::path folder = group;; folder = folder.parent_path()) {
        const std::optional<double> quota = QuotaOfGroup(top / folder, unified);
        if (quota.has_value()) least = std::min(*quota, least.value_or(*quota));
        if (folder.empty()) break;
      }
    }
  }
  return least;
}

Processors UsableProcessors(const fs::path& root) {
  const std::vector<int> allowed = AffinityMask();
  Processors usable;
  usable.threads = AllowedProcessors();
  if (const std::optional<double> quota = ProcessorQuota(root)) {
    usable.threads = std::clamp(static_cast<int>(std::min(*quota, 1e6)), 1, usable.threads);
  }
  usable.cores = allowed.empty() ? usable.threads : std::clamp(CountCores(root, allowed), 1, usable.threads);
  return usable;
}

}  // namespace qtts::cpu
