// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_STATUS_H_
#define QTTS_STATUS_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace qtts {

// Kind of error, coarse enough to select a GStreamer error domain.
enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's request cannot be served: unknown speaker, empty text
  kNotFound,           // a file or folder is missing
  kUnreadable,         // a file exists but cannot be opened or mapped
  kCorruptModel,       // a model file contradicts itself, its config or the format
  kUnsupported,        // well-formed, but not supported by this build
  kResourceExhausted,  // not enough memory, text too long
  kDeviceUnavailable,  // no such device, no driver, device lost
  kBusy,               // no place, time or memory for another utterance, for longer than the request may wait
  kCancelled,          // cancelled on request
  kInternal,           // a bug or an operating system failure
};

// The outcome of an operation: ok, or a code and one sentence for the user with the problem and the remedy. No
// exception crosses a folder boundary; functions that can fail return a Status or a Result.
//
// A value type. Copies may be passed between threads; const members may be called concurrently. A copy allocates
// nothing, so the error for a lack of memory can be copied too.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::make_shared<const std::string>(std::move(message))) {}

  static Status Ok() { return Status(); }
  static Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status Unreadable(std::string m) { return {StatusCode::kUnreadable, std::move(m)}; }
  static Status CorruptModel(std::string m) { return {StatusCode::kCorruptModel, std::move(m)}; }
  static Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
  static Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
  static Status DeviceUnavailable(std::string m) { return {StatusCode::kDeviceUnavailable, std::move(m)}; }
  static Status Busy(std::string m) { return {StatusCode::kBusy, std::move(m)}; }
  static Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
  static Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const {
    static const std::string kNone;
    return message_ == nullptr ? kNone : *message_;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::shared_ptr<const std::string> message_;
};

// Returns the name of a code for machine-readable output, e.g. "corrupt-model".
std::string_view StatusCodeName(StatusCode code);

// A T, or the Status that says why there is none. The status is never ok without a value. Dereferencing a failed Result
// is a programming error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns from the calling function with the status of `expr` unless it is ok.
#define QTTS_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                 \
    if (::qtts::Status qtts_status_ = (expr); !qtts_status_.ok()) return qtts_status_; \
  } while (false)

#define QTTS_CONCAT_INNER_(a, b) a##b
#define QTTS_CONCAT_(a, b) QTTS_CONCAT_INNER_(a, b)

// Declares or assigns `lhs` from the Result `expr`, or leaves the calling function with its status.
// `lhs` may be a declaration, which parentheses would break.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define QTTS_ASSIGN_OR_RETURN(lhs, expr) QTTS_ASSIGN_OR_RETURN_(QTTS_CONCAT_(qtts_result_, __LINE__), lhs, expr)
#define QTTS_ASSIGN_OR_RETURN_(result, lhs, expr) \
  auto result = (expr);                           \
  if (!result.ok()) return result.status();       \
  lhs = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace qtts

#endif  // QTTS_STATUS_H_
