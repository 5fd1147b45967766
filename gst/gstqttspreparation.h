// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_PREPARATION_H_
#define GST_QTTS_PREPARATION_H_

#include <memory>
#include <string>

#include "gstqttstext.h"
#include "qtts/model_info.h"
#include "qtts/status.h"
#include "qtts/text_preparer.h"

namespace gstqtts {

// The text of an utterance as the model is to read it.
struct Preparation {
  qtts::PreparedText text;  // of the text so far; no map: it is the original
  // For text that is still to come. Null: it passes through, or the text is complete. The streaming thread's.
  std::shared_ptr<qtts::TextPreparer> preparer;
};

// Prepares the text of `utterance` by its settings and by what `model` needs. A text of which nothing sayable would be
// left is not changed. Errors: those of its lexicon.
qtts::Result<Preparation> PrepareUtterance(const Utterance& utterance, const qtts::ModelInfo& model);

// Prepares more text of a growing utterance, and its end if it is the `last`. Without `preparer` it passes through.
qtts::Status PrepareMore(const std::string& text, bool last, qtts::TextPreparer* preparer,
                         qtts::PreparedText* prepared);

}  // namespace gstqtts

#endif  // GST_QTTS_PREPARATION_H_
