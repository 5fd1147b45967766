// SPDX-License-Identifier: LGPL-2.1-or-later
#ifndef QTTS_TOOLS_TEXT_H_
#define QTTS_TOOLS_TEXT_H_

#include "options.h"
#include "qtts/markup.h"
#include "qtts/model_info.h"
#include "qtts/status.h"
#include "qtts/text_preparer.h"

namespace qtts {

// Returns the options of the preparer for a model, by --normalize, --lexicon, --emoji and --language.
Result<TextPreparerOptions> MakePreparerOptions(const ToolOptions& options, const ModelInfo& model);

// Returns the options for reading the markup of a text, by --markup, --markup-rules and --language.
Result<MarkupOptions> MakeMarkupOptions(const ToolOptions& options, const ModelInfo& model);

// Runs the command `text`: prints the utterances of a text, what each step makes of them, and their maps.
Status PrintText(const ToolOptions& options);

}  // namespace qtts

#endif  // QTTS_TOOLS_TEXT_H_
