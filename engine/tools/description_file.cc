// SPDX-License-Identifier: LGPL-2.1-or-later
#include "description_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "base/mapped_file.h"

namespace qtts {

Status WriteDescription(const std::string& folder, const std::string& key, const Json& value) {
  const std::string path = folder + "/qttssrc.json";
  Json description = Json::object();
  const Result<std::string> old = ReadSmallFile(path);
  if (old.ok()) {
    description = Json::parse(*old, nullptr, false);
  } else if (old.status().code() != StatusCode::kNotFound) {
    return old.status();
  }
  if (!description.is_object()) return Status::CorruptModel(path + ": not a JSON object");
  description[key] = value;
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::binary);
  file << description.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path, error);
  if (file && !error) return Status::Ok();
  std::filesystem::remove(temporary, error);
  return Status::Unreadable(path + ": cannot be written");
}

}  // namespace qtts
