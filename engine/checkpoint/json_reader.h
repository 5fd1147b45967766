// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_JSON_READER_H_
#define QTTS_CHECKPOINT_JSON_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "qtts/status.h"

// Reading of untrusted JSON. `file` is the name that stands in messages.
namespace qtts {

// Parses one document. Besides what the format forbids, refuses duplicate keys and nesting deeper
// than 16, which no model file has.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& file);

// `text` from a file, safe to show: quoted, with control characters escaped, and cut when long.
std::string Quoted(std::string_view text);

// Reads the fields of one JSON object. The first field that is not as expected is remembered in a
// Status that readers of one document share; from then on the getters return harmless values. So a
// caller reads everything and checks once. A null is a field that is not there; a field that is not
// there has the fallback, or is an error without one.
//
// Refers to the document and the status, which must outlive it.
class JsonFields {
 public:
  // `object` may be of any type; anything but an object is an error. `prefix` is the path to it, with
  // a dot at the end ("talker_config."), or empty.
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix, Status* status);

  // An integer in [min, max], where the fallback must lie, too.
  int Int(const char* key, int min, int max, std::optional<int> fallback = std::nullopt);
  // A finite number in (above, most], as float; never rounded to 0.
  float Positive(const char* key, float most, std::optional<float> fallback = std::nullopt);
  bool Bool(const char* key, std::optional<bool> fallback = std::nullopt);
  std::string String(const char* key, std::optional<std::string> fallback = std::nullopt);
  // An object; a missing one reads as empty where `optional`.
  JsonFields Object(const char* key, bool optional = false);
  // The value itself, or nullptr where it is missing or null.
  const nlohmann::json* Find(const char* key) const;

  // Remembers "<file>: <prefix><key> is <value>, expected <expected>".
  void Refuse(const std::string& key, const std::string& expected, StatusCode code = StatusCode::kCorruptModel);

  const Status& status() const { return *status_; }

 private:
  const nlohmann::json* object_;
  std::string file_;
  std::string prefix_;
  Status* status_;
};

}  // namespace qtts

#endif  // QTTS_CHECKPOINT_JSON_READER_H_
