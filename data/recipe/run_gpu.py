#!/usr/bin/env python3
"""The GPU part of the recipe on one machine of one or several GPUs: teacher, then decoder beside talker, and export.

usage: run_gpu.py INPUTS WORK --seconds T [--teacher 110] [--silent 260] [--front 270] [--talker_until T]

INPUTS holds corpus/, tok/, kokoro.npz, styles.npz, tables.npz. WORK gets speech/, codes/, decoder/, talker/, model/, logs/. WORK/status says where the run is.
First all GPUs speak; then the decoder's GPU begins to train it, while the talker's GPU makes codes of the rest of the corpus without speaking
it (until --silent), then trains the talker. Every stage writes its state as it goes; one that dies is started again, then without the kernels of
fused.py, then without a CUDA graph. WORK/out holds what a later run or a listener needs, renewed every half minute.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("inputs")
ap.add_argument("work")
ap.add_argument("--seconds", type=float, required=True, help="of the whole run")
ap.add_argument("--teacher", type=float, default=110, help="seconds in which all GPUs speak")
ap.add_argument("--silent", type=float, default=260, help="when the talker begins at the latest, in seconds from the start")
ap.add_argument("--front", type=float, default=270, help="when the decoder's part below 50 Hz stops training alone, in seconds from the start")
ap.add_argument("--talker_until", type=float, help="when the talker ends, in seconds from the start")
ap.add_argument("--early", type=float, default=25, help="the decoder starts so many seconds before the teacher ends, to record its step")
ap.add_argument("--decoder_gpu", type=int)
ap.add_argument("--talker_gpu", type=int, default=0)
ap.add_argument("--gpus", type=int)
ap.add_argument("--teacher_args", default="")
ap.add_argument("--decoder_args", default="")
ap.add_argument("--talker_args", default="--compile")
a = ap.parse_args()
T0 = time.time()
END = T0 + a.seconds
G = a.gpus or max(1, len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()) if os.path.exists("/dev/nvidiactl") else 1)
DECODER = a.decoder_gpu if a.decoder_gpu is not None else G - 1
W = os.path.abspath(a.work)
I = os.path.abspath(a.inputs)
for folder in ("logs", "speech", "codes", "decoder", "talker", "out"):
    os.makedirs(f"{W}/{folder}", exist_ok=True)
now = lambda: time.time() - T0
have = lambda path: os.path.exists(f"{W}/{path}")


def say(*x):
    line = f"[run {now():6.1f}s] " + " ".join(map(str, x))
    print(line, flush=True)
    with open(f"{W}/status", "a") as f:
        f.write(line + "\n")


class Stage:
    def __init__(self, name, gpu, command, tries=({}, {})):
        """tries: environment of each start; "extra" is added to the command"""
        self.name, self.gpu, self.command, self.tries, self.begun = name, gpu, command, list(tries), 0
        self.go()

    def go(self):
        more = dict(self.tries[self.begun])
        self.begun += 1
        say(f"{self.name} starts on GPU {self.gpu}", more or "")
        command = self.command + more.pop("extra", "")
        env = dict(os.environ, CUDA_VISIBLE_DEVICES=str(self.gpu), OMP_NUM_THREADS="4", PYTHONUNBUFFERED="1", **more)
        self.job = subprocess.Popen([sys.executable] + command.split(), cwd=HERE, env=env, stdout=open(f"{W}/logs/{self.name}.log", "a"), stderr=subprocess.STDOUT)

    def running(self):
        """starts a dead stage again as long as there are tries"""
        code = self.job.poll()
        if code in (None, 0):
            return code is None
        if self.begun >= len(self.tries):
            if self.begun < 99:
                say(f"{self.name} failed: {code}")
            self.begun = 99
            return False
        say(f"{self.name} failed: {code}")
        self.go()
        return True

    def end(self):
        if self.job.poll() is None:
            self.job.kill()


def shards(folder):
    return [f for f in os.listdir(f"{W}/{folder}") if f.endswith(".npz") and ".tmp" not in f]


def stop_teacher(gpu):
    if not have(f"stop.{gpu}"):
        open(f"{W}/stop.{gpu}", "w").close()
        say(f"teacher told to end on GPU {gpu}: {len(shards('speech'))} shards of speech, {len(shards('codes'))} of codes")


def ship():
    """files for a later run or a listener -> out/"""
    for source, name in (("decoder/decoder.pt", "decoder.pt"), ("decoder/resume.pt", "resume.pt"), ("talker/best.half", "talker.pt"), ("status", "status")):
        if have(source) and (not have(f"out/{name}") or os.path.getmtime(f"{W}/out/{name}") < os.path.getmtime(f"{W}/{source}")):
            shutil.copy(f"{W}/{source}", f"{W}/out/{name}.tmp")
            os.replace(f"{W}/out/{name}.tmp", f"{W}/out/{name}")
    with open(f"{W}/out/logs", "w") as out:
        for f in sorted(os.listdir(f"{W}/logs")):
            out.write(f"==== {f}\n{open(f'{W}/logs/{f}', errors='replace').read()[-60000:]}\n")


say(f"{G} GPUs: decoder on {DECODER}, talker on {a.talker_gpu}")
speaking = ",".join(str(g) for g in range(G))
teacher = f"teacher.py {I}/corpus {I}/kokoro.npz {I}/styles.npz {I}/tables.npz {W} {a.teacher_args} --gpus "
stages = {"teacher": Stage("teacher", speaking, teacher + speaking, ({},)),
          "tokens": Stage("tokens", "", f"tokenize_text.py {I}/corpus {I}/tok {W}/tokens.npz --processes {min(8, os.cpu_count())}")}
shipped = 0.0
while now() < a.seconds + 20:
    if now() > a.teacher and "silent" not in stages:
        for g in range(G):
            stop_teacher(g)
    if now() > a.teacher + 40 and "silent" not in stages:
        stages["teacher"].end()
    if "decoder" not in stages and now() > a.teacher - a.early:
        command = f"train_decoder.py {W} {W}/decoder --front {T0 + a.front} --until {END} {a.decoder_args}" + (f" --start {I}/resume.pt" if os.path.exists(f"{I}/resume.pt") else "")
        stages["decoder"] = Stage("decoder", DECODER, command, ({}, {}, {"FUSED": "0"}, {"FUSED": "0", "extra": " --eager"}))
    live = {n: s.running() for n, s in stages.items()}
    if not live["teacher"] and "silent" not in stages:
        say(f"teacher ended: {sum(os.path.getsize(f'{W}/speech/{f}') for f in shards('speech')) / 48000 / 3600:.1f} h")
        for g in range(G):
            if have(f"stop.{g}"):
                os.remove(f"{W}/stop.{g}")
        stages["silent"] = Stage("silent", a.talker_gpu, f"{teacher}{a.talker_gpu} --silent")
        begin = f" --start {I}/talker.pt" if os.path.exists(f"{I}/talker.pt") else ""
        until = T0 + (a.talker_until or a.seconds)
        stages["talker"] = Stage("talker", a.talker_gpu, f"train_talker.py {I}/corpus {I}/tok {W}/tokens.npz {W}/codes {W}/talker --until {until}{begin} {a.talker_args}")
        live["silent"] = live["talker"] = True
    if "silent" in stages and not have("codes/all.done"):
        if now() > a.silent:
            stop_teacher(a.talker_gpu)
        if not live["silent"] and not live["tokens"] or now() > a.silent + 20:
            stages["silent"].end()
            open(f"{W}/codes/all.done", "w").close()
            say(f"codes: {len(shards('codes'))} shards")
    if time.time() - shipped > 30:
        shipped = time.time()
        ship()
    if "talker" in stages and not live["talker"] and not live["decoder"]:
        break
    time.sleep(0.5)
for s in stages.values():
    s.end()
say("trained")
talker = next((f"{W}/talker/{n}" for n in ("best.half", "talker.pt") if have(f"talker/{n}")), None)
if talker and have("decoder/decoder.pt"):
    done = subprocess.run([sys.executable, "export.py", talker, f"{W}/decoder/decoder.pt", f"{I}/tok", f"{W}/model"], cwd=HERE)
    say("exported" if done.returncode == 0 else "not exported", talker)
ship()
open(f"{W}/run.done", "w").close()
