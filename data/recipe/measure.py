#!/usr/bin/env python3
"""Word error rate (pocketsphinx, en-us) and duration ratios of synthesised folders.

usage: measure.py TEXTFILE REFERENCE_FOLDER FOLDER...     (a trailing + prints every sentence)
Each folder holds NNN.wav per line and lengths.json as generate.py writes them.
"""
import concurrent.futures as cf, json, os, re, subprocess, sys, tempfile


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


def main():
    text, ref = sys.argv[1:3]
    lines = [l for l in open(text).read().split("\n") if l]
    base = json.load(open(f"{ref}/lengths.json"))["frames"]
    for folder in sys.argv[3:]:
        show, folder = folder.endswith("+"), folder.rstrip("+")
        result = word_errors(lines, [f"{folder}/{i:03d}.wav" for i in range(len(lines))])
        if show:
            for t, (e, n, h) in zip(lines, result):
                print(f"  {e}/{n} {t!r} -> {h!r}")
        j = json.load(open(f"{folder}/lengths.json"))
        r = sorted(a / b for a, b in zip(j["frames"], base))
        wer = sum(e for e, _, _ in result) / sum(n for _, n, _ in result)
        print(f"{folder} WER {wer:.3f} ended {sum(j['ended'])}/{len(lines)} "
              f"duration ratio min {r[0]:.2f} median {r[len(r) // 2]:.2f} max {r[-1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
