// SPDX-License-Identifier: LGPL-2.1-or-later
#include "gstqttspreparation.h"

#include <utility>

#include "gstqttssettings.h"
#include "qtts/text_check.h"

namespace gstqtts {
namespace {

qtts::Result<qtts::TextPreparerOptions> OptionsOf(const Settings& settings, const qtts::ModelInfo& model) {
  qtts::TextPreparerOptions options;
  options.language = qtts::PreparationLanguage(settings.language, model.languages);
  options.steps = qtts::ChooseSteps(model.description.text, settings.normalize);
  options.emoji = settings.emoji;
  QTTS_ASSIGN_OR_RETURN(options.lexicon, qtts::Lexicon::Load(settings.lexicon));
  return options;
}

}  // namespace

qtts::Result<Preparation> PrepareUtterance(const Utterance& utterance, const qtts::ModelInfo& model) {
  QTTS_ASSIGN_OR_RETURN(qtts::TextPreparerOptions options, OptionsOf(utterance.settings, model));
  Preparation preparation;
  auto preparer = std::make_shared<qtts::TextPreparer>(std::move(options));
  if (preparer->passes_through()) {
    preparation.text.spoken = utterance.text;
    return preparation;
  }
  QTTS_RETURN_IF_ERROR(preparer->Append(utterance.text));
  if (!utterance.more_text) QTTS_RETURN_IF_ERROR(preparer->Finish());
  preparation.text = preparer->Take();
  if (utterance.more_text) {
    preparation.preparer = std::move(preparer);
  } else if (!qtts::IsSayable(preparation.text.spoken)) {
    preparation.text = {utterance.text, {}};
  }
  return preparation;
}

qtts::Status PrepareMore(const std::string& text, bool last, qtts::TextPreparer* preparer,
                         qtts::PreparedText* prepared) {
  if (preparer == nullptr) {
    prepared->spoken = text;
    return qtts::Status::Ok();
  }
  QTTS_RETURN_IF_ERROR(preparer->Append(text));
  if (last) QTTS_RETURN_IF_ERROR(preparer->Finish());
  *prepared = preparer->Take();
  return qtts::Status::Ok();
}

}  // namespace gstqtts
