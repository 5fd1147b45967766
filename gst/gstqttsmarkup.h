// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef GST_QTTS_MARKUP_H_
#define GST_QTTS_MARKUP_H_

#include <string>
#include <vector>

#include "gstqttssettings.h"
#include "gstqttstext.h"
#include "qtts/markup.h"
#include "qtts/model_info.h"

namespace gstqtts {

// Returns the options for reading a document with these settings. `markup` is known.
qtts::MarkupOptions MarkupOptionsOf(const Settings& settings, qtts::Markup markup);

// Returns the utterance, break or mark that a part of a document is.
Utterance MakeUtterance(qtts::MarkupPart part, const Settings& settings);

// Reads a whole text of the application. Returns itself, or the utterances, breaks and marks of a document. Never
// empty. Warnings are added to `warnings`.
std::vector<Utterance> ReadDocument(Utterance text, std::vector<std::string>* warnings);

// Switches the settings of an utterance to what its document asks for, as far as the model has it. Adds a warning
// to `warnings` for what the model lacks.
void ApplyMarkup(const qtts::ModelInfo& model, Utterance* utterance, std::vector<std::string>* warnings);

}  // namespace gstqtts

#endif  // GST_QTTS_MARKUP_H_
