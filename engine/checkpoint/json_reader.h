// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_CHECKPOINT_JSON_READER_H_
#define QTTS_CHECKPOINT_JSON_READER_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "qtts/status.h"

// Reading of untrusted JSON. `file` is the name used in messages.
namespace qtts {

// Parses one document. Also refuses duplicate keys and more than 16 levels of nesting, which no model file has.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& file);

// Quotes text of a file for a message: control characters escaped, cut if long.
std::string Quoted(std::string_view text);

// Reads the fields of one JSON object. The first invalid field is stored in a Status, which all readers of a document
// share. After that the getters return harmless values, so a caller reads everything and checks once. A null counts as
// missing. A missing field gives the fallback, or an error if there is none.
//
// Keeps references to the document and the status, which must outlive it.
class JsonFields {
 public:
  // `object` may have any type; a non-object is an error. `prefix` is the path to it, with a dot at the end
  // ("talker_config."), or empty.
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix, Status* status);

  // Returns an integer in [min, max]. The fallback must be in that range too.
  int Int(const char* key, int min, int max, std::optional<int> fallback = std::nullopt);
  // Returns a finite number in (0, most], as float; never rounded to 0.
  float Positive(const char* key, float most, std::optional<float> fallback = std::nullopt);
  bool Bool(const char* key, std::optional<bool> fallback = std::nullopt);
  std::string String(const char* key, std::optional<std::string> fallback = std::nullopt);
  // Returns an object. A missing one reads as empty if `optional`.
  JsonFields Object(const char* key, bool optional = false);
  // Returns the value, or nullptr if it is missing or null.
  const nlohmann::json* Find(const char* key) const;

  // Stores the error "<file>: <prefix><key> is <value>, expected <expected>".
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
