"""Word errors by pocketsphinx (en-us); Debian packages pocketsphinx, pocketsphinx-en-us, sox."""
import concurrent.futures as cf
import os
import re
import subprocess
import tempfile


def asr(path):
    with tempfile.TemporaryDirectory() as t:
        w = os.path.join(t, "a.wav")
        subprocess.run(["sox", path, "-r", "16000", "-c", "1", "-b", "16", w, "pad", "0.2", "0.2"], check=True, stderr=subprocess.DEVNULL)
        r = subprocess.run(["pocketsphinx_continuous", "-infile", w, "-logfn", "/dev/null"], capture_output=True, text=True).stdout
    return " ".join(r.split())


def words(s):
    return re.sub(r"[^a-z' ]", " ", s.lower().replace("-", " ")).split()


def distance(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        p, d[0] = d[0], i
        for j, y in enumerate(b, 1):
            p, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, p + (x != y))
    return d[-1]


def word_errors(lines, wavs):
    """-> [(errors, words, what was heard)] of recordings of `lines`"""
    with cf.ThreadPoolExecutor(os.cpu_count()) as ex:
        heard = list(ex.map(asr, wavs))
    return [(distance(words(t), words(h)), len(words(t)), h) for t, h in zip(lines, heard)]
