#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records what the official tokenizer makes of a few thousand strings: data/tokenizer.json.

Needs transformers 4.57.3 (what qwen-tts 0.1.1 pins); nothing else in the repository does:

    python3 -m venv /tmp/tokenizer && /tmp/tokenizer/bin/pip install transformers==4.57.3
    /tmp/tokenizer/bin/python tests/golden/record_tokenizer.py

The folder it loads holds vocabulary/merges.txt, the vocab.json derived from it, and the 33 added
tokens of the released checkpoints. The pattern is the native one without fix_mistral_regex and the
patched one with it, as transformers decides by itself.

The file: "plain" is a list of [string, ids] or [string, native ids, patched ids] where the two
differ; "added" has the same for strings with added tokens.
"""

import json
import os
import random
import tempfile
import unicodedata

from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))

ADDED = {
    151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>", 151646: "<|object_ref_start|>",
    151647: "<|object_ref_end|>", 151648: "<|box_start|>", 151649: "<|box_end|>", 151650: "<|quad_start|>",
    151651: "<|quad_end|>", 151652: "<|vision_start|>", 151653: "<|vision_end|>", 151654: "<|vision_pad|>",
    151655: "<|image_pad|>", 151656: "<|video_pad|>", 151657: "<tool_call>", 151658: "</tool_call>",
    151659: "<|fim_prefix|>", 151660: "<|fim_middle|>", 151661: "<|fim_suffix|>", 151662: "<|fim_pad|>",
    151663: "<|repo_name|>", 151664: "<|file_sep|>", 151665: "<tool_response>", 151666: "</tool_response>",
    151667: "<think>", 151668: "</think>", 151669: "<|audio_start|>", 151670: "<|audio_end|>", 151671: "<tts_pad>",
    151672: "<tts_text_bos>", 151673: "<tts_text_eod>", 151674: "<tts_text_bos_single>", 151675: "<|audio_pad|>",
}

SENTENCES = r"""
Hello, world.
Hello there, friend.
The quick brown fox jumps over the lazy dog, doesn't it?
It's 12:45 on 3 March 2024; we've paid $1,234.56 (about €1.100,-)!
I'd say they'll come, WE'RE sure you've heard: that's what she'S said. 'Twas O'Neill's.
iPhone iPad eBay macOS XMLHttpRequest getUserById parseJSONString HTTPServer2 v2.0.1-rc3
今天天气很好，我们去公园散步吧。
你好，请问去火车站怎么走？大约需要二十分钟。
北京欢迎您！我叫通义千问，是阿里云的开源大模型。
他说：“明天下午三点半，在人民广场见面”，然后就走了……
東京の天気は晴れです。明日は雨が降るでしょう。
コーヒーを一杯ください。ありがとうございます！ｶﾀｶﾅとひらがな、漢字。
안녕하세요, 만나서 반갑습니다. 오늘 날씨가 정말 좋네요!
서울에서 부산까지 기차로 두 시간 반 걸립니다.
Guten Tag, wie geht es Ihnen? Straßenbahnhaltestelle und Donaudampfschifffahrtsgesellschaft.
Übermorgen fährt der Zug um 9:15 Uhr – hoffentlich pünktlich.
Bonjour à tous, comment ça va aujourd'hui ? L'été dernier, nous étions à Saint-Étienne.
Qu'est-ce que c'est ? « C'est un cœur », répondit-elle.
Привет, как дела? Сегодня прекрасная погода, пойдём гулять в парк.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Olá, tudo bem? A manhã está bonita e as crianças não têm aulas.
São Paulo é a maior cidade do Brasil; coração, pão, lã.
¡Hola! ¿Cómo estás? El niño comió una piña en la montaña.
Mañana por la mañana iremos al mercado a comprar güisqui.
Ciao, come stai? Perché non andiamo al cinema stasera, così ci divertiamo?
L'università è più lontana di quanto pensassi; c'è un po' di traffico.
สวัสดีครับ วันนี้อากาศดีมาก เราไปเดินเล่นที่สวนกันเถอะ
नमस्ते, आप कैसे हैं? आज मौसम बहुत अच्छा है।
مرحبا، كيف حالك؟ الطقس جميل اليوم، أَهْلًا وَسَهْلًا.
שלום, מה שלומך? שָׁלוֹם עֲלֵיכֶם.
Xin chào, hôm nay trời đẹp quá! Nguyễn Thị Phương Thảo.
Γειά σου Κόσμε! Τι κάνεις σήμερα; ᾈδης, ὀδυσσεύς.
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // dot product
def f(x: int) -> str:\n\treturn f"{x!r:>8}"\n\n\nclass A(B):\n    pass\n
<html><body class="x">\r\n  <p>&nbsp;a &lt; b</p>\r\n</body></html>\r\n
SELECT * FROM `t` WHERE id IN (1,2,3) AND name LIKE '%abc%'; -- ok
https://example.org/a/b/?q=1&r=%20#frag //path//to///file/ ../../x /* c */ ///\n//\n
👋🏽 Hi 👨‍👩‍👧‍👦! 🇩🇪🇫🇷 ❤️‍🔥 ☕️ 1️⃣ #️⃣ ©️ ™ 😀😃😄
x² + y³ = ½·z⅓ ≠ ∑ᵢ aᵢ ≤ ∞; ℝ ⊂ ℂ, Ω=Ω, Å=Å, ﬁ ﬂ ①②③ Ⅳ ⅷ ٣٤٥ १२३
a\u00a0b\u2003c\u3000d\u200be\ufefff\u180eg\u2028h\u2029i\u0085j\u001ck\u0000l
Lj ǅ ǈ ǋ ǲ ʰʱ ˇ ˀ ª º ſ K
""".strip("\n").split("\n")


def assigned(rng, low, high):
    """A random code point of Unicode 14 or earlier in [low, high]."""
    while True:
        code = rng.randint(low, high)
        if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co"):
            return chr(code)


def make_strings():
    rng = random.Random(20240314)
    base = [s.encode("ascii", "backslashreplace").decode("unicode_escape") if "\\" in s else s for s in SENTENCES]
    strings = ["", " ", "  ", "\n", "\r\n", "\n\n", " \n", "\n ", "\t", "\n  \n ", "'", "'s", "'S", "'ſ", "a'", "'ll", "'lL"]
    strings += base
    for s in base:
        strings += ["assistant\n" + s, unicodedata.normalize("NFD", s), s.upper(), s.swapcase(), " " + s + "  "]
    strings += ["assistant\n" + s for s in ("\nA", "\n\n\nA", " A", "  A", "  \n A", "\r\nA", "\tA", "́A", "?A")]

    # Every pair of the kinds of characters that the patterns tell apart, with a third one.
    kinds = "aZsſ中ǅʰ́ 1.\n\r\t'/　\0é̂ͅ"
    for a in kinds:
        for b in kinds:
            strings.append(a + b + rng.choice(kinds) + rng.choice(kinds))
    for _ in range(500):
        strings.append("".join(rng.choice(kinds) for _ in range(rng.randint(3, 14))))

    # Pieces of sentences, cut and joined anywhere.
    for _ in range(500):
        parts = []
        for _ in range(rng.randint(1, 3)):
            s = rng.choice(base)
            at = rng.randrange(len(s))
            parts.append(s[at:at + rng.randint(1, 24)])
        strings.append(rng.choice(["", " ", "\n", "'", "/"]).join(parts))
    # White space of all kinds between words.
    spaces = "  \n\n\r\t\v\f\u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\u200b\u180e\ufeff\x1c\x1d\x1e\x1f"
    for _ in range(300):
        out = ""
        for _ in range(rng.randint(1, 4)):
            out += rng.choice(["a", "Wort", "7", "!", "中文", "É", ""])
            out += "".join(rng.choice(spaces) for _ in range(rng.randint(1, 5)))
        strings.append(out)
    # Random code points: all planes, and blocks apart, where neighbours interact.
    for _ in range(250):
        strings.append("".join(assigned(rng, 0, 0x10FFFF) for _ in range(rng.randint(1, 12))))
    for _ in range(600):
        low = rng.choice([0, 0x80, 0x100, 0x300, 0x370, 0x400, 0x590, 0x600, 0x900, 0x980, 0xB00, 0xC80, 0xE00, 0xF00,
                          0x1000, 0x1100, 0x1780, 0x1AB0, 0x1B00, 0x1E00, 0x1F00, 0x2000, 0x2100, 0x2190, 0x3000,
                          0x3040, 0x3130, 0x4E00, 0xA640, 0xAC00, 0xD780, 0xF900, 0xFB00, 0xFE00, 0xFF00, 0x11080,
                          0x11300, 0x1D100, 0x1D400, 0x1F300, 0x2F800])
        strings.append("".join(rng.choice([assigned(rng, low, low + 127)] * 6 + [" ", "a", "Q", "\u0301", "\u0323"])
                               for _ in range(rng.randint(2, 14))))
    # Canonical compositions and orders.
    marks = [chr(c) for c in range(0x300, 0x370)] + [chr(c) for c in (0x5B0, 0x64B, 0x94D, 0xE38, 0x3099, 0x1DC0)]
    for _ in range(300):
        strings.append("".join(rng.choice("aeiouAEIOUyYnNcCsS<>= 1\n가각") + "".join(
            rng.choice(marks) for _ in range(rng.randint(0, 4))) for _ in range(rng.randint(1, 5))))
    for _ in range(60):
        strings.append("".join(chr(rng.choice([rng.randint(0x1100, 0x1112), rng.randint(0x1161, 0x1175),
                                               rng.randint(0x11A8, 0x11C2), rng.randint(0xAC00, 0xD7A3)]))
                               for _ in range(rng.randint(2, 9))))
    # Long runs.
    for unit in ["a", "A", " ", "\n", " \n", "\u0301", "e\u0301", "中", "中A", "!", "/", "0", "ab", "'s", "ก็", "\u0f73",
                 "\u09c7\u09be", "\u0301\u0316", "\u1100\u1161"]:
        for count in (2, 3, 7, 30, 150):
            strings.append(unit * count)
    # U+1AC1 and its like have combining classes that only newer normalization data knows.
    strings = [s for s in strings if not any(0x1AC1 <= ord(c) <= 0x1ACE for c in s)]
    strings = [s for s in strings if not any(token in s for token in ADDED.values())]
    return list(dict.fromkeys(strings))


def make_added_strings():
    rng = random.Random(7)
    strings = ["<|im_start|>assistant\nHello there, friend.<|im_end|>\n<|im_start|>assistant\n",
               "<|im_start|>assistant\n\n\nA<|im_end|>\n<|im_start|>assistant\n",
               "<|im_start|>user\nSpeak softly.<|im_end|>\n", "<tts_text_bos_single>", "<tts_text_bos", "e<think>\u0301"]
    for _ in range(150):
        strings.append("".join(rng.choice(list(ADDED.values()) + ["a", " ", "\n", "<", "|", "e", "\u0301", "é", "Text"])
                               for _ in range(rng.randint(1, 8))))
    return strings


def make_folder(folder):
    with open(os.path.join(HERE, "vocabulary", "merges.txt"), encoding="utf-8") as file:
        merges = file.read()
    printable = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    pieces = [chr(b) for b in printable] + [chr(0x100 + i) for i in range(256 - len(printable))]
    pieces += [line.replace(" ", "") for line in merges.split("\n") if line]
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    files = {
        "merges.txt": merges,
        "vocab.json": json.dumps({p: i for i, p in enumerate(pieces)}, ensure_ascii=False, separators=(",", ":")),
        "config.json": json.dumps({"model_type": "qwen3_tts", "transformers_version": "4.57.3"}),
        "tokenizer_config.json": json.dumps({
            "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "bos_token": None, "unk_token": None,
            "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "added_tokens_decoder": {str(i): {"content": t, "special": True, **flags} for i, t in ADDED.items()}}),
    }
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
            file.write(text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder)
        native = AutoTokenizer.from_pretrained(folder, fix_mistral_regex=False)
        patched = AutoTokenizer.from_pretrained(folder, fix_mistral_regex=True)
    assert r"\p{Lu}" not in str(native.backend_tokenizer.pre_tokenizer)
    assert r"\p{Lu}" in str(patched.backend_tokenizer.pre_tokenizer)

    def record(string):
        a = native(string)["input_ids"]
        b = patched(string)["input_ids"]
        return [string, a] if a == b else [string, a, b]

    lists = {"plain": [record(s) for s in make_strings()], "added": [record(s) for s in make_added_strings()]}
    with open(os.path.join(HERE, "data", "tokenizer.json"), "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(json.dumps(name) + ": [\n" + ",\n".join(
            json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries) + "\n]"
                                      for name, entries in lists.items()) + "\n}\n")
    for name, entries in lists.items():
        print(name, len(entries), "strings,", sum(len(e) == 3 for e in entries), "with patched ids of their own")


if __name__ == "__main__":
    main()
