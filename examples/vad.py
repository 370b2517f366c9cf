"""When somebody speaks: Silero VAD over a stream of sound, its state kept where the model runs.

Needs the model, which the package ``silero-vad`` has (``pip install --no-deps silero-vad``; what it
asks for beside it is not needed), or the file ``silero_vad_16k_sequence.onnx``::

    python examples/vad.py sound.wav
    python examples/vad.py            # sound that is made up: silence, vowels, silence
"""

from __future__ import annotations

import argparse
import wave
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import fastgraph as fg

__all__ = ["CHUNK", "CONTEXT", "RATE", "Detector", "frames", "made_up", "model_file", "segments"]

Array = np.ndarray[Any, np.dtype[Any]]

RATE = 16000
CHUNK, CONTEXT = 512, 64
"""Samples of a step, and those before them that it is given once more."""
STATE = (1, 1, 128)

# Speech begins above the first probability and ends below the second one.
BEGIN, END = 0.5, 0.35


def model_file(name: str = "silero_vad_16k_sequence.onnx") -> Path:
    """A file of the package, which is found without being imported: that would need torch."""
    found = find_spec("silero_vad")
    if found is None or found.origin is None:
        raise FileNotFoundError(
            "the model is not there: pip install --no-deps silero-vad, or give its file"
        )
    return Path(found.origin).parent / "data" / name


def frames(sound: Array) -> Iterator[Array]:
    """The input of each step: the last samples of the step before, then the new ones."""
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound.astype(np.float32)])
    for start in range(0, len(sound) - CHUNK + 1, CHUNK):
        yield padded[None, start : start + CONTEXT + CHUNK]


class Detector:
    """The model on a device. Each step's state goes into the next one, and never leaves it."""

    def __init__(self, file: Path, device: str = "cpu", threads: int | None = None) -> None:
        self.model = fg.load(file, device=device, threads=threads, dims={"sequence_length": 1})
        self.reset()
        self.model.set_gpu_handle_feed("h", "hn")
        self.model.set_gpu_handle_feed("c", "cn")

    def reset(self) -> None:
        """Begin anew: what was heard before is forgotten."""
        self.model.bind_handle("h", np.zeros(STATE, np.float32))
        self.model.bind_handle("c", np.zeros(STATE, np.float32))

    def step(self, frame: Array) -> float:
        """How likely it is that somebody speaks in these samples."""
        return float(self.model.run({"input": frame})[0][0])

    def listen(self, sound: Array) -> Array:
        """How likely it is in each step of a whole sound."""
        return np.array([self.step(frame) for frame in frames(sound)])


def segments(likely: Array) -> list[tuple[float, float]]:
    """From when to when somebody speaks, in seconds."""
    found, start = [], None
    for i, one in enumerate(likely):
        if start is None and one >= BEGIN:
            start = i
        elif start is not None and one < END:
            found.append((start * CHUNK / RATE, i * CHUNK / RATE))
            start = None
    if start is not None:
        found.append((start * CHUNK / RATE, len(likely) * CHUNK / RATE))
    return found


FORMANTS = (
    (730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410),
)  # fmt: skip
"""Where vowels resonate, in Hz."""
WIDTHS = (80, 100, 140)


def made_up(seconds: float, seed: int = 0) -> Array:
    """Syllables of a voice that nobody has: pulses through resonances, noise before each vowel."""
    random = np.random.default_rng(seed)
    parts, left = [], int(seconds * RATE)
    while left > 0:
        noise = random.normal(size=int(RATE * random.uniform(0.02, 0.07))) * 0.03
        found = np.concatenate([noise, vowel(random)])[:left]
        parts.append(found)
        left -= len(found)
    return np.concatenate(parts).astype(np.float32)


def vowel(random: np.random.Generator) -> Array:
    """One vowel of a random length, pitch and colour."""
    time = np.arange(int(RATE * random.uniform(0.12, 0.22))) / RATE
    sway = 1 + 0.08 * np.sin(2 * np.pi * random.uniform(2, 5) * time)
    pitch = random.uniform(100, 140) * (sway - 0.1 * time / time[-1])
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0)
    sound = np.convolve(pulses + random.normal(size=len(time)) * 0.01, np.hanning(18), "same")
    sound = np.diff(sound, prepend=0.0)
    # Each resonance answers a pulse with a decaying oscillation.
    at = np.arange(RATE // 20) / RATE
    for frequency, width in zip(FORMANTS[random.integers(len(FORMANTS))], WIDTHS, strict=True):
        answer = np.exp(-np.pi * width * at) * np.sin(2 * np.pi * frequency * at)
        sound = np.convolve(sound, answer)[: len(time)]
        sound /= np.abs(sound).max()
    edge = np.minimum(1.0, np.minimum(time, time[::-1]) / 0.03)
    return sound * edge * random.uniform(0.3, 0.6)


def read_wave(path: Path) -> Array:
    """The samples of a file of one channel, 16 bits and 16 kHz."""
    with wave.open(str(path)) as file:
        shape = file.getnchannels(), file.getsampwidth(), file.getframerate()
        if shape != (1, 2, RATE):
            raise SystemExit(
                f"{path} has {shape[0]} channels of {8 * shape[1]} bits at {shape[2]} Hz; one of "
                f"16 bits at {RATE} Hz is needed: ffmpeg -i {path} -ac 1 -ar {RATE} mono.wav"
            )
        data = file.readframes(file.getnframes())
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768


def main(arguments: Sequence[str] | None = None) -> None:
    """Print when somebody speaks."""
    parser = argparse.ArgumentParser(description="From when to when somebody speaks, in seconds.")
    parser.add_argument("sound", nargs="?", type=Path, help="a .wav file of 16 kHz")
    parser.add_argument("--model", type=Path, help="silero_vad_16k_sequence.onnx")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args(arguments)
    if chosen.sound is None:
        still = np.zeros(RATE, np.float32)
        sound = np.concatenate([still, made_up(2.0), still])
    else:
        sound = read_wave(chosen.sound)
    detector = Detector(chosen.model or model_file(), chosen.device, chosen.threads)
    for start, end in segments(detector.listen(sound)):
        print(f"{start:8.2f}  {end:8.2f}")


if __name__ == "__main__":
    main()
