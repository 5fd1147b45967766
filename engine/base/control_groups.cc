// SPDX-License-Identifier: LGPL-2.1-or-later
#include "base/control_groups.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/system_files.h"

namespace qtts {
namespace {

namespace fs = std::filesystem;

// Returns true if the comma-separated `list` contains `word`.
bool ListContains(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    if (SplitOff(&list, ',') == word) return true;
  }
  return false;
}

}  // namespace

void ForEachControlGroup(const fs::path& root, std::string_view controller,
                         const std::function<void(const fs::path& folder, bool unified)>& visit) {
  const std::array<std::string, 4> mounts = {"", "unified", std::string(controller),
                                             std::string(controller) + "," + std::string(controller) + "acct"};
  const std::string groups = ReadSystemFile(root / "proc/self/cgroup");
  std::string_view lines = groups;
  while (!lines.empty()) {
    // hierarchy:controllers:path
    std::string_view line = SplitOff(&lines, '\n');
    const std::string_view hierarchy = SplitOff(&line, ':');
    const std::string_view controllers = SplitOff(&line, ':');
    const bool unified = hierarchy == "0" && controllers.empty();
    if (!unified && !ListContains(controllers, controller)) continue;
    // In a container the path may be that of the host, whose last folders do not exist here. The mount's own group
    // counts then.
    fs::path group = fs::path(line).relative_path().lexically_normal();
    if (!group.empty() && *group.begin() == "..") group.clear();
    for (const std::string& mount : mounts) {
      for (fs::path folder = group;; folder = folder.parent_path()) {
        visit(root / "sys/fs/cgroup" / mount / folder, unified);
        if (folder.empty()) break;
      }
    }
  }
}

std::optional<size_t> MemoryLimit(const fs::path& root) {
  std::optional<size_t> least;
  ForEachControlGroup(root, "memory", [&](const fs::path& folder, bool unified) {
    const std::optional<int64_t> limit =
        ParseInteger(ReadSystemFile(folder / (unified ? "memory.max" : "memory.limit_in_bytes")));
    if (!limit.has_value() || *limit <= 0) return;
    const auto bytes = static_cast<size_t>(*limit);
    least = std::min(bytes, least.value_or(bytes));
  });
  return least;
}

}  // namespace qtts
