"""Text to what is read aloud, and to the letters of the teacher's phoneme alphabet.

spoken(line) spells out numbers, prices, dates, units and abbreviations. Phonemes()(spoken line) gives the phonemes: a word that the American
or British lexicon of the Python package misaki holds is looked up there, the rest is read by espeak-ng.
"""
import ctypes
import importlib.util
import json
import os
import pathlib
import re

# ---------------------------------------------------------------- numbers to words
ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
        "sixteen seventeen eighteen nineteen").split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
SCALES = [(10 ** 12, "trillion"), (10 ** 9, "billion"), (10 ** 6, "million"), (1000, "thousand"), (100, "hundred")]
ODD_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
                "nine": "ninth", "twelve": "twelfth"}
MONTHS = ("January February March April May June July August September October November December").split()
CURRENCY = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "pence"), "¥": ("yen", "sen")}
UNITS = {"km": "kilometre", "kg": "kilogram", "cm": "centimetre", "mm": "millimetre", "m": "metre", "g": "gram",
         "mph": "mile per hour", "km/h": "kilometre per hour", "GHz": "gigahertz", "MHz": "megahertz", "kHz": "kilohertz",
         "Hz": "hertz", "GB": "gigabyte", "MB": "megabyte", "kB": "kilobyte", "ms": "millisecond", "s": "second",
         "h": "hour", "min": "minute", "ft": "foot", "lb": "pound", "l": "litre", "°C": "degree Celsius",
         "°F": "degree Fahrenheit", "kW": "kilowatt", "kWh": "kilowatt hour", "W": "watt", "V": "volt", "ml": "millilitre",
         "mg": "milligram", "TB": "terabyte", "KB": "kilobyte", "dB": "decibel", "fps": "frame per second", "mA": "milliamp",
         "yd": "yard", "mi": "mile", "oz": "ounce", "lbs": "pound", "km²": "square kilometre",
         "m²": "square metre", "Mbps": "megabit per second", "Mbit/s": "megabit per second", "rpm": "revolution per minute"}
SPELLED = set("API HTTP HTTPS URL XML HTML CSS SQL USB HDMI PDF TCP UDP IP DNS VPN SSH FTP TLS SSL AMD ARM LLM AI TTS ASR NLP AAC PCM SSD LED LCD "
              "FPS DSP FFT SDK IDE CLI PNG GPS SMS HLS RTP RTSP RTCP GPU CPU CUDA FBI USA UK EU UN BBC CNN ID ATM TV DVD CD FAQ CEO PC QR CSV UTF "
              "PCI XML SVG DJ MRI HIV DNA RNA BMW IBM HR IT OK NBA NFL CIA GDP VAT VIP SUV ETA RSVP ISBN JFK LAX NYC PH MIT UCLA BC AD KLM".split()) - {"CUDA"}
SAID = {"JSON": "jay son", "GUI": "gooey", "JPEG": "jay peg", "GStreamer": "G streamer", "WebRTC": "web R T C", "VoIP": "voyp", "NVMe": "N V M E",
        "PhD": "P H D", "pH": "P H", "iPhone": "eye phone", "YouTube": "you tube", "GitHub": "git hub", "GitLab": "git lab", "PyTorch": "pie torch",
        "NumPy": "num pie", "JavaScript": "java script", "TypeScript": "type script", "PulseAudio": "pulse audio", "PipeWire": "pipe wire",
        "OpenAI": "open A I", "MPEG": "em peg", "ONNX": "onyx", "GIF": "gif", "SIP": "sip", "FLAC": "flack", "ALSA": "alsa", "YAML": "yammel",
        "ASCII": "askey", "SRTP": "S R T P", "PostgreSQL": "postgres Q L", "MySQL": "my S Q L", "eBay": "ee bay", "Wi-Fi": "why fye", "WiFi": "why fye", "RAM": "ram", "ROM": "rom", "PIN": "pin", "CUDA": "cooda"}
FRACTIONS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth", 10: "tenth"}
NO_PLURAL = {"yen", "sen", "gigahertz", "megahertz", "kilohertz", "hertz"}
ABBREVIATIONS = {"Mr.": "Mister", "Mrs.": "Missus", "Ms.": "Miz", "Dr.": "Doctor", "Prof.": "Professor", "St.": "Saint",
                 "vs.": "versus", "etc.": "et cetera", "e.g.": "for example", "i.e.": "that is", "approx.": "approximately",
                 "No.": "number", "Jr.": "Junior", "Sr.": "Senior", "&": "and", "%": " percent", "@": " at ", "+": " plus ",
                 "=": " equals ", "#": "number ", "Ave.": "Avenue", "Rd.": "Road", "Mt.": "Mount", "Ltd.": "Limited", "Inc.": "Incorporated",
                 "Jan.": "January", "Feb.": "February", "Aug.": "August", "Sept.": "September", "Oct.": "October", "Nov.": "November", "Dec.": "December"}


NAMES = {"Tchaikovsky": "ʧIkˈɔfski", "Nguyen": "wˈɪn", "Siobhan": "ʃəvˈɔn", "Niamh": "nˈiv", "Saoirse": "sˈɜɹʃə", "Xavier": "zˈAviəɹ", "Joaquin": "wɑkˈin"}


def cardinal(n):
    if n < 0:
        return "minus " + cardinal(-n)
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")
    for size, name in SCALES:
        if n >= size:
            rest = n % size
            return cardinal(n // size) + " " + name + (" " + cardinal(rest) if rest else "")
    raise ValueError(n)


def ordinal(n):
    words = cardinal(n)
    head, sep, last = re.match(r"(.*?)([ -]?)([a-z]+)$", words).groups()
    if last in ODD_ORDINALS:
        last = ODD_ORDINALS[last]
    else:
        last = (last[:-1] + "ie" if last.endswith("y") else last) + "th"
    return head + sep + last


def year(n):
    high, low = divmod(n, 100)
    if not 1100 <= n <= 2099 or 2000 <= n <= 2009:
        return cardinal(n)
    if low == 0:
        return cardinal(high) + " hundred"
    return cardinal(high) + " " + ("oh " + ONES[low] if low < 10 else cardinal(low))


def digits(text):
    return " ".join("oh" if c == "0" and len(text) > 1 else ONES[int(c)] for c in text)


def number(text):
    text = text.replace(",", "")
    whole, _, fraction = text.partition(".")
    if len(whole) > 15 or (len(whole) > 1 and whole[0] == "0"):
        return digits(whole) + (" point " + digits(fraction) if fraction else "")
    return cardinal(int(whole or 0)) + (" point " + " ".join(ONES[int(c)] for c in fraction) if fraction else "")


def fraction(top, bottom, after_whole=False):
    if bottom not in FRACTIONS or not 0 < top < bottom:
        return f"{cardinal(top)} over {cardinal(bottom)}"
    name = FRACTIONS[bottom]
    if top == 1:
        return ("a " if after_whole or bottom in (2, 3, 4) else "one ") + name
    return cardinal(top) + " " + name + "s"


def mixed(code):
    """B14: B fourteen; H264: H two six four"""
    parts = re.findall(r"\d+|[A-Z]", code)
    return " ".join((cardinal(int(p)) if len(p) < 3 and p[0] != "0" else digits(p)) if p[0].isdigit() else p for p in parts)


def plural(word, amount):
    if amount == "1" or word in NO_PLURAL:
        return word
    head, sep, tail = word.partition(" ")
    if word in ("kilowatt hour",):
        return word + "s"
    return ({"foot": "feet", "inch": "inches"}.get(head) or head + "s") + sep + tail


def spoken(text):
    """Spells out what is not a plain word."""
    text = text.replace("’", "'").replace("‘", "'").replace("“", '"').replace("”", '"').replace("…", "...")
    text = re.sub(r"(?<=\d) ?– ?(?=\d)", " to ", text)
    text = re.sub(r" ?[—–] ?", ", ", text)
    text = re.sub(r"\b(?:Wi-Fi|[A-Za-z]*[A-Z][A-Za-z]*)\b", lambda m: SAID.get(m[0]) or (" ".join(m[0]) if m[0] in SPELLED else m[0]), text)
    for short, long in ABBREVIATIONS.items():
        text = text.replace(short, long) if not short[0].isalpha() else re.sub(r"\b" + re.escape(short), long, text)
    num = r"\d+(?:,\d{3})*(?:\.\d+)?"

    def money(m):
        unit, sub = CURRENCY[m[1]]
        whole, _, cents = m[2].replace(",", "").partition(".")
        if m[3]:
            return f"{number(m[2])} {m[3]} {unit}s"
        words = [] if whole in ("", "0") and int(cents or 0) else [f"{cardinal(int(whole or 0))} {plural(unit, whole)}"]
        if len(cents) == 2 and int(cents):
            words.append(cardinal(int(cents)) + " " + (sub if sub == "pence" else plural(sub, str(int(cents)))))
        return " and ".join(words)

    text = re.sub(rf"([$€£¥])({num})(?: (thousand|million|billion|trillion)\b)?", money, text)
    text = re.sub(r"\b(\d{1,2}):(\d{2})(?: ?([aApP])\.?[mM]\b\.?)?", lambda m: cardinal(int(m[1])) + (
        (" o'clock" if not m[3] else "") if m[2] == "00" else " oh " + ONES[int(m[2])] if m[2][0] == "0"
        else " " + cardinal(int(m[2]))) + (f" {m[3].upper()} M" if m[3] else ""), text)
    text = re.sub(r"\b(\d{1,2}) ?([aApP])\.?[mM]\b\.?", lambda m: f"{cardinal(int(m[1]))} {m[2].upper()} M", text)
    text = re.sub(r"\b(\d{4})-(\d{2})-(\d{2})\b", lambda m: f"{MONTHS[(int(m[2]) - 1) % 12]} {ordinal(int(m[3]))}, "
                  f"{year(int(m[1]))}", text)
    text = re.sub(r"\b(" + "|".join(MONTHS) + r") (\d{1,2})(?:st|nd|rd|th)?\b", lambda m: f"{m[1]} {ordinal(int(m[2]))}", text)
    text = re.sub(r"\b(\d{1,2}) (" + "|".join(MONTHS) + r")\b", lambda m: f"{ordinal(int(m[1]))} {m[2]}" if 0 < int(m[1]) < 32 else m[0], text)
    text = re.sub(r"\b(\d+)(?:st|nd|rd|th)\b", lambda m: ordinal(int(m[1])), text)
    text = re.sub(r"\b(\d{2,3}0)s\b", lambda m: re.sub("y$", "ies", year(int(m[1]))), text)
    text = re.sub(rf"(?<![\w.])({num}) ?(" + "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True)) + r")(?!\w)",
                  lambda m: f"{number(m[1])} {plural(UNITS[m[2]], m[1])}", text)
    text = re.sub(r"(?<![\w./])(\d+) (\d)/(\d{1,2})(?![\w/])", lambda m: f"{m[1]} and {fraction(int(m[2]), int(m[3]), True)}", text)
    text = re.sub(r"(?<![\w./])(\d{1,2})/(\d{1,2})(?![\w/]|\.\d)", lambda m: fraction(int(m[1]), int(m[2])), text)
    text = re.sub(r"\b(?=[A-Z]{0,3}\d)(?=\d*[A-Z])[A-Z\d]{2,9}\b", lambda m: mixed(m[0]), text)
    text = re.sub(r"\b\d{1,3}(?:-\d{3,4})+\b|\b\d{4}(?:-\d{4})+\b|\b\d(?:-\d+){2,}\b", lambda m: ", ".join(digits(p) for p in m[0].split("-")), text)
    text = re.sub(r"(?<![\d.-])(\d{1,3})-(\d{1,3})(?![\d.-])", r"\1 to \2", text)
    text = re.sub(r"\b\d+(?:\.\d+){2,}\b", lambda m: " point ".join(number(p) for p in m[0].split(".")), text)
    text = re.sub(r"(?<![\d,.])(1[1-9]\d\d|20\d\d)(?!\d|[,.]\d)", lambda m: year(int(m[1])), text)
    text = re.sub(rf"(?<![\w.])-({num})", lambda m: "minus " + number(m[1]), text)
    text = re.sub(num, lambda m: " " + number(m[0]) + " ", text)
    return re.sub(r"\s+([,.;:!?])", r"\1", re.sub(r"\s+", " ", text)).strip()


# ---------------------------------------------------------------- phonemes
def from_package(name, file):
    spec = importlib.util.find_spec(name)
    if not spec:
        raise SystemExit(f"the Python package {name.replace('_', '-')} is missing")
    return (pathlib.Path(spec.submodule_search_locations[0]) / file).read_bytes()


class Phonemes:
    """espeak-ng's IPA in the letters of Kokoro's vocabulary."""
    TO_KOKORO = [("ʔˌn̩", "tn"), ("ʔn̩", "tn"), ("a^ɪ", "I"), ("a^ʊ", "W"), ("e^ɪ", "A"), ("o^ʊ", "O"), ("ə^ʊ", "Q"), ("ɔ^ɪ", "Y"),
                 ("d^ʒ", "ʤ"), ("t^ʃ", "ʧ"), ("ə^l", "ᵊl"), ("n̩", "ᵊn"), ("l̩", "ᵊl"), ("m̩", "ᵊm"), ("̩", ""),
                 ("ɚ", "əɹ"), ("ɐ", "ə"), ("r", "ɹ"), ("x", "k"), ("ç", "k"), ("ɬ", "l"), ("̃", ""), ("ʲ", ""), ("g", "ɡ")]
    AMERICAN = [("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ː", ""), ("o", "ɔ"), ("e", "A"), ("ɾ", "T"), ("ʔ", "t")]
    BRITISH = [("e^ə", "ɛː"), ("iə", "ɪə"), ("e", "ɛ"), ("ɾ", "T"), ("ʔ", "t")]

    def __init__(self, british=False):
        self.lib = ctypes.CDLL("libespeak-ng.so.1")
        path = os.environ.get("ESPEAK_DATA_PATH")
        self.lexicons = [self.lexicon(a) for a in ("us", "gb")]
        if self.lib.espeak_Initialize(2, 0, path.encode() if path else None, 0) < 0:
            raise SystemExit("espeak-ng does not start")
        self.lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self.lib.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int]
        self.set(british)

    @staticmethod
    def lexicon(accent):
        """words whose reading does not depend on the sentence"""
        folder = pathlib.Path(importlib.util.find_spec("misaki").submodule_search_locations[0]) / "data"
        words = {}
        for file in (f"{accent}_silver.json", f"{accent}_gold.json"):
            for word, reading in json.load(open(folder / file, encoding="utf-8")).items():
                words[word] = reading if isinstance(reading, str) else None
        for word in [w for w in words if w.islower()]:
            words.setdefault(word.capitalize(), words[word])
        return words

    def known(self, word):
        """the lexicon's reading of a name or of a longer word; short ones change with their sentence, which espeak-ng sees"""
        words = self.lexicons[self.british]
        if word in NAMES:
            return NAMES[word]
        if len(word) == 1 and word.isupper():
            return words.get(word)
        if len(word) < 4 or not re.fullmatch(r"[^\W\d_]+(?:'s)?", word):
            return None
        stem, mark, _ = word.partition("'s")
        reading = words.get(stem) or (words.get(stem.lower()) if stem[0].isupper() else None)
        if reading and mark:
            reading += "s" if reading[-1] in "ptkfθ" else "ᵻz" if reading[-1] in "szʃʒʧʤ" else "z"
        return reading

    def set(self, british):
        self.british = british
        if self.lib.espeak_SetVoiceByName(b"en" if british else b"en-us"):
            raise SystemExit("espeak-ng lacks its English voice")

    def clause(self, text):
        pointer, out = ctypes.c_char_p(text.encode()), []
        while pointer.value:
            piece = self.lib.espeak_TextToPhonemes(ctypes.byref(pointer), 1, 0x82 | ord("^") << 8)
            out.append((piece or b"").decode())
        ipa = " ".join(out)
        for old, new in self.TO_KOKORO + (self.BRITISH if self.british else self.AMERICAN):
            ipa = ipa.replace(old, new)
        return re.sub(r"\s+", " ", re.sub(r"\([a-z-]+\)", "", ipa).replace("^", "").replace("_", "")).strip()

    def words(self, text):
        """one clause: the lexicon's readings in place of espeak-ng's, where both have the same number of words"""
        plain, read = text.replace("-", " ").split(), self.clause(text.replace("-", " ")).split(" ")
        if len(plain) != len(read):                     # espeak-ng joins words ("of the"): read each run between known words by itself
            out, run = [], []
            for word in plain + [None]:
                known = self.known(word) if word else None
                if word and not known:
                    run.append(word)
                    continue
                if run:
                    out.append(self.clause(" ".join(run)))
                run = []
                if known:
                    out.append(known)
            return " ".join(out)
        return " ".join(self.known(w) or r for w, r in zip(plain, read))

    def __call__(self, text):
        parts = re.split(r"([,.;:!?…]+(?=\s|$)|[\"“”()])", text)
        out = ""
        for words, mark in zip(parts[::2], parts[1::2] + [""]):
            words = words.strip()
            if words:
                out += ("" if not out or out[-1] in "(“" else " ") + self.words(words)
            out += mark[:1] if mark and mark not in '"“”()' else ""
        return out


