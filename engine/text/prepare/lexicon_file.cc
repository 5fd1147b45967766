// SPDX-License-Identifier: LGPL-2.1-or-later
// Files of lexicons.
#include <glib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/ensure_memory.h"
#include "base/mapped_file.h"
#include "qtts/lru_cache.h"
#include "qtts/mutex.h"
#include "text/prepare/lexicon.h"

namespace qtts {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kBlank), text.size());
  const size_t end = text.find_last_not_of(kBlank);
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

std::string Excerpt(std::string_view text) {
  constexpr size_t kMost = 60;
  return "\"" + std::string(Utf8Head(text, kMost)) + (CountUtf8(text) > kMost ? "…" : "") + "\"";
}

// Returns the first thing wrong with an entry; empty if nothing is.
std::string ProblemOf(const LexiconEntry& entry) {
  if (entry.written.empty()) return "an entry without a written form";
  if (CountUtf8(entry.written) > kMaxWrittenCharacters) {
    return "the written form " + Excerpt(entry.written) + " has more than " + std::to_string(kMaxWrittenCharacters) +
           " characters";
  }
  if (CountUtf8(entry.spoken) > kMaxSpokenCharacters) {
    return "the spoken form of " + Excerpt(entry.written) + " has more than " + std::to_string(kMaxSpokenCharacters) +
           " characters";
  }
  if (entry.language.size() > 35 ||
      std::ranges::any_of(entry.language, [](char c) { return !g_ascii_isalnum(c) && c != '-'; })) {
    return "the language " + Excerpt(entry.language) + " of " + Excerpt(entry.written) +
           " is no tag such as \"en\" or \"de-AT\"";
  }
  return "";
}

// Returns the text with any white space as one space, as in XML's text.
std::string Collapsed(std::string_view text) {
  std::string collapsed;
  for (const char c : Trimmed(text)) {
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank) {
      collapsed += c;
    } else if (!collapsed.ends_with(' ')) {
      collapsed += ' ';
    }
  }
  return collapsed;
}

Result<std::vector<LexiconEntry>> ParseColumns(std::string_view content, const std::string& name) {
  std::vector<LexiconEntry> entries;
  size_t number = 0;
  while (!content.empty()) {
    ++number;
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    if (Trimmed(line).empty() || Trimmed(line).starts_with('#')) continue;
    const auto refuse = [&](const std::string& problem) {
      return Status::InvalidArgument(name + ":" + std::to_string(number) + ": " + problem);
    };
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      return refuse(Excerpt(Trimmed(line)) + " has no tab; a line needs the written word, a tab and the spoken words");
    }
    std::string_view rest = line.substr(tab + 1);
    const size_t second = std::min(rest.find('\t'), rest.size());
    LexiconEntry entry = {Collapsed(line.substr(0, tab)), Collapsed(rest.substr(0, second)),
                          std::string(Trimmed(rest.substr(std::min(second + 1, rest.size()))))};
    const std::string problem = ProblemOf(entry);
    if (!problem.empty()) return refuse(problem);
    entries.push_back(std::move(entry));
    if (entries.size() > kMaxLexiconEntries)
      return refuse("more than " + std::to_string(kMaxLexiconEntries) + " entries");
  }
  return entries;
}

// State of GLib's parser over a PLS document.
struct Pls {
  static constexpr size_t kMaxDepth = 6;

  std::string name;
  size_t depth = 0;
  std::string language;
  std::string text;  // of the innermost grapheme or alias
  bool collects = false;
  bool in_lexicon = false;
  std::vector<std::string> graphemes;
  std::optional<std::string> alias;
  bool alias_preferred = false;
  bool has_phoneme = false;
  bool prefers = false;  // the alias being read
  std::vector<LexiconEntry> entries;

  void Open(const gchar* element, const gchar** names, const gchar** values, GError** error);
  void Close(const gchar* element, GError** error);
  void CloseLexeme(GError** error);
};

void Refuse(GError** error, const std::string& problem) {
  g_set_error_literal(error, G_MARKUP_ERROR, G_MARKUP_ERROR_INVALID_CONTENT, problem.c_str());
}

const gchar* AttributeOf(const gchar** names, const gchar** values, std::string_view name) {
  for (; *names != nullptr; ++names, ++values) {
    if (name == *names) return *values;
  }
  return nullptr;
}

std::string_view LocalName(const gchar* element) {
  const std::string_view name = element;
  const size_t colon = name.find(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

void Pls::Open(const gchar* element, const gchar** names, const gchar** values, GError** error) {
  if (++depth > kMaxDepth) return Refuse(error, "elements are nested deeper than " + std::to_string(kMaxDepth));
  const std::string_view local = LocalName(element);
  if (depth == 1) {
    if (local != "lexicon") return Refuse(error, "the document is " + Excerpt(element) + ", expected \"lexicon\"");
    in_lexicon = true;
    if (const gchar* const tag = AttributeOf(names, values, "xml:lang")) language = tag;
    return;
  }
  if (local == "lexeme") {
    graphemes.clear();
    alias.reset();
    alias_preferred = has_phoneme = false;
  } else if (local == "grapheme" || local == "alias") {
    text.clear();
    collects = true;
    const gchar* const prefer = AttributeOf(names, values, "prefer");
    prefers = prefer != nullptr && std::strcmp(prefer, "true") == 0;
  } else if (local == "phoneme") {
    has_phoneme = true;
  }
}

void Pls::Close(const gchar* element, GError** error) {
  --depth;
  const std::string_view local = LocalName(element);
  if (local == "grapheme") {
    graphemes.push_back(Collapsed(text));
    collects = false;
  } else if (local == "alias") {
    // The first one, or the preferred one.
    if (!alias || (prefers && !alias_preferred)) alias = Collapsed(text);
    alias_preferred = alias_preferred || prefers;
    collects = false;
  } else if (local == "lexeme") {
    CloseLexeme(error);
  }
}

void Pls::CloseLexeme(GError** error) {
  if (graphemes.empty()) return Refuse(error, "a lexeme without a grapheme");
  if (!alias && has_phoneme) {
    return Refuse(
        error,
        "the entry of " + Excerpt(graphemes[0]) +
            " has phonemes, and the model takes letters only; write <alias> with a spelling that sounds like it");
  }
  if (!alias) return Refuse(error, "the entry of " + Excerpt(graphemes[0]) + " has no alias");
  for (const std::string& grapheme : graphemes) {
    LexiconEntry entry = {grapheme, *alias, language};
    const std::string problem = ProblemOf(entry);
    if (!problem.empty()) return Refuse(error, problem);
    entries.push_back(std::move(entry));
  }
  if (entries.size() > kMaxLexiconEntries)
    Refuse(error, "more than " + std::to_string(kMaxLexiconEntries) + " entries");
}

Result<std::vector<LexiconEntry>> ParsePls(std::string_view content, const std::string& name) {
  Pls pls;
  pls.name = name;
  GMarkupParser parser = {};
  parser.start_element = [](GMarkupParseContext* /*context*/, const gchar* element, const gchar** names,
                            const gchar** values, gpointer data,
                            GError** error) { static_cast<Pls*>(data)->Open(element, names, values, error); };
  parser.end_element = [](GMarkupParseContext* /*context*/, const gchar* element, gpointer data, GError** error) {
    static_cast<Pls*>(data)->Close(element, error);
  };
  parser.text = [](GMarkupParseContext* /*context*/, const gchar* text, gsize size, gpointer data, GError** /*error*/) {
    auto* const to = static_cast<Pls*>(data);
    if (to->collects) to->text.append(text, size);
  };
  parser.passthrough = [](GMarkupParseContext* /*context*/, const gchar* text, gsize size, gpointer /*data*/,
                          GError** error) {
    // No entities, from inside or outside.
    if (std::string_view(text, size).starts_with("<!DOCTYPE"))
      Refuse(error, "a document type declaration, which is not allowed");
  };
  EnsureMemory(content.size() + kSmallCallBytes);
  const std::unique_ptr<GMarkupParseContext, decltype(&g_markup_parse_context_free)> context(
      g_markup_parse_context_new(&parser, G_MARKUP_TREAT_CDATA_AS_TEXT, &pls, nullptr), g_markup_parse_context_free);
  GError* error = nullptr;
  if (g_markup_parse_context_parse(context.get(), content.data(), static_cast<gssize>(content.size()), &error) ==
          FALSE ||
      g_markup_parse_context_end_parse(context.get(), &error) == FALSE) {
    gint line = 0;
    g_markup_parse_context_get_position(context.get(), &line, nullptr);
    std::string message = error->message;
    const bool own = error->code == G_MARKUP_ERROR_INVALID_CONTENT && !message.starts_with("Error on line");
    g_clear_error(&error);
    // GLib's own messages name the line.
    return Status::InvalidArgument(name + (own ? ":" + std::to_string(line) : "") + ": " + RepairUtf8(message));
  }
  return std::move(pls.entries);
}

struct CachedFile {
  std::string identity;
  std::shared_ptr<const std::vector<LexiconEntry>> entries;
};

struct LexiconCache {
  static constexpr size_t kMaxFiles = 32;
  static constexpr size_t kMaxLexicons = 16;
  Mutex mutex;
  LruCache<CachedFile> files QTTS_GUARDED_BY(mutex){kMaxFiles};
  LruCache<std::shared_ptr<const Lexicon>> lexicons QTTS_GUARDED_BY(mutex){kMaxLexicons};
};

LexiconCache& TheCache() {
  static auto* const cache = new LexiconCache;
  return *cache;
}

// Returns size, inode and times of a file; the error if there is none.
Result<std::string> IdentityOf(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return Status::NotFound("lexicon " + path + ": cannot be read: " + g_strerror(errno));
  if (!S_ISREG(info.st_mode)) return Status::InvalidArgument("lexicon " + path + ": is no file");
  return std::to_string(info.st_dev) + " " + std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " +
         std::to_string(info.st_mtim.tv_sec) + " " + std::to_string(info.st_mtim.tv_nsec);
}

Result<std::shared_ptr<const std::vector<LexiconEntry>>> LoadFile(const std::string& path,
                                                                  const std::string& identity) {
  QTTS_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(path));
  if (content.size() > kMaxLexiconBytes) {
    return Status::InvalidArgument("lexicon " + path + ": has " + std::to_string(content.size()) + " bytes, at most " +
                                   std::to_string(kMaxLexiconBytes) + " are allowed");
  }
  QTTS_ASSIGN_OR_RETURN(std::vector<LexiconEntry> entries, ParseLexicon(content, path));
  auto shared = std::make_shared<const std::vector<LexiconEntry>>(std::move(entries));
  LexiconCache& cache = TheCache();
  const MutexLock lock(cache.mutex);
  const std::string key = path + "\n" + identity;
  if (cache.files.Find(key) == nullptr) cache.files.Insert(key, {identity, shared});
  return shared;
}

}  // namespace

Result<std::vector<LexiconEntry>> ParseLexicon(std::string_view content, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  if (RepairUtf8(content) != content || content.find('\0') != std::string_view::npos) {
    return Status::InvalidArgument(name + ": is no UTF-8 text; convert it, for example with 'iconv -t UTF-8'");
  }
  return Trimmed(content).starts_with('<') ? ParsePls(Trimmed(content), name) : ParseColumns(content, name);
}

Result<std::shared_ptr<const Lexicon>> Lexicon::Load(const std::string& files) {
  std::vector<std::pair<std::string, std::string>> paths;  // with their identity
  std::string key;
  for (size_t begin = 0; begin < files.size();) {
    const size_t end = std::min(files.find(':', begin), files.size());
    const std::string path = files.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    QTTS_ASSIGN_OR_RETURN(std::string identity, IdentityOf(path));
    key += path + "\n" + identity + "\n";
    paths.emplace_back(path, std::move(identity));
  }
  if (paths.empty()) return std::shared_ptr<const Lexicon>();
  LexiconCache& cache = TheCache();
  std::vector<std::shared_ptr<const std::vector<LexiconEntry>>> loaded(paths.size());
  {
    const MutexLock lock(cache.mutex);
    if (const auto* const lexicon = cache.lexicons.Find(key)) return *lexicon;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (const CachedFile* const file = cache.files.Find(paths[i].first + "\n" + paths[i].second))
        loaded[i] = file->entries;
    }
  }
  std::vector<LexiconEntry> entries;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (loaded[i] == nullptr) {
      QTTS_ASSIGN_OR_RETURN(loaded[i], LoadFile(paths[i].first, paths[i].second));
    }
    entries.insert(entries.end(), loaded[i]->begin(), loaded[i]->end());
  }
  std::shared_ptr<const Lexicon> lexicon = std::make_shared<const LexiconTree>(entries);
  const MutexLock lock(cache.mutex);
  if (const auto* const other = cache.lexicons.Find(key)) return *other;
  cache.lexicons.Insert(key, lexicon);
  return lexicon;
}

}  // namespace qtts
