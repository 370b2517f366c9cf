"""Silero VAD from `examples`: a recurrent model over a stream of sound, step by step."""

from __future__ import annotations

import wave

import numpy as np
import pytest

import fastgraph as fg
from examples import vad

try:
    MODEL = vad.model_file()
except FileNotFoundError:
    MODEL = None
needs_model = pytest.mark.skipif(
    MODEL is None, reason="pip install --no-deps silero-vad has the model"
)

# What a step goes on with: its inputs, and the outputs that hold them for the next one.
VARIANTS = {
    "silero_vad_16k_sequence.onnx": {"h": "hn", "c": "cn"},
    "silero_vad_openvino_16k.onnx": {"state": "stateN"},
    # Conditionals on shapes, which are known, and in the last one on the rate, which a run tells.
    "silero_vad_16k_op15.onnx": {"state": "stateN"},
    "silero_vad_half.onnx": {"state": "stateN"},
    "silero_vad_op18_ifless.onnx": {"state": "stateN"},
    # One model for each rate, whose sizes differ: the rate is told when it is read.
    "silero_vad.onnx": {"state": "stateN"},
}
RATED = ("silero_vad_16k_op15.onnx", "silero_vad_op18_ifless.onnx")


TOLD = {"sr": np.array(vad.RATE)}


def sound(seconds: float = 1.5) -> np.ndarray:
    """Silence with a little noise, a voice, silence."""
    still = np.random.default_rng(2).normal(size=vad.RATE // 2).astype("f4") * np.float32(1e-3)
    return np.concatenate([still, vad.made_up(seconds), still])


def model_of(name: str, device: str, **options) -> fg.CompiledGraph:
    """The variant for single steps of one stream."""
    shapes = {"input": (1, vad.CONTEXT + vad.CHUNK)}
    shapes |= {state: (2, 1, 128) if state == "state" else vad.STATE for state in VARIANTS[name]}
    if name in RATED:
        shapes["sr"] = ()
    told = TOLD if name == "silero_vad.onnx" else None
    return fg.load(vad.model_file(name), device=device, shapes=shapes, values=told, **options)


@needs_model
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", VARIANTS)
def test_each_step_equals_onnxruntime(name, threads):
    peer = pytest.importorskip("onnxruntime")
    quiet = peer.SessionOptions()
    quiet.log_severity_level = 3
    peer = peer.InferenceSession(str(vad.model_file(name)), quiet)
    model = model_of(name, "cpu", threads=threads)
    outputs = [info.name for info in model.outputs]
    given = {info.name: np.zeros(info.shape, info.dtype) for info in model.inputs}
    ours = given | (TOLD if name in RATED else {})
    theirs = {info.name: (given | TOLD)[info.name] for info in peer.get_inputs()}
    told = []
    for frame in vad.frames(sound()):
        ours["input"] = theirs["input"] = np.ascontiguousarray(frame)
        found = dict(zip(outputs, model.run(ours), strict=True))
        wanted = dict(zip(outputs, peer.run(outputs, theirs), strict=True))
        for one in outputs:
            np.testing.assert_allclose(found[one], wanted[one], rtol=0, atol=1e-4)
        for state, after in VARIANTS[name].items():
            ours[state], theirs[state] = found[after], wanted[after]
        told.append(float(found[outputs[0]].reshape(-1)[0]))
    assert max(told) > 0.9 and min(told[-5:]) < 0.2


@needs_model
def test_a_step_on_every_device(device):
    """A driver without a GPU computes too slowly for more."""
    frame = np.ascontiguousarray(list(vad.frames(vad.made_up(0.2)))[3])
    random = np.random.default_rng(3)
    state = {name: random.normal(size=vad.STATE).astype("f4") * 0.5 for name in "hc"}
    name = "silero_vad_16k_sequence.onnx"
    found = model_of(name, device).run({"input": frame, **state})
    wanted = model_of(name, "cpu").run({"input": frame, **state})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@needs_model
def test_the_voice_is_found():
    detector = vad.Detector(MODEL)
    heard = sound()
    likely = detector.listen(heard)
    ((start, end),) = vad.segments(likely)
    assert abs(start - 0.5) < 0.2 and abs(end - 2.0) < 0.3
    quiet = likely[: int(0.4 * vad.RATE / vad.CHUNK)]
    assert quiet.max() < 0.2
    # Its state is what the last step left: heard again, the same sound is another one.
    assert not np.array_equal(detector.listen(heard[: 5 * vad.CHUNK]), likely[:5])
    detector.reset()
    np.testing.assert_array_equal(detector.listen(heard), likely)


@needs_model
def test_the_state_of_a_handle_is_that_of_the_outputs(device):
    plain = model_of("silero_vad_16k_sequence.onnx", device)
    detector = vad.Detector(MODEL, device)
    state = {name: np.zeros(vad.STATE, "f4") for name in "hc"}
    for frame in list(vad.frames(sound(0.4)))[: 12 if device == "cpu" else 2]:
        likely, state["h"], state["c"] = plain.run({"input": frame, **state})
        assert detector.step(frame) == likely[0]
        for name, value in state.items():
            np.testing.assert_array_equal(detector.model.read_handle(name), value)


def test_frames_overlap_and_segments_close():
    ramp = np.arange(2 * vad.CHUNK + 7, dtype="f4")
    first, second = vad.frames(ramp)
    assert first.shape == (1, vad.CONTEXT + vad.CHUNK)
    assert not first[0, : vad.CONTEXT].any()
    np.testing.assert_array_equal(second[0], ramp[vad.CHUNK - vad.CONTEXT : 2 * vad.CHUNK])
    step = vad.CHUNK / vad.RATE
    assert vad.segments(np.array([0.1, 0.6, 0.4, 0.1, 0.9])) == [
        (step, 3 * step),
        (4 * step, 5 * step),
    ]


@needs_model
def test_from_a_shell(tmp_path, capsys):
    path = tmp_path / "voice.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(vad.RATE)
        file.writeframes((sound() * 32767).astype("<i2").tobytes())
    vad.main([str(path), "--threads", "1"])
    assert len(capsys.readouterr().out.splitlines()) == 1
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(vad.RATE)
        file.writeframes(b"\0" * 64)
    with pytest.raises(SystemExit, match="2 channels"):
        vad.main([str(path)])
