// SPDX-License-Identifier: LGPL-2.1-or-later
#include "qtts/text_preparer.h"

#include <algorithm>
#include <utility>

#include "qtts/language.h"
#include "text/prepare/capitals.h"
#include "text/prepare/characters.h"
#include "text/prepare/lexicon.h"
#include "text/prepare/numbers.h"
#include "text/prepare/symbols.h"

namespace qtts {
namespace {

struct NamedStep {
  std::string_view name;
  std::unique_ptr<const Step> step;
};

std::vector<NamedStep> MakeSteps(const TextPreparerOptions& options) {
  const TongueChoice tongue = ChooseTongue(options.language);
  std::vector<NamedStep> steps;
  if (options.steps.characters)
    steps.push_back({"characters", std::make_unique<CharactersStep>(options.steps.numbers)});
  if (options.lexicon != nullptr && options.lexicon->size() > 0) {
    steps.push_back({"lexicon", std::make_unique<LexiconStep>(tongue, options.language, options.lexicon)});
  }
  if (options.steps.numbers) steps.push_back({"numbers", std::make_unique<NumbersStep>(tongue)});
  if (options.steps.symbols) steps.push_back({"symbols", std::make_unique<SymbolsStep>(tongue, options.emoji)});
  if (options.steps.capitals) steps.push_back({"capitals", std::make_unique<CapitalsStep>(tongue)});
  return steps;
}

}  // namespace

std::string_view NormalizeName(Normalize normalize) {
  constexpr std::string_view kNames[] = {"model", "none", "spoken"};
  return kNames[static_cast<size_t>(normalize)];
}

std::string_view EmojiName(Emoji emoji) { return emoji == Emoji::kNames ? "names" : "silent"; }

TextSteps ChooseSteps(const TextDescription& description, Normalize normalize) {
  if (normalize == Normalize::kNone) return {};
  TextSteps steps = description.steps;
  if (normalize == Normalize::kSpoken) steps.characters = steps.numbers = steps.symbols = true;
  return steps;
}

std::string PreparationLanguage(std::string_view requested, const std::vector<std::string>& model_languages) {
  const Language language = ResolveLanguage(requested);
  if (language.name != "auto") return std::string(requested);
  return model_languages.size() == 1 ? model_languages[0] : "";
}

struct TextPreparer::Impl {
  explicit Impl(const TextPreparerOptions& options) : steps(MakeSteps(options)) {
    for (const NamedStep& step : steps) runners.emplace_back(step.step.get());
  }

  void Decode(std::string_view bytes, bool ended) {
    pending_bytes.append(bytes);
    std::string_view rest = pending_bytes;
    while (!rest.empty()) {
      const Utf8Char c = DecodeUtf8(rest);
      if (c.incomplete && !ended) break;
      text.push_back({c.code, length, length + 1, true});
      ++length;
      rest.remove_prefix(c.size);
    }
    pending_bytes.erase(0, pending_bytes.size() - rest.size());
  }

  void Run(bool ended) {
    bool letter_comes = false;
    for (StepRunner& runner : runners) {
      MappedText decided;
      runner.Run(text, ended, letter_comes, &decided);
      text = std::move(decided);
      letter_comes = runner.LetterComes();
    }
    for (const MappedChar& character : text) map.Add(character);
    text.clear();
    if (ended) map.Finish(length);
  }

  std::vector<NamedStep> steps;
  std::vector<StepRunner> runners;
  MapBuilder map;
  std::string pending_bytes;  // an incomplete sequence
  MappedText text;
  size_t length = 0;  // characters of the source
  bool finished = false;
};

TextPreparer::TextPreparer(const TextPreparerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
TextPreparer::~TextPreparer() = default;
TextPreparer::TextPreparer(TextPreparer&&) noexcept = default;
TextPreparer& TextPreparer::operator=(TextPreparer&&) noexcept = default;

Status TextPreparer::Append(std::string_view text) {
  if (impl_->finished) return Status::InvalidArgument("text was appended after the end of the text");
  impl_->Decode(text, false);
  impl_->Run(false);
  return Status::Ok();
}

Status TextPreparer::Finish() {
  if (impl_->finished) return Status::Ok();
  impl_->finished = true;
  impl_->Decode("", true);
  impl_->Run(true);
  return Status::Ok();
}

PreparedText TextPreparer::Take() { return impl_->map.Take(); }

bool TextPreparer::passes_through() const { return impl_->steps.empty(); }

void TextPreparer::Preload(const TextPreparerOptions& options) {
  // All kinds of tables that are made when they are first needed.
  TextPreparerOptions sample = options;
  sample.lexicon = nullptr;
  (void)PrepareText("FBI 2024-03-15, 7:05, 1/2, 1st, $1.50, 5 km, 20 °C, SEK 5.", sample);
}

PreparedText PrepareText(std::string_view text, const TextPreparerOptions& options) {
  TextPreparer preparer(options);
  (void)preparer.Append(text);
  (void)preparer.Finish();
  return preparer.Take();
}

std::vector<std::pair<std::string, std::string>> ExplainPreparation(std::string_view text,
                                                                    const TextPreparerOptions& options) {
  std::vector<std::pair<std::string, std::string>> explained;
  MappedText characters;
  for (const char32_t code : ToUtf32(RepairUtf8(text))) characters.push_back({code, 0, 0, true});
  for (const NamedStep& step : MakeSteps(options)) {
    MappedText decided;
    StepRunner(step.step.get()).Run(characters, true, false, &decided);
    characters = std::move(decided);
    std::string after;
    for (const MappedChar& character : characters) AppendUtf8(character.code, &after);
    explained.emplace_back(step.name, std::move(after));
  }
  return explained;
}

}  // namespace qtts
