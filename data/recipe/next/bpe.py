#!/usr/bin/env python3
"""Small byte-level BPE in Qwen2 file format (vocab.json, merges.txt, tokenizer_config.json).

train:  bpe.py CORPUS OUTDIR [--merges 1240]
Specials follow the last merge, in the official order.  "assistant" is forced to be one
token because the official prompt slicing counts it as one (ids[:, :3], ids[:, 3:-5]).
"""
import collections, json, os, random, sys
import regex

# Qwen2's pre-tokenizer
PRE = regex.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>",
           "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"]


def byte_chars():
    """the GPT-2 byte <-> printable character table"""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    t, n = {}, 0
    for b in range(256):
        if b in keep:
            t[b] = chr(b)
        else:
            t[b] = chr(256 + n)
            n += 1
    return t


B2C = byte_chars()


class BPE:
    def __init__(self, folder):
        self.vocab = json.load(open(f"{folder}/vocab.json", encoding="utf-8"))
        self.rank = {}
        for line in open(f"{folder}/merges.txt", encoding="utf-8"):
            p = tuple(line.rstrip("\n").split(" "))
            if len(p) == 2 and not line.startswith("#version"):
                self.rank[p] = len(self.rank)
        self.special = {s: len(self.vocab) + i for i, s in enumerate(SPECIAL)}
        self.size = len(self.vocab) + len(SPECIAL)
        self.cache = {}

    def word(self, w, drop=0.0):
        if not drop and w in self.cache:
            return self.cache[w]
        s = [B2C[b] for b in w.encode("utf-8")]
        while len(s) > 1:
            best, at = None, -1
            for i in range(len(s) - 1):
                r = self.rank.get((s[i], s[i + 1]))
                if r is not None and (best is None or r < best) and not (drop and random.random() < drop):
                    best, at = r, i
            if best is None:
                break
            s[at:at + 2] = [s[at] + s[at + 1]]
        ids = [self.vocab[t] for t in s]
        if not drop:
            self.cache[w] = ids
        return ids

    def encode(self, text, drop=0.0):
        return [i for w in PRE.findall(text) for i in self.word(w, drop)]


def train(textdir, out, merges):
    counts = collections.Counter()
    for line in open(f"{textdir}/text.tsv", encoding="utf-8"):
        for text in line.split("\t")[:2]:
            for w in PRE.findall(text):
                counts[w] += 1
    words = [[B2C[b] for b in w.encode()] for w in counts]
    freq = [c ** 0.75 for c in counts.values()]          # flatten: wide coverage over raw frequency
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, w in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += freq[i]
            where[p].add(i)
    rules = []

    def apply(p):
        rules.append(p)
        for i in list(where[p]):
            w = words[i]
            for q in zip(w, w[1:]):
                pairs[q] -= freq[i]
            j = 0
            while j < len(w) - 1:
                if (w[j], w[j + 1]) == p:
                    w[j:j + 2] = [p[0] + p[1]]
                j += 1
            for q in zip(w, w[1:]):
                pairs[q] += freq[i]
                where[q].add(i)
        pairs.pop(p, None)

    while len(rules) < merges:
        apply(max(pairs, key=lambda p: (pairs[p], p)))
    s = [c for c in "assistant"]                          # force the role word into one token
    for p in rules:
        j = 0
        while j < len(s) - 1:
            if (s[j], s[j + 1]) == p:
                s[j:j + 2] = [p[0] + p[1]]
            j += 1
    while len(s) > 1:
        rules.append((s[0], s[1]))
        s[0:2] = [s[0] + s[1]]
    vocab = {B2C[b]: i for i, b in enumerate(sorted(B2C))}
    for p in rules:
        vocab.setdefault(p[0] + p[1], len(vocab))
    os.makedirs(out, exist_ok=True)
    json.dump(vocab, open(f"{out}/vocab.json", "w", encoding="utf-8"), ensure_ascii=False)
    with open(f"{out}/merges.txt", "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{x} {y}\n" for x, y in rules))
    n = len(vocab)
    json.dump({"add_prefix_space": False, "add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>",
               "pad_token": "<|endoftext|>", "unk_token": None, "errors": "replace", "clean_up_tokenization_spaces": False,
               "split_special_tokens": False, "model_max_length": 131072, "tokenizer_class": "Qwen2Tokenizer",
               "additional_special_tokens": SPECIAL[1:],
               "added_tokens_decoder": {str(n + i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False,
                                                     "single_word": False, "special": True} for i, s in enumerate(SPECIAL)}},
              open(f"{out}/tokenizer_config.json", "w"), indent=2)
    print(f"{len(rules)} merges, {n} + {len(SPECIAL)} tokens")


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[4]) if len(sys.argv) > 4 else 1240)
