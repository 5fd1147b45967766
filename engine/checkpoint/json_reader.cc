// SPDX-License-Identifier: LGPL-2.1-or-later
#include "checkpoint/json_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/ensure_memory.h"

namespace qtts {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxQuoted = 100;

// A first pass over a document. It builds nothing and looks for errors that json::parse() accepts.
class StrictCheck : public json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t /*elements*/) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& value) override {
    if (keys_.back().insert(value).second) return true;
    problem_ = "has the key " + Quoted(value) + " twice in one object";
    return false;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const json::exception& /*error*/) override {
    problem_ = "is not valid JSON at byte " + std::to_string(position);
    return false;
  }

  const std::string& problem() const { return problem_; }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    problem_ = "is nested deeper than " + std::to_string(kMaxDepth) + " levels";
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // one set per open object
  std::string problem_;
};

// Formats a value for a message: short, on one line.
std::string Shown(const json* value) {
  if (value == nullptr) return "missing";
  if (value->is_object()) return "an object";
  if (value->is_array() && value->size() > 8) return "an array of " + std::to_string(value->size());
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxQuoted) text = text.substr(0, kMaxQuoted) + "…";
  return text;
}

std::string FloatText(float value) { return json(value).dump(); }

}  // namespace

std::string Quoted(std::string_view text) {
  std::string shown(text.substr(0, kMaxQuoted));
  if (text.size() > kMaxQuoted) shown += "…";
  std::string escaped = json(shown).dump(-1, ' ', false, json::error_handler_t::ignore);
  escaped.front() = '\'';
  escaped.back() = '\'';
  return escaped;
}

Result<json> ParseJson(std::string_view text, const std::string& file) {
  StrictCheck check;
  if (!json::sax_parse(text, &check)) return Status::CorruptModel(file + ": " + check.problem());
  constexpr size_t kParsedTimes = 10;
  EnsureMemory(text.size() * kParsedTimes);
  json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return Status::CorruptModel(file + ": is not valid JSON");
  return document;
}

JsonFields::JsonFields(const json& object, std::string file, std::string prefix, Status* status)
    : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)), status_(status) {
  if (object.is_object() || !status_->ok()) return;
  const std::string what = prefix_.empty() ? "the document" : prefix_.substr(0, prefix_.size() - 1);
  *status_ = Status::CorruptModel(file_ + ": " + what + " is " + Shown(&object) + ", expected an object");
}

const json* JsonFields::Find(const char* key) const {
  if (!object_->is_object()) return nullptr;
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void JsonFields::Refuse(const std::string& key, const std::string& expected, StatusCode code) {
  if (!status_->ok()) return;
  std::string name = Quoted(key);
  name = name.substr(1, name.size() - 2);
  *status_ = Status(code, file_ + ": " + prefix_ + name + " is " + Shown(Find(key.c_str())) + ", expected " + expected);
}

int JsonFields::Int(const char* key, int min, int max, std::optional<int> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback.has_value() && *fallback >= min && *fallback <= max) return *fallback;
  if (value != nullptr && value->is_number_integer()) {
    // An unsigned number above INT64_MAX is out of range for any int.
    const int64_t number = value->is_number_unsigned()
                               ? static_cast<int64_t>(std::min<uint64_t>(value->get<uint64_t>(), INT64_MAX))
                               : value->get<int64_t>();
    if (number >= min && number <= max) return static_cast<int>(number);
  }
  Refuse(key, "an integer from " + std::to_string(min) + " to " + std::to_string(max));
  return min;
}

float JsonFields::Positive(const char* key, float most, std::optional<float> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value != nullptr && value->is_number()) {
    const auto number = static_cast<float>(value->get<double>());
    if (std::isfinite(number) && number > 0 && number <= most) return number;
  }
  Refuse(key, "a number above 0 and at most " + FloatText(most));
  return most;
}

bool JsonFields::Bool(const char* key, std::optional<bool> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  Refuse(key, "true or false");
  return false;
}

std::string JsonFields::String(const char* key, std::optional<std::string> fallback) {
  const json* value = Find(key);
  if (value == nullptr && fallback.has_value()) return *fallback;
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  Refuse(key, "a string");
  return {};
}

JsonFields JsonFields::Object(const char* key, bool optional) {
  static const json kEmpty = json::object();
  const json* value = Find(key);
  if (value == nullptr && !optional) Refuse(key, "an object");
  return JsonFields(value == nullptr ? kEmpty : *value, file_, prefix_ + key + ".", status_);
}

}  // namespace qtts
