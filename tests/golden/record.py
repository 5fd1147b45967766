#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Records what the official package makes of random checkpoints: the data of the golden tests.

Reads nothing but this file and the generator program; see README.md for how to run it. For every
case it writes data/cases/<case>.json (checkpoint, request, ids, codes) and <case>.safetensors
(tensors in F32). Everything runs on the CPU in F32 with one thread, so a second run gives the same
codes and the same numbers up to the last bits.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import soundfile  # noqa: E402
import torch  # noqa: E402

# The package prints a greeting and warnings on standard output.
with contextlib.redirect_stdout(sys.stderr):
    from qwen_tts import Qwen3TTSModel, VoiceClonePromptItem  # noqa: E402
    from qwen_tts.core.models import modeling_qwen3_tts  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
# With a smaller margin, another order of summation could change a greedy choice.
MIN_MARGIN = 5e-6
# The same if the voice is computed, too.
MIN_CLONED_MARGIN = 5e-5
# Spectrogram frames kept of a case, evenly spread.
MEL_FRAMES = 24
PACKAGES = ("qwen-tts", "transformers", "tokenizers", "torch", "numpy", "safetensors")
NATIVE_MARK = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATCHED_MARK = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"

ENGLISH = "Hello world, and the speech goes on: 13 users?"
CHINESE = "你好，今天天气很好。"
GERMAN = "Grüße und schöne Wörter!"
SHORT = "Hi."
REFERENCE = "So it goes."
INSTRUCT = "Speak slowly and with a warm voice."

CASES = []


def checkpoint(preset, seed, **options):
    """Options of the generator program; `set` is a dictionary of sizes."""
    sizes = options.pop("set", {})
    words = ["--preset", preset, "--seed", str(seed)]
    for key, value in options.items():
        words += ["--" + key.replace("_", "-"), str(value)]
    for key, value in sizes.items():
        words += ["--set", f"{key}={value}"]
    return words


def case(name, about, source, mode, text=ENGLISH, *, pcm=False, frames=40, settings=None, **request):
    """Adds a case. `source`: options for the generator, or the folder of a checkpoint in this
    repository. `frames`: the most that may come."""
    CASES.append(dict(name=name, about=about, source=source, mode=mode, text=text, pcm=pcm, frames=frames,
                      settings=settings or {}, request=request))


CUSTOM = checkpoint("tiny-custom-0b6", 11)
case("custom-0b6", "preset speaker, named language, text in the prompt", CUSTOM, "custom_voice", pcm=True,
     speaker="ryan", language="English", non_streaming=True)
case("custom-0b6-streaming", "the same with text beside the frames", CUSTOM, "custom_voice", pcm=True,
     speaker="ryan", language="English", non_streaming=False)
case("custom-0b6-auto", "no language named", CUSTOM, "custom_voice", GERMAN, speaker="Vivian", non_streaming=True)
case("custom-0b6-auto-streaming", "no language named, one token of text", CUSTOM, "custom_voice", "好",
     speaker="vivian", language="auto", non_streaming=False)
case("custom-0b6-dialect-chinese", "a dialect speaker turns Chinese into the dialect", CUSTOM, "custom_voice", "你好！",
     speaker="eric", language="chinese", non_streaming=True)
case("custom-0b6-dialect-auto", "a dialect speaker turns auto into the dialect", CUSTOM, "custom_voice", CHINESE,
     speaker="dylan", language="auto", non_streaming=False)
case("custom-0b6-dialect-english", "a dialect speaker keeps another language", CUSTOM, "custom_voice", SHORT,
     speaker="eric", language="english", non_streaming=False)
case("custom-0b6-instruct", "the small model drops the instruction", CUSTOM, "custom_voice", SHORT,
     speaker="serena", language="english", instruct=INSTRUCT, non_streaming=True)
case("custom-0b6-two-ids", "two ids, the fewest there can be: one frame", CUSTOM, "custom_voice", SHORT, frames=1,
     speaker="serena", language="english", non_streaming=True)

CUSTOM_LARGE = checkpoint("tiny-custom-1b7", 12)
case("custom-1b7", "preset speaker, no instruction", CUSTOM_LARGE, "custom_voice",
     speaker="aiden", language="english", non_streaming=True)
case("custom-1b7-instruct", "preset speaker with an instruction", CUSTOM_LARGE, "custom_voice", pcm=True,
     speaker="aiden", language="german", instruct=INSTRUCT, non_streaming=True)
case("custom-1b7-instruct-streaming", "the same with text beside the frames", CUSTOM_LARGE, "custom_voice",
     speaker="aiden", language="german", instruct=INSTRUCT, non_streaming=False)
case("custom-1b7-dialect-instruct", "dialect speaker with an instruction", CUSTOM_LARGE, "custom_voice", CHINESE,
     speaker="dylan", language="chinese", instruct=CHINESE, non_streaming=False)

DESIGN = checkpoint("tiny-design-1b7", 13)
case("design-1b7", "a described voice, named language", DESIGN, "voice_design", pcm=True,
     language="french", instruct=INSTRUCT, non_streaming=True)
case("design-1b7-streaming", "a described voice, text beside the frames", DESIGN, "voice_design",
     language="french", instruct=INSTRUCT, non_streaming=False)
case("design-1b7-plain", "no description, no language", DESIGN, "voice_design", non_streaming=True)
case("design-1b7-plain-streaming", "no description, text beside the frames", DESIGN, "voice_design",
     language="english", instruct="", non_streaming=False)

# A designed voice, pinned by an utterance of it: its codes and text in front, as in cloning, and no speaker's row.
case("design-1b7-pinned", "a description and a pinned take, text in the prompt", DESIGN, "voice_design", pcm=True, frames=12,
     language="french", instruct=INSTRUCT, ref_text=REFERENCE, ref_frames=9, non_streaming=True)
case("design-1b7-pinned-streaming", "a description and a pinned take; more text than take", DESIGN, "voice_design",
     language="french", instruct=INSTRUCT, ref_text=REFERENCE, ref_frames=9, non_streaming=False)
case("design-1b7-pinned-long-take", "a description and a pinned take; less text than take", DESIGN, "voice_design", SHORT,
     language="auto", instruct=INSTRUCT, ref_text=REFERENCE, ref_frames=25, non_streaming=False)
case("design-1b7-pinned-plain", "a pinned take without a description", DESIGN, "voice_design", GERMAN,
     language="german", ref_text=REFERENCE, ref_frames=12, non_streaming=True)

BASE = checkpoint("tiny-base-0b6", 14)
case("base-0b6-x-vector", "a voice vector alone", BASE, "base", pcm=True, language="english", non_streaming=False)
case("base-0b6-x-vector-non-streaming", "a voice vector alone, text in the prompt", BASE, "base", GERMAN,
     language="auto", non_streaming=True)
case("base-0b6-icl-long-text", "reference codes; more text than reference", BASE, "base", pcm=True, language="english",
     ref_text=REFERENCE, ref_frames=9, non_streaming=False)
case("base-0b6-icl-long-reference", "reference codes; less text than reference", BASE, "base", SHORT, pcm=True,
     language="auto", ref_text=REFERENCE, ref_frames=25, non_streaming=False)
case("base-0b6-icl-equal", "reference codes; text and reference of one length", BASE, "base", SHORT,
     language="english", ref_text=REFERENCE, ref_frames=14, non_streaming=False)
case("base-0b6-icl-non-streaming", "reference codes, text in the prompt", BASE, "base",
     language="english", ref_text=REFERENCE, ref_frames=9, non_streaming=True)

BASE_LARGE = checkpoint("tiny-base-1b7", 31)
case("base-1b7-x-vector", "a voice vector alone", BASE_LARGE, "base", CHINESE, language="chinese", non_streaming=False)
case("base-1b7-icl-long-text", "reference codes; more text than reference", BASE_LARGE, "base", pcm=True,
     language="english", ref_text=REFERENCE, ref_frames=7, non_streaming=False)
case("base-1b7-icl-long-reference", "reference codes; less text than reference", BASE_LARGE, "base", SHORT,
     language="auto", ref_text=REFERENCE, ref_frames=30, non_streaming=False)
case("base-1b7-icl-non-streaming", "reference codes, text in the prompt", BASE_LARGE, "base", GERMAN,
     language="german", ref_text=REFERENCE, ref_frames=12, non_streaming=True)

case("eos", "the model ends the utterance", checkpoint("tiny-custom-0b6", 21, eos_logit=4), "custom_voice", frames=200,
     speaker="ryan", language="english", non_streaming=True)
case("eos-at-once", "an end wanted from the start is held back for two ids",
     checkpoint("tiny-custom-1b7", 22, eos_logit=40), "custom_voice",
     speaker="ryan", language="english", non_streaming=False)
case("f32", "weights stored in F32", checkpoint("tiny-custom-1b7", 23, dtype="F32"), "custom_voice", SHORT,
     speaker="ryan", language="english", non_streaming=False)
case("f16", "weights of talker and codec stored in F16",
     checkpoint("tiny-custom-0b6", 24, dtype="F16", codec_dtype="F16"), "custom_voice", SHORT, pcm=True,
     speaker="ryan", language="english", non_streaming=True)

case("released-vocabulary", "151,643 tokens, and text that the two patterns split differently",
     checkpoint("tiny-custom-0b6", 28, merges="tests/golden/vocabulary/merges.txt",
                set={"text_vocab_size": 151936, "text_hidden_size": 8}),
     "custom_voice", "My iPhone runs macOS; 今天天气很好。", speaker="ryan", language="english", non_streaming=False)

SAMPLED = dict(do_sample=True, subtalker_dosample=True)
case("sampled", "scores under the released sampling settings", CUSTOM, "custom_voice", score_steps=8,
     settings=SAMPLED | dict(top_k=50, temperature=0.9, subtalker_top_k=50, subtalker_temperature=0.9),
     speaker="ryan", language="english", non_streaming=True)
case("sampled-nucleus", "scores with a nucleus and a strong repetition penalty", CUSTOM_LARGE, "custom_voice",
     score_steps=8, settings=SAMPLED | dict(top_k=30, top_p=0.8, temperature=1.3, repetition_penalty=1.7,
                                             subtalker_top_k=20, subtalker_top_p=0.6, subtalker_temperature=0.7),
     speaker="ryan", language="english", non_streaming=True)
case("greedy-penalty", "greedy choice under a strong repetition penalty", CUSTOM, "custom_voice", SHORT, score_steps=8,
     settings=dict(repetition_penalty=1.6), speaker="ryan", language="english", non_streaming=True)

OTHER = checkpoint("tiny-base-1b7", 25, set={
    "codebook_size": 128, "num_code_groups": 8, "text_hidden_size": 40,
    "talker.head_dim": 32, "talker.num_attention_heads": 3, "talker.num_key_value_heads": 1, "talker.attention_bias": 1,
    "talker.rope_theta": 50000, "predictor.hidden_size": 80, "predictor.head_dim": 24,
    "predictor.num_key_value_heads": 4, "predictor.attention_bias": 1, "predictor.rope_theta": 20000,
    "codec.latent_dim": 40, "codec.decoder_dim": 64, "codec.sliding_window": 5, "codec.attention_bias": 1,
    "codec.num_key_value_heads": 1, "codec.head_dim": 12, "codec.rope_theta": 5000})
case("other-sizes", "8 code groups, attention biases, odd widths", OTHER, "base", pcm=True, language="english",
     ref_text=REFERENCE, ref_frames=8, non_streaming=False)
case("other-sizes-x-vector", "8 code groups, a voice vector alone", OTHER, "base", language="auto", non_streaming=True)
case("one-predicted-group", "2 code groups", checkpoint("tiny-custom-0b6", 26, set={"num_code_groups": 2}),
     "custom_voice", speaker="ryan", language="english", non_streaming=False)

case("codec-100", "100 frames, longer than every window", CUSTOM, "codec", frames=100, keep=(60, 100))
case("codec-320", "past 300 frames, where the package decodes in chunks",
     checkpoint("tiny-custom-0b6", 27, set={"codec.sliding_window": 72}), "codec", frames=320,
     keep=(296, 320), unchunked=True)

# Cloning from recordings (data/references, speech of the bundled voice): encoders of full size, all else
# tiny. `ref_audio` is the file; `ref_rate` plays it at another rate, `ref_repeat` repeats it, each time half
# as loud.
CLONING = checkpoint("tiny-base-0b6", 41, set={
    "codebook_size": 2048, "encoder.num_filters": 64, "encoder.hidden_size": 512, "encoder.intermediate_size": 2048,
    "encoder.num_hidden_layers": 8, "encoder.num_attention_heads": 8, "encoder.head_dim": 64,
    "encoder.codebook_dim": 256, "encoder.num_quantizers": 20, "speaker_encoder.channels": 512,
    "speaker_encoder.mfa_channels": 1536, "speaker_encoder.attention_channels": 128, "speaker_encoder.se_channels": 128})
case("clone-icl", "a recording of 6 s and its text", CLONING, "base", GERMAN, pcm=True, frames=12, language="german",
     ref_audio="speech-24000.wav", ref_text=REFERENCE, non_streaming=False)
case("clone-8000", "8 kHz, 3 s", CLONING, "base", ENGLISH, frames=12, language="english",
     ref_audio="speech-8000.wav", ref_text=REFERENCE, non_streaming=False)
case("clone-16000", "16 kHz, 9 s", CLONING, "base", SHORT, frames=12, language="auto",
     ref_audio="speech-24000.wav", ref_rate=16000, ref_text=REFERENCE, non_streaming=True)
case("clone-44100-x-vector", "44.1 kHz, 1.5 s, the vector alone", CLONING, "base", pcm=True, frames=12,
     language="english", ref_audio="speech-44100.wav", non_streaming=False)
case("clone-48000-stereo", "48 kHz, two channels, 1 s", CLONING, "base", CHINESE, frames=12, language="chinese",
     ref_audio="speech-48000-stereo.wav", ref_text=REFERENCE, non_streaming=True)
case("clone-30-s", "30 s, longer than the window that Mimi's config names", CLONING, "base", SHORT, frames=12,
     language="english", ref_audio="speech-24000.wav", ref_repeat=5, ref_text=REFERENCE, non_streaming=False)

VOICE = "data/voice"
case("voice", "the bundled voice", VOICE, "custom_voice", "Hello there, my friend.", pcm=True, frames=200,
     speaker="clara", language="english", non_streaming=True)
case("voice-streaming", "the bundled voice, text beside the frames", VOICE, "custom_voice", "Good morning.", pcm=True,
     frames=200, speaker="clara", language="english", non_streaming=False)


# --- recording ------------------------------------------------------------------------------------


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare_checkpoint(generator, source, folder):
    """Fills `folder`; returns how the document names the checkpoint, with the sums of its files."""
    if isinstance(source, str):
        shutil.copytree(os.path.join(REPOSITORY, source), folder, dirs_exist_ok=True)
    else:
        subprocess.run([generator, *source, folder], check=True, cwd=REPOSITORY)
    files = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if name.endswith((".json", ".txt", ".safetensors")):
                files[os.path.relpath(path, folder)] = sha256(path)
    feature_extractor = os.path.join(folder, "speech_tokenizer", "preprocessor_config.json")
    if not os.path.exists(feature_extractor):
        # The official loader wants it; only the codec's encoder uses it.
        with open(feature_extractor, "w", encoding="utf-8") as file:
            json.dump({"feature_extractor_type": "EncodecFeatureExtractor", "feature_size": 1,
                       "sampling_rate": 24000, "padding_value": 0.0}, file)
    key = "folder" if isinstance(source, str) else "options"
    return {key: source, "sha256": dict(sorted(files.items()))}


def pattern_in_use(model):
    """Name of the pre-tokenization regex of the loaded tokenizer. It is read, not assumed: the package replaces it
    under some conditions (see README.md)."""
    pre_tokenizer = str(json.loads(model.processor.tokenizer.backend_tokenizer.to_str())["pre_tokenizer"])
    marks = {"native": NATIVE_MARK, "patched": PATCHED_MARK}
    found = [name for name, mark in marks.items() if mark in re.sub(r"\\\\", r"\\", pre_tokenizer)]
    if len(found) != 1:
        raise RuntimeError(f"unknown pre-tokenizer: {pre_tokenizer}")
    return found[0]


def floats(tensor):
    return np.ascontiguousarray(tensor.detach().to(torch.float32).numpy())


def margin(scores):
    """Gap between the two largest scores, relative to the largest magnitude of the finite ones."""
    finite = scores[torch.isfinite(scores)]
    if len(finite) < 2:
        return 1.0
    best = torch.topk(finite, 2).values
    return float((best[0] - best[1]) / finite.abs().max())


class Recorder:
    """Records one call of the talker's generate(): its inputs and all scores."""

    def __init__(self, model):
        self.talker = model.model.talker
        self.prompt = None
        self.trailing = None
        self.pad = None
        self.result = None
        self.predictor = []

    def __enter__(self):
        talker_generate = self.talker.generate
        predictor_generate = self.talker.code_predictor.generate
        scores = dict(output_scores=True, output_logits=True)

        def watch_talker(**kwargs):
            self.prompt = kwargs["inputs_embeds"]
            self.trailing = kwargs["trailing_text_hidden"]
            self.pad = kwargs["tts_pad_embed"]
            self.result = talker_generate(**kwargs, **scores)
            return self.result

        def watch_predictor(**kwargs):
            result = predictor_generate(**kwargs, **scores)
            self.predictor.append(result)
            return result

        self.talker.generate = watch_talker
        self.talker.code_predictor.generate = watch_predictor
        return self

    def __exit__(self, *_):
        del self.talker.generate
        del self.talker.code_predictor.generate


class RowTable:
    """Finds the components of a row of the talker's input from its numbers alone: the only pair of a text row and a
    codec row, each possibly absent, whose sum it is."""

    def __init__(self, model, voice, token_ids):
        talker = model.model.talker
        config = model.model.config
        table = talker.get_text_embeddings().weight
        # Only the ids that the request could bring, if the vocabulary is large.
        names = range(len(table)) if len(table) < 10000 else sorted(
            {config.tts_pad_token_id, config.tts_bos_token_id, config.tts_eos_token_id}.union(*token_ids.values()))
        text = talker.text_projection(table[list(names)])
        codec = talker.get_input_embeddings().weight
        self.text_names = [None, *names]
        self.text = torch.cat([torch.zeros_like(text[:1]), text]).double()
        self.codec_names = [None, *range(len(codec))]
        parts = [torch.zeros_like(codec[:1]), codec]
        if voice is not None:
            if voice.ref_spk_embedding is not None:
                self.codec_names.append("x_vector")
                parts.append(voice.ref_spk_embedding[None])
            if voice.ref_code is not None:
                tables = [talker.get_input_embeddings(), *talker.code_predictor.get_input_embeddings()]
                frames = torch.stack([table(voice.ref_code[:, i]) for i, table in enumerate(tables)], dim=1)
                self.codec_names += [f"reference {i}" for i in range(len(frames))]
                parts.append(frames.sum(1))
        self.codec = torch.cat(parts).double()

    def find(self, rows):
        return [self._find(row.double()) for row in rows]

    def _find(self, row):
        distances = torch.cdist(row - self.text, self.codec, compute_mode="donot_use_mm_for_euclid_dist").flatten()
        best = torch.topk(distances, 2, largest=False)
        scale = float(row.norm())
        if best.values[0] > 1e-5 * scale or best.values[1] < 1e-3 * scale:
            raise RuntimeError(f"a row with no or several origins: distances {best.values.tolist()}")
        index = int(best.indices[0])
        return [self.text_names[index // len(self.codec)], self.codec_names[index % len(self.codec)]]


def random_tensors(name, seed_text):
    """A generator of random numbers that depends on the case's name only."""
    digest = hashlib.sha256(f"{name}/{seed_text}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))


def clone_item(spec, request):
    """The voice of a Base case: random vector and codes in place of a reference recording."""
    config = spec["config"]
    talker = config["talker_config"]
    x_vector = torch.randn(talker["hidden_size"], generator=random_tensors(spec["name"], "x_vector"))
    ref_frames = request.get("ref_frames", 0)
    ref_code = None
    if ref_frames:
        ref_code = torch.randint(0, talker["code_predictor_config"]["vocab_size"],
                                 (ref_frames, talker["num_code_groups"]),
                                 generator=random_tensors(spec["name"], "ref_code"))
    return VoiceClonePromptItem(ref_code=ref_code, ref_spk_embedding=x_vector, x_vector_only_mode=ref_code is None,
                                icl_mode=ref_code is not None, ref_text=request.get("ref_text"))


class WithoutSpeakerRow(list):
    """`icl_mode` of an utterance whose prompt has reference codes and no speaker's row. The model's generate() asks twice
    for it: whether there is such a row, and whether there are codes."""

    def __init__(self):
        super().__init__([True])
        self.asked = 0

    def __getitem__(self, index):
        self.asked += 1
        return self.asked > 1


def speak_pinned(model, spec, request, settings):
    """As generate_voice_clone(), which refuses a VoiceDesign checkpoint: with its description in front, and without an
    x-vector. Prompt and codes are made by the model's own generate()."""
    reference = spec["voice"].ref_code
    icl_mode = WithoutSpeakerRow()
    tokenize = lambda text: model._tokenize_texts([text])[0]  # noqa: E731
    codes, _ = model.model.generate(
        input_ids=[tokenize(model._build_assistant_text(spec["text"]))],
        instruct_ids=[tokenize(model._build_instruct_text(request["instruct"])) if request.get("instruct") else None],
        ref_ids=[tokenize(model._build_ref_text(request["ref_text"]))],
        voice_clone_prompt=dict(ref_code=[reference], x_vector_only_mode=[False], icl_mode=icl_mode,
                                ref_spk_embedding=[torch.zeros(spec["config"]["talker_config"]["hidden_size"])]),
        languages=[request.get("language", "Auto")], non_streaming_mode=request["non_streaming"],
        **model._merge_generate_kwargs(**settings))
    if icl_mode.asked != 2:
        raise RuntimeError(f"generate() asked {icl_mode.asked} times for icl_mode")
    wavs, _ = model.model.speech_tokenizer.decode([{"audio_codes": torch.cat([reference, codes[0]])}])
    return wavs[0][int(len(reference) / (len(reference) + len(codes[0])) * len(wavs[0])):]


def recording(request):
    """The reference of a cloning case, as the package takes it: a file, or samples and their rate."""
    path = os.path.join(HERE, "data", "references", request["ref_audio"])
    if "ref_rate" not in request and "ref_repeat" not in request:
        return path
    samples, rate = soundfile.read(path, dtype="float32")
    parts = [samples * np.float32(0.5) ** i for i in range(request.get("ref_repeat", 1))]
    return np.concatenate(parts), request.get("ref_rate", rate)


def cloned_item(model, request):
    """The package's results for a recording: the voice, and the spectrogram on the way to it."""
    mels = []
    original = modeling_qwen3_tts.mel_spectrogram

    def watch(*args, **kwargs):
        mels.append(original(*args, **kwargs))
        return mels[-1]

    modeling_qwen3_tts.mel_spectrogram = watch
    try:
        item, = model.create_voice_clone_prompt(ref_audio=recording(request), ref_text=request.get("ref_text"),
                                                x_vector_only_mode="ref_text" not in request)
    finally:
        modeling_qwen3_tts.mel_spectrogram = original
    return item, mels[0][0].T


def token_ids(model, spec, request):
    """Ids of the strings as the package writes and tokenizes them."""
    ids = {"target": model._build_assistant_text(spec["text"])}
    if request.get("instruct"):
        ids["instruct"] = model._build_instruct_text(request["instruct"])
    if request.get("ref_text"):
        ids["reference"] = model._build_ref_text(request["ref_text"])
    return {key: model._tokenize_texts([text])[0][0].tolist() for key, text in ids.items()}


def speak(model, spec, request, settings):
    """Calls the package's own entry point for the case's mode; returns the samples."""
    if spec["mode"] == "voice_design" and spec["voice"] is not None:
        return speak_pinned(model, spec, request, settings)
    common = dict(text=spec["text"], non_streaming_mode=request["non_streaming"], **settings)
    if request.get("language") is not None:
        common["language"] = request["language"]
    if spec["mode"] == "custom_voice":
        wavs, _ = model.generate_custom_voice(speaker=request["speaker"], instruct=request.get("instruct"), **common)
    elif spec["mode"] == "voice_design":
        wavs, _ = model.generate_voice_design(instruct=request.get("instruct", ""), **common)
    else:
        wavs, _ = model.generate_voice_clone(voice_clone_prompt=[spec["voice"]], **common)
    return wavs[0]


def record_speech(model, spec):
    request = dict(spec["request"])
    settings = dict(do_sample=False, subtalker_dosample=False, max_new_tokens=spec["frames"] + 1) | spec["settings"]
    score_steps = request.pop("score_steps", 4)
    tensors = {}
    spec["voice"] = None
    if spec["mode"] == "base":
        if "ref_audio" in request:
            spec["voice"], mels = cloned_item(model, request)
            kept = np.unique(np.linspace(0, len(mels) - 1, MEL_FRAMES).astype(int))
            tensors["mel"] = floats(mels[kept])
            spec["mel_frames"] = [len(mels), *kept.tolist()]
        else:
            spec["voice"] = clone_item(spec, request)
        tensors["x_vector"] = floats(spec["voice"].ref_spk_embedding)
    elif spec["mode"] == "voice_design" and "ref_frames" in request:
        spec["voice"] = clone_item(spec, request)
        spec["voice"].ref_spk_embedding = None

    torch.manual_seed(0)
    with Recorder(model) as recorder:
        wav = speak(model, spec, request, settings)

    config = model.model.config.talker_config
    ids = recorder.result.sequences[0].tolist()
    codes = [[ids[i], *frame.sequences[0].tolist()] for i, frame in enumerate(recorder.predictor)]
    if len(codes) != len(ids) - 1:
        raise RuntimeError(f"{len(ids)} ids, {len(codes)} frames")
    ended = ids[-1] == config.codec_eos_token_id
    if len(codes) != spec["frames"] and not ended:
        raise RuntimeError(f"{len(codes)} frames, no end")

    if "ref_audio" not in request:
        tensors["prompt"] = floats(recorder.prompt[0])
        tensors["trailing"] = floats(recorder.trailing[0])
        tensors["pad"] = floats(recorder.pad[0, 0])
        steps = range(min(len(ids), score_steps))
        tensors["logits"] = floats(torch.stack([recorder.result.logits[i][0] for i in steps]))
        tensors["scores"] = floats(torch.stack([recorder.result.scores[i][0] for i in steps]))
        tensors["predictor_logits"] = floats(torch.stack([logits[0] for logits in recorder.predictor[0].logits]))
        tensors["predictor_scores"] = floats(torch.stack([scores[0] for scores in recorder.predictor[0].scores]))
    result = dict(
        request=dict(mode=spec["mode"], text=spec["text"], **request),
        settings=settings,
        token_ids=token_ids(model, spec, request),
        ids=ids,
        end="eos" if ended else "max_tokens",
        codes=codes,
    )
    if not settings["do_sample"]:
        result["margin"] = dict(
            talker=min(margin(scores[0]) for scores in recorder.result.scores),
            predictor=min(margin(scores[0]) for frame in recorder.predictor for scores in frame.scores),
        )
        if min(result["margin"].values()) < (MIN_CLONED_MARGIN if "ref_audio" in request else MIN_MARGIN):
            raise RuntimeError(f"{spec['name']}: a choice by {result['margin']}; take another text or seed")
    if "mel_frames" in spec:
        result["mel_frames"] = spec["mel_frames"]
    if isinstance(spec["source"], list) and "ref_audio" not in request:
        # A trained checkpoint may hold equal rows, which numbers cannot tell apart.
        table = RowTable(model, spec["voice"], result["token_ids"])
        result["rows"] = table.find(recorder.prompt[0])
        result["trailing_text"] = [text for text, _ in table.find(recorder.trailing[0])]
    if spec["voice"] is not None and spec["voice"].ref_code is not None:
        result["reference_codes"] = spec["voice"].ref_code.tolist()
    if spec["pcm"]:
        # The package cuts the reference's part off by a rounded fraction, now and then one sample
        # early (spec 3.7); what is kept is the frames' own part.
        samples = len(codes) * model.model.speech_tokenizer.model.decode_upsample_rate
        result["samples_before_cut"] = len(wav) - samples
        tensors["pcm"] = wav[len(wav) - samples:]
    return result, tensors


def record_codec(model, spec):
    """Decodes random codes alone. Stores the samples of the frames that the case names."""
    config = model.model.speech_tokenizer.model.config
    decoder = config.decoder_config
    codes = torch.randint(0, decoder.codebook_size, (spec["frames"], decoder.num_quantizers),
                          generator=random_tensors(spec["name"], "codes"))
    wavs, _ = model.model.speech_tokenizer.decode([{"audio_codes": codes}])
    rate = config.decode_upsample_rate
    if len(wavs[0]) != spec["frames"] * rate:
        raise RuntimeError(f"{len(wavs[0])} samples of {spec['frames']} frames")
    first, last = spec["request"].get("keep", (0, spec["frames"]))
    tensors = {"pcm": wavs[0][first * rate:last * rate]}
    if spec["request"].get("unchunked"):
        with torch.inference_mode():
            whole = model.model.speech_tokenizer.model.decoder(codes.T[None])[0, 0]
        tensors["pcm_unchunked"] = floats(whole[first * rate:last * rate])
    return dict(request=dict(mode="codec"), codes=codes.tolist(), kept_frames=[first, last]), tensors


def record(generator, folder, group, out):
    """Records all cases of one checkpoint: one generation, one load."""
    checkpoint_info = prepare_checkpoint(generator, group[0]["source"], folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with contextlib.redirect_stdout(sys.stderr):
        model = Qwen3TTSModel.from_pretrained(folder, dtype=torch.float32)
    pattern = pattern_in_use(model)
    for spec in group:
        spec["config"] = config
        with torch.inference_mode(), contextlib.redirect_stdout(sys.stderr):
            result, tensors = (record_codec if spec["mode"] == "codec" else record_speech)(model, spec)
        document = dict(
            case=spec["name"],
            about=spec["about"],
            versions=dict(python=platform.python_version(),
                          **{name: importlib.metadata.version(name) for name in PACKAGES}),
            checkpoint=checkpoint_info,
            pattern=pattern,
            **result,
        )
        path = os.path.join(out, spec["name"])
        with open(path + ".json", "w", encoding="utf-8") as file:
            file.write(compact_json(document))
        with open(path + ".safetensors", "wb") as file:
            file.write(safetensors.numpy.save(tensors))
        print(spec["name"], f"frames {len(result['codes'])}", result.get("end", ""), result.get("margin", ""))


def compact_json(document):
    """Indented, with each list of numbers on one line."""
    text = json.dumps(document, ensure_ascii=False, indent=1)
    text = re.sub(r"\[\s+([-\d][^\[\]{}\"]*?)\s+\]", lambda m: "[" + re.sub(r",\s+", ",", m.group(1)) + "]", text)
    return text + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", type=os.path.abspath, help="the built program qtts-random-checkpoint")
    parser.add_argument("--out", default=os.path.join(HERE, "data", "cases"))
    parser.add_argument("--only", help="regular expression: record only the cases whose names match")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    groups = {}
    for spec in CASES:
        if options.only is None or re.search(options.only, spec["name"]):
            groups.setdefault(str(spec["source"]), []).append(spec)
    if not groups:
        parser.error("no case matches")
    os.makedirs(options.out, exist_ok=True)
    for group in groups.values():
        folder = tempfile.mkdtemp(prefix="qtts-golden-")
        try:
            record(options.generator, folder, group, options.out)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
