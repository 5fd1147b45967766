// SPDX-License-Identifier: LGPL-2.1-or-later
#include "text/markup/markdown_words.h"

#include <algorithm>
#include <iterator>

#include "qtts/language.h"

namespace qtts {

const MarkdownWords& MarkdownWordsOf(std::string_view language) {
  static constexpr MarkdownWords kWords[] = {{"en", "Code example.", "Table.", "Image:", "link"},
                                             {"de", "Codebeispiel.", "Tabelle.", "Bild:", "Link"},
                                             {"fr", "Exemple de code.", "Tableau.", "Image :", "lien"},
                                             {"es", "Ejemplo de código.", "Tabla.", "Imagen:", "enlace"},
                                             {"it", "Esempio di codice.", "Tabella.", "Immagine:", "link"},
                                             {"pt", "Exemplo de código.", "Tabela.", "Imagem:", "link"},
                                             {"ru", "Пример кода.", "Таблица.", "Изображение:", "ссылка"},
                                             {"zh", "代码示例。", "表格。", "图片：", "链接"},
                                             {"ja", "コード例。", "表。", "画像：", "リンク"},
                                             {"ko", "코드 예제.", "표.", "이미지:", "링크"}};
  const std::string_view tag = ResolveLanguage(language).tag;
  const auto* const found = std::ranges::find(kWords, tag, &MarkdownWords::tag);
  return found != std::end(kWords) ? *found : kWords[0];
}

}  // namespace qtts
