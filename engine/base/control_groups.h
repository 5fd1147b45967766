// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_BASE_CONTROL_GROUPS_H_
#define QTTS_BASE_CONTROL_GROUPS_H_

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

// The process's control groups, v2 and v1 (cgroups(7)): containers and services limit memory and CPU time by them.
namespace qtts {

// Calls `visit` for folders of the process's groups of a controller, like "cpu", and of the groups above them; some may
// not exist. `unified`: version 2. Reads files below `root`.
void ForEachControlGroup(const std::filesystem::path& root, std::string_view controller,
                         const std::function<void(const std::filesystem::path& folder, bool unified)>& visit);

// Returns the bytes of memory that the process's groups may use: the least limit, v2 (memory.max) or v1
// (memory.limit_in_bytes). None if there is no limit or it cannot be read.
std::optional<size_t> MemoryLimit(const std::filesystem::path& root = "/");

}  // namespace qtts

#endif  // QTTS_BASE_CONTROL_GROUPS_H_
