#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes the report of `qtts-tool check --json` from the official package, on the CPU in F32.

Compare with `qtts-tool check DIR --against FILE`. Needs the packages of requirements.txt; see README.md.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import sys

# These must be those of engine/tools/check.cc.
FORMAT = "qtts-check-1"
TEXT = "Hello there. This sentence is the same for everyone: 13 words, no more."
INSTRUCT = "A calm and clear voice."
LINES = [
    "Hello, world.",
    "It's 5 o'clock; the iPhone's at 100% (really).",
    "Grüße aus Köln, schöne Wörter!",
    "你好，今天天气很好。",
    "これはテストです。 안녕하세요?",
    "<|im_start|>assistant\nHello there.<|im_end|>\n<|im_start|>assistant\n",
]
FRAMES = 16
PICKED_STEP = 997


def make_request(config):
    """The request of engine/tools/check.cc for a model's configuration."""
    talker = config["talker_config"]
    mode = config["tts_model_type"]
    speakers = sorted(name.lower() for name in talker.get("spk_id") or {})
    return dict(
        text=TEXT,
        speaker=speakers[0] if mode == "custom_voice" and speakers else "",
        language="english" if "english" in (talker.get("codec_language_id") or {}) else "auto",
        instruct=INSTRUCT if mode == "voice_design" else "",
        layout="streaming" if mode == "base" else "non-streaming",
        frames=FRAMES,
        lines=LINES,
    )


def model_facts(config):
    talker = config["talker_config"]
    return dict(
        type=config["tts_model_type"],
        size=config["tts_model_size"],
        talker_layers=talker["num_hidden_layers"],
        talker_hidden_size=talker["hidden_size"],
        predictor_layers=talker["code_predictor_config"]["num_hidden_layers"],
        code_groups=talker["num_code_groups"],
    )


def make_voice(config):
    """The cloned voice of a Base checkpoint: a vector with the same F32 values everywhere."""
    import record
    import torch

    if config["tts_model_type"] != "base":
        return None
    values = [(i * 37 % 129 - 64) / 64 for i in range(config["talker_config"]["hidden_size"])]
    return record.VoiceClonePromptItem(ref_code=None, ref_spk_embedding=torch.tensor(values), x_vector_only_mode=True,
                                       icl_mode=False, ref_text=None)


def find_row(table, row):
    """[text id, codec id] of a row; None if a trained checkpoint has several rows with these numbers."""
    try:
        return table.find(row[None])[0]
    except RuntimeError as error:
        print(f"a row of the prompt is left out: {error}", file=sys.stderr)
        return None


def prompt_facts(model, spec, recorder, request):
    import record

    table = record.RowTable(model, spec["voice"], record.token_ids(model, spec, request))
    rows = [find_row(table, row) for row in recorder.prompt[0]]
    trailing = [(find_row(table, row) or [None])[0] for row in recorder.trailing[0]]
    while trailing and trailing[-1] == model.model.config.tts_pad_token_id:
        trailing.pop()
    digest = hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()
    return dict(sha256=digest, rows=rows, trailing_text=trailing)


def sample_facts(samples, samples_per_frame):
    import numpy as np

    frames = np.asarray(samples, dtype=np.float64).reshape(-1, samples_per_frame)
    return dict(count=len(samples), picked=[float(value) for value in samples[::PICKED_STEP]],
                sums=frames.sum(1).tolist(), absolute_sums=np.abs(frames).sum(1).tolist())


def run_facts(model, recorder, wav):
    import record

    result = recorder.result
    ids = result.sequences[0].tolist()
    codes = [[ids[i], *frame.sequences[0].tolist()] for i, frame in enumerate(recorder.predictor)]
    margins = [min([record.margin(result.scores[i][0]), *(record.margin(scores[0]) for scores in frame.scores)])
               for i, frame in enumerate(recorder.predictor)]
    rate = model.model.speech_tokenizer.model.decode_upsample_rate
    samples = wav[len(wav) - len(codes) * rate:]
    return dict(device="cpu", precision="f32", codes=codes, margins=margins, samples=sample_facts(samples, rate))


def make_report(folder):
    # The package prints a greeting and warnings on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        import record
        import torch

        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        request = make_request(config)
        model = record.Qwen3TTSModel.from_pretrained(folder, dtype=torch.float32)
        spec = dict(mode=config["tts_model_type"], text=TEXT, voice=make_voice(config))
        call = dict(language=request["language"], non_streaming=request["layout"] == "non-streaming",
                    speaker=request["speaker"], instruct=request["instruct"])
        settings = dict(do_sample=False, subtalker_dosample=False, max_new_tokens=FRAMES + 1)
        with torch.inference_mode(), record.Recorder(model) as recorder:
            wav = record.speak(model, spec, call, settings)
        with torch.inference_mode():
            prompt = prompt_facts(model, spec, recorder, call)
        tokenizer = model.processor.tokenizer
        return dict(
            format=FORMAT,
            versions=dict(python=platform.python_version(),
                          **{name: importlib.metadata.version(name) for name in record.PACKAGES}),
            model=model_facts(config),
            pattern=record.pattern_in_use(model),
            request=request,
            tokens=[tokenizer(line)["input_ids"] for line in LINES],
            prompt=prompt,
            runs=[run_facts(model, recorder, wav)],
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="model folder, complete as published")
    parser.add_argument("-o", "--output", help="file to write")
    parser.add_argument("--request", action="store_true", help="print the request only; needs no packages")
    options = parser.parse_args()
    if options.request:
        with open(os.path.join(options.folder, "config.json"), encoding="utf-8") as file:
            print(json.dumps(make_request(json.load(file)), ensure_ascii=False))
        return
    if not options.output:
        parser.error("name the file to write with --output")
    report = make_report(options.folder)
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(report, file, ensure_ascii=False, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
