// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_DOCUMENT_H_
#define GST_QTTS_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "gstqttsreport.h"

namespace gstqtts {

// A text of the application with markup, which is several utterances: reports tell of it as of one.
//
// Shared by its utterances. Not thread-safe: guarded by the Monitor.
class Document {
 public:
  // `parts`: number of utterances, breaks and marks.
  Document(std::string text, size_t parts) : text_(std::move(text)), parts_(parts) {}

  void SetId(uint64_t id) { id_ = id; }
  uint64_t id() const { return id_; }
  const std::string& text() const { return text_; }

  // Begins it with its first utterance. Returns false if one has begun already.
  bool Begin();
  // Ends an utterance, with this kFinished report in positions of the document, or as dropped. Returns the report of
  // the document if it was its last part.
  std::optional<Report> End(const Report& part);
  // Passes a break or a mark, also one that was dropped.
  std::optional<Report> Pass();

 private:
  const std::string text_;
  uint64_t id_ = 0;
  size_t parts_;
  bool begun_ = false;
  bool passed_ = false;  // an utterance has ended
  Report all_;
  size_t measured_chars_ = 0;  // of the utterances whose coverage is known
};

}  // namespace gstqtts

#endif  // GST_QTTS_DOCUMENT_H_
