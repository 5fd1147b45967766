"""Lines of which more is written than spoken, or in other signs: marks, capitals, codes, telephone and account numbers.

build() gives functions, each of which makes a pair: the line as written, and what is read aloud. Marks are silent or a pause, as
engine/text/prepare has them for a voice that has not learnt them.
"""
import re

from reading import MONTHS, ONES, SPELLED, cardinal, ordinal, year

# Around or beside a part of a sentence: as written, as read. {a} before, {b} the part, {c} after.
SILENT = ['{a} "{b}" {c}', "{a} “{b}” {c}", "{a} '{b}' {c}", "{a} ‘{b}’ {c}", "{a} «{b}» {c}", "{a} „{b}“ {c}", "{a} *{b}* {c}", "{a} **{b}** {c}",
          "{a} _{b}_ {c}", "{a} `{b}` {c}", "{a} ~~{b}~~ {c}", "{a} <b>{b}</b> {c}", "{a} <i>{b}</i> {c}", "{a} {b}™ {c}", "{a} {b}® {c}", '"{a} {b} {c}"',
          "“{a} {b} {c}”", "# {a} {b} {c}", "## {a} {b} {c}", "• {a} {b} {c}", "- {a} {b} {c}", "* {a} {b} {c}", "> {a} {b} {c}", "{a} {e} {b} {c}", "{a} {b} {c} {e}",
          "{a}\u00a0{b}\u00a0{c}", "{a} \u200b{b}\u200b {c}", "{a} {b}\u00ad {c}", "{a} \ufeff{b} {c}", "{a}  {b}   {c}", "{a} {b} {c} [1]"]
PAUSES = ["{a} ({b}) {c}", "{a} ({b}) {c}", "{a} [{b}] {c}", "{a} {{{b}}} {c}", "{a} — {b} — {c}", "{a} – {b} – {c}", "{a} - {b} - {c}", "{a} -- {b} -- {c}", "{a}—{b}—{c}"]
ONE_PAUSE = ["{a} — {b} {c}", "{a} – {b} {c}", "{a} -- {b} {c}", "{a} | {b} {c}", "{a} / {b} {c}", "{a} → {b} {c}", "{a} \\ {b} {c}", "{a}… {b} {c}", "{a}... {b} {c}"]
EMOJI = "😂😀😊🙂😍👍🎉🔥❤🙏😢🚀✨💡✅🌍☀🐶🍕🎵"
ACRONYMS = sorted(SPELLED - {"OK"})
WORDS = "NATO NASA UNESCO UNICEF OPEC LASER RADAR AIDS".split()
RULERS = "Henry Louis Charles Edward George William Philip Frederick Peter Leo Pius Paul".split()
ROMAN = "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX".split()


def spell(text):
    """digits and letters one by one"""
    return " ".join(ONES[int(c)] if c.isdigit() else c.upper() for c in text)


def grouped(text, sizes):
    """parts of these sizes, the last one again and again"""
    parts, sizes = [], list(sizes)
    while text:
        n = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        parts.append(text[:n])
        text = text[n:]
    return parts


def build(rng, plain, first):
    """plain(): a sentence of the corpus; first(): a first name"""
    R = rng.choice
    digits = lambda n: "".join(str(rng.randint(0, 9)) if rng.random() > .12 else "0" for _ in range(n))
    said = lambda parts: ", ".join(spell(p) for p in parts)

    def words():
        """a sentence of words alone, with its last mark"""
        while True:
            s = plain()
            if re.fullmatch(r"[A-Z][A-Za-z' ]+[.!?]", s) and 4 <= len(s.split()) <= 16:
                return s

    def marks():
        w = words().split()
        i = rng.randint(1, len(w) - 2)
        j = rng.randint(i + 1, min(len(w) - 1, i + 4))
        part = dict(a=" ".join(w[:i]), b=" ".join(w[i:j]), c=" ".join(w[j:]), e=R(EMOJI))
        kind = rng.random()
        if kind < .5:
            return R(SILENT).format(**part), "{a} {b} {c}".format(**part)
        if kind < .8:
            return R(PAUSES).format(**part), "{a}, {b}, {c}".format(**part)
        form = R(ONE_PAUSE)
        return form.format(**part), ("{a}... {b} {c}" if "…" in form or "..." in form else "{a}, {b} {c}").format(**part)

    def loud():
        s = words()
        if rng.random() < .5:
            return s.upper(), s
        w = s.split()
        at = R([k for k in range(len(w)) if len(w[k].strip(".!?")) > 3] or [0])
        return " ".join(x.upper() if k == at else x for k, x in enumerate(w)), s

    def short():
        """a run of letters, and how it is said"""
        kind = rng.random()
        if kind < .6:
            a = R(ACRONYMS)
            return a, " ".join(a)
        if kind < .7:
            a = R(WORDS)
            return a, a.lower()
        a = "".join(R("BCDFGHJKLMNPQRSTVWXZ") for _ in range(rng.randint(2, 5)))
        return (".".join(a) + ".", " ".join(a)) if kind < .8 else (a, " ".join(a))

    def acronyms():
        (w, s), (w2, s2) = short(), short()
        form = R(["The {} sent a letter to {p}.", "{p} works for the {}.", "We met at the {} in the morning.", "Ask the {} or the {2}.", "The {} and the {2} do not agree.",
                  "Is the {} open today?", "My {} is broken again.", "{p} has an {} and a {2}.", "They call it {}.", "Read the {} first, then the {2}."])
        p = first()
        fill = lambda one, two: form.replace("{2}", two).replace("{p}", p).replace("{}", one)
        return fill(w, w2), fill(s, s2)

    def code():
        n = R([6, 6, 6, 6, 8, 7, 5, 4, 3])
        d = digits(n)
        w, s = d, said(grouped(d, [3] if n in (6, 7) else [4]))
        if n < 6:
            form = R(["The code is {}.", "Enter code {} now.", "PIN {} is wrong.", "Your PIN is {}.", "The password {} is old.", "Type the code {} and wait."])
        else:
            form = R(["The code is {}.", "Enter {} now.", "Use {} to log in.", "{} is the code of {p}.", "Was it {} or not?", "The key {} opens it.", "Write down {}, please.", "It was {} last week.",
                      "The password of {p} is {}."])
        p = first()
        return form.format(w, p=p), form.format(s, p=p)

    def phone():
        a, b, c = str(rng.randint(2, 9)) + digits(2), digits(3), digits(4)
        kind = rng.random()
        if kind < .55:
            w = R([f"({a}) {b}-{c}", f"({a}) {b}-{c}", f"{a}.{b}.{c}", f"{a}-{b}-{c}", f"{a} {b} {c}", f"+1 {a} {b} {c}", f"+1-{a}-{b}-{c}"])
            s = ("plus one, " if w[0] == "+" else "") + said([a, b, c])
        else:
            country = R(["44", "49", "33", "61", "39", "81", "353", "46", "34", "31", "41", "91", "7", "86", "55", "48", "351", "47"])
            parts = [digits(rng.randint(1, 3))] + [digits(rng.randint(2, 4)) for _ in range(rng.randint(2, 4))]
            w = f"+{country} " + " ".join(parts)
            s = "plus " + said([country, *parts])
        form = R(["Call {} now.", "Ring {} today.", "Dial {} first.", "Text {} please.", "Try {} again.", "Reach me at {}.", "The number is {}.", "{p} has the number {}.", "Is {} your number?",
                  "Call {} and ask for {p}.", "Our office is on {}, every day."])
        p = first()
        return form.format(w, p=p), form.format(s, p=p)

    def account():
        kind = rng.random()
        if kind < .4:
            d = digits(16)
            w, s = R([" ", " ", "-"]).join(grouped(d, [4])), said(grouped(d, [4]))
            form = R(["My card is {}.", "The card of {p} is {}.", "Charge {} please.", "Type {} here.", "The number is {}.", "It says {} on the card.", "Pay with {}."])
        else:
            d = R(["DE", "FR", "GB", "NL", "ES", "IT", "BE", "AT", "CH", "PT", "IE", "SE", "NO", "PL", "FI", "DK"]) + digits(2)
            d += ("".join(R("ABCDEFGHIKLMNOPRSTUVW") for _ in range(4)) if d[:2] in ("GB", "NL", "IE") else "") + digits(rng.randint(11, 20))
            w, s = d if rng.random() < .25 else " ".join(grouped(d, [4])), said(grouped(d, [4]))
            form = R(["The account is {}.", "Pay to {}.", "My account is {}.", "Send it to {} today.", "{p} has the account {}.", "The money went to {}."])
        p = first()
        return form.format(w, p=p), form.format(s, p=p)

    def zeros():
        """Makes a line with a number that has runs of one digit, most often 0: these are heard wrong most."""
        d = "".join(R("0000123456789") * rng.randint(1, 4) for _ in range(rng.randint(2, 5)))[:16]
        w, s = " ".join(grouped(d, [4])), said(grouped(d, [4]))
        return f"The number is {w}.", f"The number is {s}."

    def count():
        n = rng.randint(10000, 99999)
        form = R(["We counted {} birds.", "It has {} pages.", "About {} people came.", "They sold {} tickets.", "{p} walked {} steps.", "It needs {} votes."])
        p = first()
        return form.format(n, p=p), form.format(cardinal(n), p=p)

    def date():
        m, d, y = rng.randint(1, 12), rng.randint(1, 28), rng.randint(1900, 2035)
        w = f"{m:02d}/{d:02d}/{y}" if rng.random() < .6 else f"{m}/{d}/{y}"
        form = R(["We met on {}.", "It ends on {} at noon.", "{p} was born on {}.", "Pay before {}.", "They opened on {}."])
        p = first()
        return form.format(w, p=p), form.format(f"{MONTHS[m - 1]} {ordinal(d)}, {year(y)}", p=p)

    def roman():
        k = rng.randint(1, 20)
        kind = rng.random()
        if kind < .4:
            ruler, rest = R(RULERS), R(["had six wives.", "died in spring.", "built this house.", "never married.", "was a kind king."])
            k = max(2, k)
            return f"{ruler} {ROMAN[k - 1]} {rest}", f"{ruler} the {ordinal(k)} {rest}"
        what, rest = R(["Chapter", "Part", "Volume", "Act", "Section"]), R(["is short.", "begins here.", "was lost.", "is about love."])
        return f"{what} {ROMAN[k - 1]} {rest}", f"{what} {cardinal(k)} {rest}"

    return [marks] * 8 + [loud] * 3 + [acronyms] * 2 + [code] * 2 + [phone] * 3 + [account] * 4 + [zeros, count, date, roman]
