"""Processes with models on cuda that end, fork, or lose the device: an error or a quiet exit."""

from __future__ import annotations

import pytest

from tests.runtime.test_threads import in_process

pytestmark = pytest.mark.fake

START = """
import gc, os, signal, threading, time
import numpy as np
import fastgraph as fg
from tests import conftest
from tests.cuda_host import image
from fastgraph.device.cuda import batch

batch.compile_all = image.compile_all
fake = conftest.FAKE
g = fg.Graph("scaled")
g.output(g.input("x", (3,)) * g.param("w", (3,)), "y")
model = fg.Session("cuda").compile(g)
ones = np.ones(3, "f4")
model.set_param("w", 2 * ones)
step = model.bind({"x": ones})

def refuses(call, error):
    try:
        call()
    except error:
        return
    raise AssertionError
"""

POISONED = """
fake.poison_next_kernel()
calls = [
    lambda: model.run({"x": ones}), lambda: model.run_slots([ones]), step, model.clone,
    lambda: model.set_param("w", ones), lambda: model.profile({"x": ones}),
    lambda: fg.Session("cuda").compile(g),
]
for call in calls:
    refuses(call, fg.ContextPoisonedError)
view = model.output_view(0)
model.close()
refuses(lambda: model.run({"x": ones}), fg.GraphError)
del model, step, calls
gc.collect()
print("done")
"""

FORKED = """
model.run({"x": ones})
child = os.fork()
if not child:
    for call in (lambda: model.run({"x": ones}), step, lambda: model.set_param("w", ones)):
        refuses(call, fg.DriverError)
    del model, step
    gc.collect()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert model.run({"x": ones})[0].tolist() == [2, 2, 2]
print("done")
"""

# Runs are under way, one of them in a thread, and a cycle holds the model.
ENDING = """
def loop():
    while True:
        other.run({"x": ones})

other = model.clone()
threading.Thread(target=loop, daemon=True).start()
y = model.context.create_buffer((3,))
x = model.context.to_device(ones)
ahead = model.bind({"x": x}, {"y": y}, stream=model.context.stream)
for _ in range(100):
    ahead()
keep = [ahead, model]
keep.append(keep)
print("done", flush=True)
"""


@pytest.mark.parametrize("script", [POISONED, FORKED, ENDING], ids=["poisoned", "forked", "ending"])
def test_ends(script):
    result = in_process(START + script)
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")
